"""An option that would count for nothing is refused with what it belongs to."""

import pytest

import tilescope as ts
from tilescope.cli import run

WORD = "0x4000004000010002"
BYTES = ts.TensorMap("bf16", (64, 64), (128,), (64, 8)).encode().hex()
BOX = ["--type", "bf16", "--dims", "64,128", "--box", "64,128", "--swizzle", "128B"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["draw", "(8,64):(64,1)", "--other", "(8,64):(1,8)"], "add --bits"),
        (["draw", "(8,64):(64,1)", "--element", "3,3"], "add --bits"),
        (["decode", WORD, "--rows", "8"], "--rows is how many rows"),
        (["decode", BYTES, "--addresses"], "--addresses is for the word"),
        (["decode", BYTES, "--major", "MN"], "--major is for the word"),
        (["mma", "check", WORD, *BOX, "--element", "37,21", "--major", "MN"], "--major is for the check"),
        (["mma", "check", WORD, *BOX, "--element", "37,21", "--copy", "0,0@1024"], "--copy is for the check"),
        (["plan", "128x64", "bf16", "-o", "tile.cu"], "-o is the file that --emit"),
        (["plan", "128x64", "bf16", "--emit", "cuda", "--element", "3,3"], "give one"),
        (["gemm", "64x64x64", "bf16", "--operand", "B"], "pass both options"),
        (["pipeline", "--template", "ping-pong", "--stages", "3"], "--stages is for a pipeline"),
        (["pipeline", "128x64", "bf16", "--describe", "--block", "0"], "--block is for a run"),
        (["pipeline", "ring.toml", "--cluster", "2x1"], "--cluster is for a pipeline"),
    ],
)
def test_an_option_that_would_count_for_nothing_is_refused(arguments, said, capsys, tmp_path, monkeypatch, wording):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring.toml").write_text('name = "nothing yet"\n', "utf-8")
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert said in " ".join(printed.err.split())
    wording(f"ignored option: {' '.join(arguments)}", " ".join(printed.err.split()))
    assert printed.out == ""
    assert not (tmp_path / "tile.cu").exists()
