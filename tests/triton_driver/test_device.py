"""Triton programs under tilescope's driver: launches, tensors, findings, and what is restored. No torch is needed."""

import ctypes
import mmap
import threading

import numpy as np
import pytest
from stand_in_tensor import OnCard, StandIn

import tilescope as ts
import tilescope.triton
from tilescope.triton.host_device import require_version


@pytest.fixture
def device(kernels, capsys):
    """An active device, whose report nobody reads here."""
    with tilescope.triton.device() as made:
        yield made


def numbers(*shape, dtype=np.float32):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


def test_a_kernel_runs_on_tensors_and_numpy_arrays(device, kernels):
    x = StandIn(numbers(1000))
    out = np.zeros(1000, np.float32)
    kernels.scale[(4,)](x, tilescope.triton.tensor(out), 1000, 2.0, BLOCK=256)
    assert (out == 2 * x.array).all()


def test_every_launch_is_a_run_with_its_call_site(device, kernels):
    x = tilescope.triton.tensor(numbers(64))
    for _ in range(2):
        kernels.scale[(1,)](x, x, 64, 2.0, BLOCK=64)
    assert [run.entry for run in device.runs] == ["scale", "scale"]
    assert {run.call_site.rpartition(":")[0] for run in device.runs} == {__file__}
    assert device.runs[0].outcome == "finished"


def test_the_writer_of_a_byte_is_found_by_the_hosts_own_address(device, kernels):
    out = tilescope.triton.tensor(np.zeros(64, np.float32))
    kernels.scale[(1,)](tilescope.triton.tensor(numbers(64)), out, 64, 2.0, BLOCK=64)
    assert device.runs[0].last_writer(out.data_ptr() + 4).source_line.startswith("driver_kernels.py:")


def test_strided_views_of_one_storage_share_one_placement(device, kernels):
    whole = StandIn(numbers(8, 40))
    out = StandIn(np.zeros((8, 16), np.float32))
    kernels.copy_rows[(8,)](whole[:, 8:24], out, 40, 16, BLOCK=16)
    assert (out.array == whole.array[:, 8:24]).all()


def test_a_view_is_written_through(device, kernels):
    whole = StandIn(np.zeros(100, np.float32))
    kernels.scale[(1,)](StandIn(np.ones(16, np.float32)), whole[20:36], 16, 3.0, BLOCK=16)
    assert whole.array.sum() == 48
    assert (whole.array[20:36] == 3).all()


def test_overlapping_views_without_a_storage_are_one_placement(device, kernels):
    array = numbers(64)
    kernels.scale[(1,)](tilescope.triton.tensor(array[:48]), tilescope.triton.tensor(array[16:]), 16, 0.0, BLOCK=16)
    assert (array[16:32] == 0).all()


def test_addresses_in_a_tensor_lead_to_tensors_that_are_no_arguments(device, kernels):
    sources = [tilescope.triton.tensor(numbers(32) + 100 * index) for index in range(3)]
    table = tilescope.triton.tensor(np.array([source.data_ptr() for source in sources]))
    out = np.zeros((3, 32), np.float32)
    kernels.follow_pointers[(3,)](table, tilescope.triton.tensor(out), BLOCK=32)
    assert (out == np.stack([source.array for source in sources])).all()


def test_addresses_below_four_gibibytes_are_followed(device, kernels):
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_size_t]
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000  # MAP_FIXED_NOREPLACE
    # The heap of an interpreter that is not a position-independent executable may take any of these pages.
    for free in range(0x2F00_0000, 0xF000_0000, 0x1000_0000):
        address = libc.mmap(free, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if address == free:
            break
    assert address == free
    low = np.ctypeslib.as_array((ctypes.c_float * 32).from_address(address))
    low[...] = numbers(32)
    source = tilescope.triton.tensor(low)
    table = tilescope.triton.tensor(np.array([source.data_ptr()]))
    out = np.zeros((1, 32), np.float32)
    kernels.follow_pointers[(1,)](table, tilescope.triton.tensor(out), BLOCK=32)
    assert (out[0] == low).all()


def test_an_address_of_nothing_faults_with_its_line(device, kernels):
    table = tilescope.triton.tensor(np.array([0x1234_5678_9000], np.int64))
    with pytest.raises(ts.RuleError, match="run-out-of-bounds"):
        kernels.follow_pointers[(1,)](table, tilescope.triton.tensor(np.zeros(32, np.float32)), BLOCK=32)


def test_a_read_only_array_cannot_be_stored_to(device, kernels):
    array = numbers(64)
    array.flags.writeable = False
    read_only = tilescope.triton.tensor(array)
    kernels.scale[(1,)](read_only, tilescope.triton.tensor(np.zeros(64, np.float32)), 64, 2.0, BLOCK=64)
    with pytest.raises(ts.RuleError, match="read-only"):
        kernels.scale[(1,)](read_only, read_only, 64, 2.0, BLOCK=64)


def test_descriptors_of_the_host(device, kernels):
    from triton.tools.tensor_descriptor import TensorDescriptor

    x = tilescope.triton.tensor(numbers(64, 32))
    out = tilescope.triton.tensor(np.zeros((64, 32), np.float32))
    described = [TensorDescriptor.from_tensor(tensor, [16, 32]) for tensor in (x, out)]
    kernels.copy_described[(4,)](*described, BLOCK=16)
    assert (out.array == x.array).all()
    assert device.runs[0].copies


def test_descriptors_of_the_device_take_the_programs_allocator(device, kernels):
    import triton

    x = tilescope.triton.tensor(numbers(64, 32))
    out = tilescope.triton.tensor(np.zeros((64, 32), np.float32))
    arguments = (x, out, 64, 32)
    with pytest.raises(RuntimeError, match="set_allocator"):
        kernels.copy_device_described[(4,)](*arguments, BLOCK=16)
    asked = []

    def allocate(size_bytes, alignment_bytes, _stream):
        asked.append(size_bytes)
        content = np.zeros(size_bytes + alignment_bytes, np.uint8)
        start = -content.ctypes.data % alignment_bytes
        return tilescope.triton.tensor(content[start : start + size_bytes])

    triton.set_allocator(allocate)
    kernels.copy_device_described[(4,)](*arguments, BLOCK=16)
    assert (out.array == x.array).all()
    assert len(asked) == 1


def test_an_error_is_raised_at_the_launch(device, kernels):
    count = tilescope.triton.tensor(np.zeros(1, np.int32))
    with pytest.raises(ts.RuleError) as raised:
        kernels.lose_updates[(4,)](count)
    assert {violation.rule for violation in raised.value.violations} == {"run-race"}
    assert "test_device.py" in raised.value.__notes__[0]
    assert len(device.runs) == 1


def test_without_strict_the_program_goes_on(kernels, capsys):
    count = tilescope.triton.tensor(np.zeros(1, np.int32))
    with tilescope.triton.device(strict=False) as device:
        kernels.lose_updates[(4,)](count)
    assert {finding.rule for finding in device.runs[0].findings} == {"run-race"}
    report = capsys.readouterr().err
    assert "lose_updates: 1 launch, " in report
    assert "launched at: " in report


def test_the_output_of_device_print_is_printed_and_an_assertion_is_a_finding(device, kernels, capsys):
    x = tilescope.triton.tensor(np.zeros(1, np.int32))
    kernels.check_and_print[(1,)](x, 3, debug=True)
    assert "n is: 3" in capsys.readouterr().out
    with pytest.raises(ts.RuleError, match="n is positive"):
        kernels.check_and_print[(1,)](x, 0, debug=True)


def test_tuples_are_passed_part_by_part(device, kernels):
    out = np.zeros(1, np.float32)
    kernels.use_tuple[(1,)]((tilescope.triton.tensor(np.array([5], np.float32)), 7), tilescope.triton.tensor(out))
    assert out[0] == 12


def test_gluon_kernels_run_the_same_way(device, kernels):
    x = tilescope.triton.tensor(numbers(300))
    out = np.zeros(300, np.float32)
    kernels.gluon_copy[(3,)](x, tilescope.triton.tensor(out), 300, BLOCK=128)
    assert (out == x.array).all()


def test_clusters_and_warps_of_a_launch(device, kernels):
    x = tilescope.triton.tensor(numbers(512))
    out = np.zeros(512, np.float32)
    kernels.scale[(2,)](x, tilescope.triton.tensor(out), 512, 1.0, BLOCK=256, num_ctas=2, num_warps=2)
    (run,) = device.runs
    assert (run.cluster[0], run.block[0]) == (2, 64)
    assert (out == x.array).all()


def test_a_grid_without_blocks_launches_nothing(device, kernels):
    x = tilescope.triton.tensor(numbers(64))
    kernels.scale[(0,)](x, x, 64, 2.0, BLOCK=64)
    assert device.runs == []


def test_hooks_hear_of_a_launch(device, kernels):
    import triton

    seen = []
    hooks = (triton.knobs.runtime.launch_enter_hook, triton.knobs.runtime.launch_exit_hook)

    def enter(metadata):
        seen.append(("enter", metadata.get()["name"]))

    def leave(metadata):
        seen.append(("exit", metadata.get()["name"]))

    hooks[0].add(enter)
    hooks[1].add(leave)
    try:
        x = tilescope.triton.tensor(numbers(64))
        kernels.scale[(1,)](x, x, 64, 2.0, BLOCK=64)
    finally:
        hooks[0].remove(enter)
        hooks[1].remove(leave)
    assert seen == [("enter", "scale"), ("exit", "scale")]


def test_a_warmed_up_kernel_says_registers_and_is_launched_by_itself(device, kernels):
    x = tilescope.triton.tensor(numbers(64))
    compiled = kernels.scale.warmup(x, x, 64, 2.0, BLOCK=64, grid=(1,))
    compiled._init_handles()
    assert 8 <= compiled.n_regs <= 255
    compiled[(1, 1, 1)](x, x, 64, 2.0, 64)
    assert (x.array == 2 * numbers(64)).all()


def test_a_preloaded_kernel_is_not_compiled_again(device, kernels, monkeypatch):
    x = tilescope.triton.tensor(numbers(64))
    compiled = []
    keep = lambda **event: compiled.append(event["compile"]["specialization_data"])  # noqa: E731
    monkeypatch.setattr(kernels.triton.knobs.runtime, "jit_post_compile_hook", keep)
    kernels.scale.device_caches.clear()
    kernels.scale.warmup(x, x, 64, 5.0, BLOCK=64, grid=(1,))
    assert len(compiled) == 1
    kernels.scale.device_caches.clear()
    kernels.scale.preload(compiled[0])
    assert len(compiled) == 2
    kernels.scale[(1,)](x, x, 64, 5.0, BLOCK=64)
    assert (x.array == 5 * numbers(64)).all()
    assert len(compiled) == 2


def test_blocks_of_a_cooperative_grid_meet(device, kernels):
    out = tilescope.triton.tensor(np.full(8, -1, np.int32))
    arrived = tilescope.triton.tensor(np.zeros(1, np.int32))
    kernels.meet[(8,)](arrived, out, 8, launch_cooperative_grid=True)
    assert (out.array == np.arange(8)).all()


def test_a_kernel_that_cannot_be_compiled_says_for_which_architecture(device, kernels):
    x = tilescope.triton.tensor(numbers(64))
    with pytest.raises(kernels.triton.CompilationError) as caught:
        kernels.scale[(1,)](x, x, 64, 2.0, BLOCK=63)
    (note,) = caught.value.__notes__
    assert note.startswith("tilescope: scale (driver_kernels.py:")
    assert "for sm_90" in note


def test_architectures_do_not_share_compiled_kernels(kernels, capsys):
    x = tilescope.triton.tensor(numbers(64))
    targets = []
    for arch in ("sm_80", "sm_90", "sm_80"):
        with tilescope.triton.device(arch):
            targets.append(kernels.scale[(1,)](x, x, 64, 1.0, BLOCK=64).metadata.target.arch)
    assert targets == [80, 90, 80]


def test_properties_are_those_of_the_card(kernels):
    import triton

    with tilescope.triton.device("sm_100"):
        driver = triton.runtime.driver.active
        assert driver.get_current_target().arch == 100
        assert driver.utils.get_device_properties(0)["multiprocessor_count"] == ts.CARD["B200"].sms
    with tilescope.triton.device(card="H100 PCIe"):
        assert triton.runtime.driver.active.utils.get_device_properties(0)["multiprocessor_count"] == 114


def test_the_driver_before_is_restored(kernels):
    import triton

    before = triton.runtime.driver._active
    hook = triton.knobs.runtime.add_stages_inspection_hook
    bench = triton.testing.do_bench
    with tilescope.triton.device() as outer:
        with tilescope.triton.device("sm_80"):
            assert triton.runtime.driver.active.get_current_target().arch == 80
        assert triton.runtime.driver.active.get_current_target().arch == 90
        with pytest.raises(ts.DeviceError, match="active already"):
            outer.activate()
    assert triton.runtime.driver._active is before
    assert triton.knobs.runtime.add_stages_inspection_hook is hook
    assert triton.testing.do_bench is bench


def test_a_kernel_outside_of_its_device_is_refused(kernels, capsys):
    x = tilescope.triton.tensor(numbers(64))
    with tilescope.triton.device():
        compiled = kernels.scale[(1,)](x, x, 64, 1.0, BLOCK=64)
    with pytest.raises(ts.DeviceError, match="has ended"):
        compiled.run(1, 1, 1, 0, compiled.function, compiled.packed_metadata, None, None, None, x, x, 64, 1.0, 64)


def test_activate_holds_until_close(kernels, capsys):
    import triton

    before = triton.runtime.driver._active
    device = tilescope.triton.activate("sm_90")
    x = tilescope.triton.tensor(numbers(64))
    kernels.scale[(1,)](x, x, 64, 1.0, BLOCK=64)
    device.close()
    assert triton.runtime.driver._active is before
    assert "1 launch of 1 kernel for sm_90" in capsys.readouterr().err


def test_a_device_in_a_second_thread_is_refused(device):
    refused = []

    def begin():
        try:
            with tilescope.triton.device():
                pass
        except ts.DeviceError as error:
            refused.append(str(error))

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    assert len(refused) == 1
    assert "Another thread" in refused[0]


def test_threads_may_launch_on_one_device(device, kernels):
    arrays = [numbers(64) for _ in range(4)]

    def launch(array):
        x = tilescope.triton.tensor(array)
        kernels.scale[(1,)](x, x, 64, 2.0, BLOCK=64)

    launch(np.zeros(64, np.float32))  # compiled once
    threads = [threading.Thread(target=launch, args=(array,)) for array in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((array == 2 * numbers(64)).all() for array in arrays)
    assert len(device.runs) == 5


def test_a_tensor_of_a_card_is_refused_in_a_sentence(device, kernels):
    on_card = OnCard(numbers(64))
    with pytest.raises(ts.RuleError, match="a tensor on cuda:0; a tensor on the CPU"):
        kernels.scale[(1,)](on_card, on_card, 64, 2.0, BLOCK=64)


@pytest.mark.parametrize("version", ["3.5.1", "3.10.0", "4.0.0"])
def test_an_unknown_triton_is_refused_in_a_sentence(version):
    class Module:
        __version__ = version

    with pytest.raises(ts.DeviceError, match=r"drives Triton 3\.6 to 3\.9"):
        require_version(Module())


def test_a_missing_triton_is_told_in_a_sentence(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "triton", None)
    with pytest.raises(ts.DeviceError, match=r"pip install 'tilescope\[triton\]'"):
        tilescope.triton.activate()


def test_the_interpreter_is_refused(kernels, monkeypatch):
    import triton

    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    with pytest.raises(ts.DeviceError, match="TRITON_INTERPRET"):
        tilescope.triton.activate()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"arch": "sm_77"}, "sm_77"),
        ({"card": "B200"}, "a card of sm_100"),
        ({"autotune": "best"}, "autotune"),
        ({"seed": "one"}, "seed"),
        ({"strict": 3}, "strict"),
    ],
)
def test_arguments_are_checked(arguments, sentence):
    with pytest.raises(ts.RuleError, match=sentence):
        tilescope.triton.device(**arguments)


@pytest.mark.parametrize("junk", [None, 3, [1.0], np.array([object()])])
def test_what_is_no_array_is_refused(junk):
    with pytest.raises(ts.RuleError, match="host-array"):
        tilescope.triton.tensor(junk)


def test_a_kernel_that_does_not_compile_for_the_architecture_says_so(kernels, capsys):
    x = tilescope.triton.tensor(np.zeros(128, np.int32))
    with tilescope.triton.device(), pytest.raises(Exception, match="static_assert"):
        kernels.too_large[(1,)](x, BLOCK=128)


def test_a_seed_gives_the_same_result(kernels, capsys):
    a = numbers(32, 32, dtype=np.float16) / 1024
    c = np.zeros((32, 32), np.float32)
    with tilescope.triton.device(seed=7):
        kernels.product[(1,)](*map(tilescope.triton.tensor, (a, a, c)), BLOCK=32)
    assert np.allclose(c, a.astype(np.float32) @ a.astype(np.float32), atol=1e-3)
