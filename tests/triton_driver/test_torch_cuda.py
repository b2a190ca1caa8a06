"""torch's "cuda" served by the CPU, where torch's CPU build is installed; .ci/run has no torch, and skips these."""

import subprocess
import sys

import numpy as np
import pytest

import tilescope as ts
import tilescope.triton
from tilescope.triton.torch_cuda import CUDA_IS_CPU


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def device(kernels, torch, capsys):
    with tilescope.triton.device() as made:
        yield made


def test_cuda_is_where_the_program_put_it(device, torch):
    x = torch.ones(8, device="cuda")
    y = torch.ones(8)
    assert (x.is_cuda, x.device, x.get_device(), y.is_cuda, y.device.type) == (
        True,
        torch.device("cuda", 0),
        0,
        False,
        "cpu",
    )
    assert (x + 1).is_cuda
    assert torch.empty_like(x).is_cuda
    assert not (y + 1).is_cuda
    assert torch.ones(8, device=0).is_cuda
    assert torch.cat([x, x]).is_cuda
    assert device.report().notes == (CUDA_IS_CPU,)


def test_moving_between_the_sides_copies_as_a_card_does(device, torch):
    x = torch.zeros(4)
    y = x.cuda()
    z = y.cpu()
    y.add_(1)
    assert (x.sum(), y.sum(), z.sum()) == (0, 4, 0)
    assert y.cuda() is y
    assert x.cpu() is x
    assert y.to("cuda") is y
    half = x.to("cuda", torch.float16)
    assert (half.is_cuda, half.dtype) == (True, torch.float16)
    assert torch.from_numpy(np.zeros(4)).to("cuda").is_cuda


def test_gradients_pass_through(device, torch):
    x = torch.ones(4, device="cuda", requires_grad=True)
    (x * 3).sum().backward()
    assert x.grad.is_cuda
    assert x.grad.tolist() == [3, 3, 3, 3]


def test_kernels_take_tensors_and_write_back(device, torch, kernels):
    x = torch.arange(1000, dtype=torch.float32, device="cuda")
    out = torch.empty_like(x)
    kernels.scale[(4,)](x, out, 1000, 2.0, BLOCK=256)
    assert torch.equal(out, 2 * x)


def test_transposed_views_are_read_in_place(device, torch, kernels):
    x = torch.arange(64 * 32, dtype=torch.float32, device="cuda").reshape(64, 32)
    out = torch.empty(16, 8, device="cuda")
    kernels.copy_rows[(16,)](x[8:24, 4:12], out, 32, 8, BLOCK=8)
    assert torch.equal(out, x[8:24, 4:12])


def test_addresses_in_a_tensor_of_torch(device, torch, kernels):
    sources = [torch.full((32,), float(number), device="cuda") for number in range(3)]
    table = torch.tensor([source.data_ptr() for source in sources], device="cuda")
    out = torch.empty(3, 32, device="cuda")
    kernels.follow_pointers[(3,)](table, out, BLOCK=32)
    assert torch.equal(out, torch.stack(sources))


def test_the_card_is_that_of_the_device(kernels, torch, capsys):
    has_card = torch.cuda.is_available()
    with tilescope.triton.device("sm_100"):
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_capability() == (10, 0)
        assert torch.cuda.get_device_properties(0).multi_processor_count == ts.CARD["B200"].sms
        with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0):
            torch.cuda.synchronize()
    assert torch.cuda.is_available() == has_card
    assert not torch.ones(1).is_cuda


@pytest.mark.parametrize("name", ["CUDAGraph", "memory_allocated", "mem_get_info"])
def test_what_cannot_be_served_is_refused_in_a_sentence(device, torch, name):
    with pytest.raises(ts.DeviceError, match=rf"torch\.cuda\.{name} is not served"):
        getattr(torch.cuda, name)()


def test_a_second_card_is_refused(device, torch):
    with pytest.raises(ts.DeviceError, match="one device, cuda:0"):
        torch.zeros(1, device="cuda:1")


def test_a_tensor_without_memory_is_refused(device, torch, kernels):
    x = torch.zeros(64, device="meta")
    with pytest.raises(ts.RuleError, match="without memory on the host"):
        kernels.scale[(1,)](x, x, 64, 2.0, BLOCK=64)


def test_generators_autocast_and_compile(device, torch):
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert isinstance(generator, torch.Generator)
    assert torch.rand(2, device="cuda", generator=generator).is_cuda
    with torch.autocast("cuda", dtype=torch.bfloat16):
        a = torch.ones(4, 4, device="cuda")
        assert (a @ a).dtype == torch.bfloat16
    assert torch.compile(len)([1, 2]) == 2


def test_torch_is_not_imported_by_us_and_is_served_when_a_program_imports_it(kernels, torch):
    program = (
        "import sys, tilescope.triton\n"
        "device = tilescope.triton.activate()\n"
        "assert 'torch' not in sys.modules\n"
        "import torch\n"
        "assert torch.zeros(1, device='cuda').is_cuda\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
