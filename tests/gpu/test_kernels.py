"""The kernels of the tests on a card; that they compile needs none."""

from card import WGMMA, compiled


def test_every_kernel_compiles():
    code = bytes(compiled("sm_90a").code)
    assert [name for name in WGMMA if f"product_{name}_00".encode() not in code] == []
