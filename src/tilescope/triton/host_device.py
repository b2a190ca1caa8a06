"""A device that Triton programs run on, without a GPU.

    with tilescope.triton.device(arch="sm_90") as device:
        kernel[grid](x, y, n, BLOCK=1024)
    device.runs[0].findings

While it is active it is Triton's driver, torch.device("cuda") means the CPU, and benchmarks return nan. At the end the driver
before it is back, and everything that was replaced in Triton and torch too.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from types import ModuleType, TracebackType
from typing import Self

from tilescope.arch import Arch
from tilescope.card import Card
from tilescope.errors import DeviceError, RuleError, Violation, unknown_name
from tilescope.machine.launch.triton_compiler import import_triton
from tilescope.machine.report.run import KernelRun
from tilescope.machine.report.verdict import Acceptance
from tilescope.reading import flag, integer
from tilescope.rule import ARGUMENT_RANGE
from tilescope.triton.autotuning import AutotuneMode, Choices
from tilescope.triton.compilation import note_failed_compilations
from tilescope.triton.patches import Patches
from tilescope.triton.profiling import ProfilerService
from tilescope.triton.program_report import LaunchLog, ProgramReport
from tilescope.triton.torch_cuda import TorchService
from tilescope.triton.triton_driver import make_driver, make_stages_hook
from tilescope.triton.triton_launcher import LaunchRequest

DEFAULT_ARCH = "sm_90"
KEPT_RUNS = 1000  # older runs without errors or warnings are dropped; the report counts them
MAX_STEPS = 1_000_000_000
OLDEST_TRITON = (3, 6)
NEWEST_TRITON = (3, 9)
_AUTOTUNE_MODES: tuple[AutotuneMode, ...] = ("first", "all")

_active_lock = threading.Lock()
_active: list[Device] = []  # nested devices, the innermost last
_active_thread: list[int] = []  # the thread that activated them


class Device:
    """A device without a card: Triton's driver while it is active, and the runs of all launches.

    `runs` has a KernelRun for each launch, with its `call_site`: the newest thousand, and older ones with errors or warnings.
    With `strict` a launch with an error raises a RuleError that quotes it; without, the program goes on.
    """

    def __init__(
        self,
        arch: object = DEFAULT_ARCH,
        card: object = None,
        seed: int | None = None,
        strict: bool = True,
        autotune: AutotuneMode = "first",
        *,
        reports: bool = True,
        allow: Sequence[Acceptance] = (),
    ) -> None:
        self.arch = Arch.named(arch)
        self.card = Card.of_arch(self.arch) if card is None else Card.named(card)
        if self.card is not None and self.card.arch is not self.arch:
            raise ARGUMENT_RANGE.error(
                argument="card",
                found=f"{self.card.name}, a card of {self.card.arch.name}",
                limit=f"the device is of {self.arch.name}",
                fix=f'Use arch="{self.card.arch.name}", or another card.',
            )
        self.seed = None if seed is None else integer("seed", seed)
        self.strict = flag("strict", strict)
        if autotune not in _AUTOTUNE_MODES:
            raise RuleError([unknown_name("autotune mode", "autotune", autotune, _AUTOTUNE_MODES)])
        self.runs: list[KernelRun] = []
        self._notes: list[str] = []
        self._log = LaunchLog()
        self._reports = reports
        self._allow = tuple(allow)
        self._patches = Patches()
        self._choices = Choices(autotune, self.say)
        self._torch = TorchService(self.arch, self.card, self.say)
        self._profiler = ProfilerService(self.say)
        self._launch_lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<tilescope.triton.Device: {self.report().sentence}>"

    def __enter__(self) -> Self:
        self.activate()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def activate(self) -> None:
        """Make this device Triton's driver; a DeviceError if another thread has a device."""
        triton = import_triton()
        require_version(triton)
        with _active_lock:
            if self in _active:
                raise DeviceError("This device is active already.")
            if _active and _active_thread[-1] != threading.get_ident():
                raise DeviceError(
                    "Another thread has an active device of tilescope.triton: Triton has one driver for the whole process. "
                    "End that device first, or use processes."
                )
            _active.append(self)
            _active_thread.append(threading.get_ident())
        self._install(triton)

    def _install(self, triton: ModuleType) -> None:
        """Set Triton's driver, and replace what would need a card."""
        runtime = triton.knobs.runtime
        self._patches.set(triton.runtime.driver, "_active", make_driver(triton, self))
        self._patches.set(runtime, "add_stages_inspection_hook", make_stages_hook(runtime.add_stages_inspection_hook))
        note_failed_compilations(triton, self.arch.name, self._patches)
        self._choices.install(self._patches)
        self._torch.install(self._patches)
        self._profiler.install(self._patches)

    def close(self) -> None:
        """Restore the driver that was active before, and print the report to stderr if there was a launch."""
        with _active_lock:
            if self not in _active:
                return
            if _active[-1] is not self:
                raise DeviceError("Another device was activated after this one: end that one first.")
            _active.pop()
            _active_thread.pop()
        self._torch.remove()
        self._profiler.remove()
        self._patches.restore()
        if self._reports and self._log.report(self.arch.name, ()).launches:
            sys.stderr.write(f"tilescope: {self.report()}\n")

    def say(self, sentence: str) -> None:
        """Keep a sentence for the report, and print it once."""
        if sentence not in self._notes:
            self._notes.append(sentence)
            sys.stderr.write(f"tilescope: {sentence}\n")

    def report(self) -> ProgramReport:
        """Launches, warp instructions, seconds, and findings by kernel, so far."""
        return self._log.report(self.arch.name, self._notes)

    def bench(self, function: object, **options: object) -> object:
        """The benchmark of Triton's driver: it answers nan."""
        return self._choices.bench(function, **options)  # type: ignore[arg-type]

    def run(self, request: LaunchRequest) -> None:
        """Run a launch on the machine; with `strict`, a RuleError reports its errors."""
        __tracebackhide__ = True
        with self._launch_lock:
            start = time.perf_counter()
            run = request.kernel.run(
                request.grid,
                request.threads,
                request.values,
                memory=request.memory,
                smem_bytes=request.smem_bytes,
                cluster=request.cluster,
                arch=self.arch,
                seed=self.seed,
                max_steps=MAX_STEPS,
            )
            seconds = time.perf_counter() - start
            object.__setattr__(run, "call_site", request.call_site)
            object.__setattr__(run, "arrays", ())  # would keep the tensors of every launch alive
            self._keep(run)
            self._log.add(run, seconds)
        if run.printed:
            sys.stdout.write(run.printed)
        errors = [finding for finding in run.findings if finding.severity == "error" and not self._is_allowed(finding)]
        if errors and self.strict:
            error = RuleError(errors)
            error.add_note(f"{run.entry} was launched at {run.call_site}")
            raise error

    def _is_allowed(self, finding: Violation) -> bool:
        return any(entry.matches(finding) for entry in self._allow)

    def _keep(self, run: KernelRun) -> None:
        self.runs.append(run)
        if len(self.runs) <= KEPT_RUNS:
            return
        for index, old in enumerate(self.runs):
            if all(finding.severity == "note" for finding in old.findings):
                del self.runs[index]
                return


def require_version(triton: ModuleType) -> None:
    """Refuse a Triton that this driver does not know, and Triton's interpreter."""
    numbers = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if not OLDEST_TRITON <= numbers <= NEWEST_TRITON:
        raise DeviceError(
            f"Triton {triton.__version__} is installed; tilescope.triton drives Triton 3.6 to 3.9: "
            "pip install 'tilescope[triton]'."
        )
    if triton.knobs.runtime.interpret:
        raise DeviceError(
            "TRITON_INTERPRET is set, so Triton runs kernels as Python text: unset it to run what Triton compiles."
        )


def device(
    arch: object = DEFAULT_ARCH,
    card: object = None,
    seed: int | None = None,
    strict: bool = True,
    autotune: AutotuneMode = "first",
) -> Device:
    """A device for a with block, in which Triton and Gluon kernels run without a GPU.

    `arch` is what kernels are compiled for, `card` whose properties they see: an H200 for sm_90, a B200 for sm_100. With a
    `seed` asynchronous work ends at random times. With `strict` an error of a launch is raised there. autotune="all" runs
    every valid configuration of an autotuned kernel, "first" the first one.

        with tilescope.triton.device() as device:
            add_kernel[(4,)](x, y, out, 1000, BLOCK=256)
        device.runs[0].findings
    """
    return Device(arch, card, seed, strict, autotune)


def activate(
    arch: object = DEFAULT_ARCH,
    card: object = None,
    seed: int | None = None,
    strict: bool = True,
    autotune: AutotuneMode = "first",
) -> Device:
    """Make a device Triton's driver from now on; its `close` restores the driver before, or the end of the process.

    The arguments are those of `device`. The report is printed to stderr at the end.
    """
    import atexit

    activated = Device(arch, card, seed, strict, autotune)
    activated.activate()
    atexit.register(activated.close)
    return activated
