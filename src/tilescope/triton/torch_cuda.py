"""torch's device "cuda" emulated on the CPU, for programs and tests that use it.

    torch.zeros(4, device="cuda")      a tensor in the CPU's memory, whose `device` is cuda:0 and whose `is_cuda` is True
    x.cpu(), x.cuda()                  copies, where a card's would be; the same tensor where a card's would be the same
    torch.cuda.is_available()          True; capability and properties are those of the device's card
    torch.cuda.CUDAGraph()             refused, as everything of torch.cuda that is not listed here

torch is not imported: it is found among the loaded modules, or waited for. `cuda_mode` sees every call of a program.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

from tilescope.arch import WARP_LANES, Arch
from tilescope.card import Card
from tilescope.errors import DeviceError
from tilescope.triton.cuda_mode import MARK, TorchCalls, is_cuda_device
from tilescope.triton.import_hook import ImportHook
from tilescope.triton.patches import Patches
from tilescope.triton.streams import Event, Stream

NOT_COMPILED = (
    "torch.compile returned functions as they are in this run: their Triton kernels are checked, not fused ones."
)
CUDA_IS_CPU = 'torch.device("cuda") meant the CPU in this run.'
_MEMORY_BYTES = 141 * 10**9  # of an H200; B200: 180 GB
_THREADS_PER_SM = 2048
_REFUSED = (
    "CUDAGraph",
    "graph",
    "make_graphed_callables",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "memory_snapshot",
    "max_memory_allocated",
    "max_memory_reserved",
    "MemPool",
    "caching_allocator_alloc",
    "utilization",
    "power_draw",
    "temperature",
    "clock_rate",
)
_IGNORED = (
    "synchronize",
    "init",
    "empty_cache",
    "set_device",
    "set_stream",
    "ipc_collect",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "reset_accumulated_memory_stats",
)


class TorchService:
    """Serves "cuda" while a device is active: now if torch is loaded, else as soon as the program imports it."""

    def __init__(self, arch: Arch, card: Card | None, say: Callable[[str], None]) -> None:
        self._arch = arch
        self._card = card
        self._say = say
        self._patches: Patches | None = None
        self._mode: object = None
        self._hook = ImportHook("torch", self._serve)

    def install(self, patches: Patches) -> None:
        """Begin to serve; `patches` are restored by the device."""
        self._patches = patches
        self._stub_cublas(patches)
        torch = sys.modules.get("torch")
        if torch is None:
            self._hook.install()
        else:
            self._serve(torch)

    def remove(self) -> None:
        """Serve no longer."""
        self._hook.remove()
        if self._mode is not None:
            self._mode.__exit__(None, None, None)  # type: ignore[attr-defined]
            self._mode = None

    def _serve(self, torch: ModuleType) -> None:
        """Replace what would need a card in torch, and see every call of the program."""
        self._hook.remove()
        assert self._patches is not None
        patch_cuda(torch, self._patches, self._arch, self._card, self._say)
        self._mode = TorchCalls(torch, lambda: self._say(CUDA_IS_CPU)).make_mode()
        self._mode.__enter__()  # type: ignore[attr-defined]

    @staticmethod
    def _stub_cublas(patches: Patches) -> None:
        """Replace Triton's handle of cuBLAS, against which tutorials compare, by products on the CPU."""
        from triton._C import libtriton

        cublas = getattr(getattr(libtriton, "nvidia", None), "cublas", None)
        if cublas is not None:
            patches.set(cublas, "CublasLt", CublasOnCpu)


class CublasOnCpu:
    """Triton's cuBLAS handle, computed by torch on the CPU in float32."""

    def __init__(self, _workspace: object) -> None:
        pass

    def matmul(self, a: object, b: object, c: object) -> None:
        """C = A B^T."""
        c.copy_(a.float() @ b.float().T)  # type: ignore[attr-defined]

    def gemm(self, a: object, b: object, c: object, d: object, alpha: float, beta: float) -> None:  # noqa: PLR0917
        """D = alpha A B^T + beta C."""
        d.copy_(alpha * (a.float() @ b.float().T) + beta * c.float())  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> object:
        raise DeviceError(f"cuBLAS's {name} is not served under tilescope's driver: it needs a card.")


def patch_cuda(torch: ModuleType, patches: Patches, arch: Arch, card: Card | None, say: Callable[[str], None]) -> None:
    """Replace the functions of torch.cuda by those of the device's card, and refuse the rest in a sentence."""
    for name, value in list_served(torch, arch, card).items():
        if hasattr(torch.cuda, name):
            patches.set(torch.cuda, name, value)
    for name in ("range_push", "range_pop", "mark"):
        patches.set(torch.cuda.nvtx, name, _make_ignored())
    patches.set(torch, "from_numpy", _marking(torch.from_numpy))
    patches.set(torch, "Generator", _make_generator_class(torch))
    _patch_accelerator(torch, patches)
    _patch_autocast(torch, patches)
    patches.set(torch, "compile", functools.partial(_leave_uncompiled, say))


def list_served(torch: ModuleType, arch: Arch, card: Card | None) -> dict[str, object]:
    """The replacement of each name of torch.cuda: a separate object for each, as torch's compiler requires."""
    served: dict[str, object] = {
        "is_available": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_capability": lambda *_: arch.compute_capability,
        "get_device_name": lambda *_: _card_name(arch, card),
        "get_device_properties": lambda *_: _properties(arch, card),
        "get_arch_list": lambda: [arch.name],
        "current_stream": lambda *_: Stream(),
        "default_stream": lambda *_: Stream(),
        "stream": lambda *_: nullcontext(),
        "device": _DeviceContext,
        "device_of": type("device_of", (_DeviceContext,), {}),
        "Stream": Stream,
        "ExternalStream": type("ExternalStream", (Stream,), {}),
        "Event": Event,
        "manual_seed": lambda seed, *_: torch.default_generator.manual_seed(seed),
        "manual_seed_all": lambda seed, *_: torch.default_generator.manual_seed(seed),
        "seed": lambda *_: torch.default_generator.seed(),
        "initial_seed": lambda *_: torch.default_generator.initial_seed(),
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "_lazy_init": _refuse_rest,
    }
    served |= {name: _make_ignored() for name in _IGNORED}
    served |= {name: _make_refusal(name, getattr(torch.cuda, name, None)) for name in _REFUSED}
    return served


def _patch_accelerator(torch: ModuleType, patches: Patches) -> None:
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:
        return
    served: dict[str, object] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "current_device_index": lambda: 0,
        "current_device_idx": lambda: 0,
        "synchronize": _make_ignored(),
        "set_device_index": _make_ignored(),
    }
    for name, value in served.items():
        if hasattr(accelerator, name):
            patches.set(accelerator, name, value)


def _patch_autocast(torch: ModuleType, patches: Patches) -> None:
    """Autocast for "cuda" is autocast for the CPU: that is where the operations run."""
    autocast = torch.amp.autocast_mode.autocast
    begin = autocast.__init__

    @functools.wraps(begin)
    def begin_on_cpu(self: object, device_type: str, *args: object, **options: object) -> None:
        begin(self, "cpu" if device_type == "cuda" else device_type, *args, **options)

    patches.set(autocast, "__init__", begin_on_cpu)
    is_enabled = torch.is_autocast_enabled
    find_dtype = torch.get_autocast_dtype

    def is_autocast_enabled(device_type: str = "cpu") -> bool:
        return bool(is_enabled("cpu" if device_type == "cuda" else device_type))

    def get_autocast_dtype(device_type: str) -> object:
        return find_dtype("cpu" if device_type == "cuda" else device_type)

    patches.set(torch, "is_autocast_enabled", is_autocast_enabled)
    patches.set(torch, "get_autocast_dtype", get_autocast_dtype)


class _DeviceContext:
    """torch.cuda.device(…): there is one device."""

    def __init__(self, _device: object = None) -> None:
        self.idx = 0
        self.prev_idx = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_exception: object) -> None:
        pass


def _make_generator_class(torch: ModuleType) -> type:
    """torch.Generator, which makes a generator of the CPU for "cuda"; isinstance means torch's own."""
    generator_class = torch.Generator

    class GeneratorKind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, generator_class)

        def __call__(cls, device: object = "cpu") -> object:
            return generator_class("cpu" if is_cuda_device(torch, device) else device)

    return GeneratorKind("Generator", (), {})


def _marking(function: Callable[..., object]) -> Callable[..., object]:
    """The function, whose result is marked as a tensor on the CPU."""

    @functools.wraps(function)
    def make_marked(*args: object, **options: object) -> object:
        result = function(*args, **options)
        setattr(result, MARK, True)
        return result

    return make_marked


def _leave_uncompiled(say: Callable[[str], None], model: object = None, **_options: object) -> object:
    """torch.compile: the function itself, whose results are the same."""
    say(NOT_COMPILED)
    return functools.partial(_leave_uncompiled, say) if model is None else model


def _make_ignored() -> Callable[..., None]:
    """A function without effect; each name has its own, since torch's compiler tells functions apart by identity."""

    def do_nothing(*_arguments: object, **_options: object) -> None:
        """What has no effect without a card."""

    return do_nothing


def _make_refusal(name: str, own: object) -> object:
    """A function, or a class where torch has one, that is refused when it is called; annotations may name it."""

    def refuse(*_arguments: object, **_options: object) -> None:
        raise DeviceError(f"torch.cuda.{name} is not served under tilescope's driver: it needs a card.")

    return type(name, (), {"__init__": refuse}) if isinstance(own, type) else refuse


def _refuse_rest() -> None:
    raise DeviceError(
        "The program called a function of torch.cuda that is not served under tilescope's driver: it needs a card."
    )


def _card_name(arch: Arch, card: Card | None) -> str:
    return f"NVIDIA {arch.name if card is None else card.name} (tilescope)"


def _properties(arch: Arch, card: Card | None) -> SimpleNamespace:
    major, minor = arch.compute_capability
    return SimpleNamespace(
        name=_card_name(arch, card),
        major=major,
        minor=minor,
        total_memory=_MEMORY_BYTES,
        multi_processor_count=132 if card is None else card.sms,
        L2_cache_size=50 << 20 if card is None or card.l2_bytes is None else card.l2_bytes,
        warp_size=WARP_LANES,
        max_threads_per_multi_processor=_THREADS_PER_SM,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=arch.smem_per_block_bytes,
        shared_memory_per_multiprocessor=arch.smem_per_sm_bytes,
        is_integrated=0,
        is_multi_gpu_board=0,
    )
