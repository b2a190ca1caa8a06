"""Triton's tests of ConSan, run by tilescope in place of a card: does it report an error where ConSan does, and only there?

    python consan.py CHECKOUT/python/test/gluon/test_consan.py [--cache FOLDER] [NAME …]

The file must belong to the installed Triton: 3.7.1 has 82 tests. torch may be its build for the CPU. The file is imported as it is. A
launch inside a test is compiled to PTX, for sm_90 or for the architecture that the test requires, and runs on tilescope's machine with
the test's own arguments, three times: in the default order and with two seeds. ConSan's instrumentation stays off. The test's
assertions are then asked twice: do they accept a report of ConSan, do they accept silence? That is what ConSan says. A verdict agrees
if an error of the same kind is reported, or none.
"""

# ruff: noqa: T201  a report is printed

import argparse
import contextlib
import importlib.util
import inspect
import itertools
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import tilescope as ts

ARCHITECTURES = {"sm_90": (9, 0), "sm_100": (10, 0)}  # a test runs for the first one that it does not skip

SEGMENT_BYTES = 2 << 20  # of torch's allocator on a card: five tests read beyond their tensors, and stay inside
SEEDS = (None, 1, 2)  # asynchronous work as late as it may be done, and two random orders

# What ConSan prints, and the rules that say the same of a PTX kernel. An unfinished copy or product is known at PTX by how it must be
# awaited; ConSan names it by the buffer.
SAME_KIND = {
    "has outstanding writes": {"run-race", "run-copy-wait", "run-cp-async", "run-tmem-order"},
    "has outstanding reads": {"run-race", "run-refill", "run-tmem-order"},
    "has outstanding": {"run-race", "run-copy-wait", "run-refill", "run-tmem-order"},
    "async_copy_global_to_shared": {"run-race", "run-cp-async"},
    "async_copy_shared_to_global": {"run-race", "run-store-source"},
    "warpgroup_mma operand read": {"run-race", "run-refill"},
    "Deadlock detected": {"run-hang"},
    "arrive underflow": {"run-launch-failure"},
    "device-side assert": {"run-race", "run-cp-async", "run-refill"},  # the test looks at no message of ConSan's
}


def same_kind(message):
    """The rules of tilescope for a message of ConSan; the longest phrase that occurs in it decides.

    >>> sorted(same_kind("Buffer being accessed has outstanding reads"))
    ['run-race', 'run-refill', 'run-tmem-order']
    """
    phrases = [phrase for phrase in SAME_KIND if phrase in message]
    return SAME_KIND[max(phrases, key=len)] if phrases else set()


@dataclass
class Report:
    """What a test gets from its child process: ConSan's report, or silence; it remembers which messages the test looks for."""

    is_failure: bool
    messages: list = field(default_factory=list)

    @property
    def exc(self):
        return RuntimeError("device-side assert") if self.is_failure else None

    @property
    def driver_stderr_output(self):
        return self

    def __contains__(self, message):
        self.messages.append(message)
        return self.is_failure

    def __eq__(self, other):
        return not self.is_failure and other == ""

    __hash__ = None


@dataclass(frozen=True)
class Case:
    """One test with one choice of its parameters."""

    name: str
    function: object
    arguments: dict
    module: object
    arch: str


class Environment:
    """Stands in for pytest's monkeypatch: tests turn ConSan on with it, which stays off here."""

    def setenv(self, *_):
        """Leave the environment as it is."""


class Launches:
    """Runs each launch of a Triton kernel on tilescope's machine, and collects the findings."""

    def __init__(self, arch, seeds):
        self.arch = arch
        self.seeds = seeds
        self.runs = []

    def launch(self, kernel, *arguments, grid, warmup, **options):
        """Compile a kernel as Triton specializes it for its arguments, and run it."""
        del warmup
        binder = kernel.device_caches[ARCHITECTURES[self.arch]][4]
        bound, specialization, _ = binder(*arguments, debug=False, instrumentation_mode="", **options)
        signature = {}
        constants = {}
        given = []
        for parameter, (type_name, hint) in zip(kernel.params, specialization, strict=True):
            value = bound[parameter.name]
            if parameter.is_constexpr:
                constants[parameter.name] = value
                continue
            signature[parameter.name] = written_type(type_name, hint, value)
            given.append(value)
        for name in signature.keys() | constants.keys():
            options.pop(name, None)
        compiled = ts.Kernel.from_triton(kernel, signature, constants, arch=self.arch, **options)
        extents = tuple(grid(bound) if callable(grid) else grid)
        for seed in self.seeds:
            memory = ts.Memory()
            args = [place_as_torch_does(value, memory) for value in given]
            self.runs.append(compiled.run(extents, args=args, memory=memory, seed=seed, advice="none"))


def place_as_torch_does(value, memory):
    """An argument of a launch; a tensor begins a segment of 2 MiB, as in torch's allocator, so that reads beyond it find memory."""
    if not hasattr(value, "data_ptr"):
        return value
    array = value.numpy()
    segment = np.zeros(-(-array.nbytes // SEGMENT_BYTES) * SEGMENT_BYTES, np.uint8)
    memory.place(segment)
    placed = segment[: array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed


def written_type(type_name, hint, value):
    """A type of a signature as `Kernel.from_triton` takes it, from Triton's specialization of one argument.

    >>> written_type("*fp16", "D", None), written_type("*fp16", "", None), written_type("i32", "D", 64), written_type("constexpr", 1, 1)
    ('*fp16:16', '*fp16:1', 'i32:16', 'i32:1')
    """
    if type_name == "constexpr":
        return "i32:1" if isinstance(value, int) else type_name
    if type_name.startswith("tensordesc"):
        return type_name
    if hint == "D":
        return f"{type_name}:16"
    return f"{type_name}:1" if type_name.startswith("*") else type_name


@contextlib.contextmanager
def without_a_card(arch, launches=None):
    """torch and Triton as on a card of one architecture; tensors stay on the CPU, and launches go to tilescope."""
    import torch
    import triton
    from torch.overrides import TorchFunctionMode
    from triton.backends.compiler import GPUTarget

    class OnCpu(TorchFunctionMode):
        """Make tensors on the CPU where a test asks for the card."""

        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if str(kwargs.get("device", "")).startswith("cuda"):
                kwargs["device"] = "cpu"
            return function(*args, **kwargs)

    major, minor = ARCHITECTURES[arch]

    class Driver:
        """As much of a driver as Triton needs to specialize and compile."""

        def get_current_target(self):
            return GPUTarget("cuda", 10 * major + minor, 32)

        def get_current_device(self):
            return ARCHITECTURES[arch]

        def get_current_stream(self, _device):
            return 0

    jit_function = triton.runtime.JITFunction
    saved = torch.cuda.get_device_capability, jit_function.run, triton.runtime.driver._active
    torch.cuda.get_device_capability = lambda *_: ARCHITECTURES[arch]
    triton.runtime.driver.set_active(Driver())
    if launches is not None:

        def run(kernel, *arguments, **options):  # a function, so that Triton binds the kernel to it
            launches.launch(kernel, *arguments, **options)

        jit_function.run = run
    try:
        with OnCpu():
            yield
    finally:
        torch.cuda.get_device_capability, jit_function.run, triton.runtime.driver._active = saved


def import_tests(path, arch):
    """The test file as a module; its marks say which tests run on this architecture."""
    with without_a_card(arch):
        spec = importlib.util.spec_from_file_location(f"consan_tests_{arch}", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return module


def list_cases(modules):
    """Every test with every choice of its parameters, each for the first architecture that does not skip it."""
    cases = []
    names = [name for name in vars(modules["sm_90"]) if name.startswith("test_")]
    for name in names:
        for arch, module in modules.items():
            marks = getattr(getattr(module, name), "pytestmark", [])
            if any(mark.name == "skipif" and mark.args[0] for mark in marks):
                continue
            choices = [
                [(mark.args[0], value) for value in mark.args[1]] for mark in marks if mark.name == "parametrize"
            ]
            for chosen in itertools.product(*choices):
                label = "-".join(str(value) for _, value in chosen)
                function = getattr(module, name)
                cases.append(Case(f"{name}[{label}]" if label else name, function, dict(chosen), module, arch))
            break
    return cases


def call_test(case, run_in_process):
    """Call a test with everything that pytest would give it; `run_in_process` answers for its child process."""
    given = {"device": "cuda", "run_wrapper": True, "monkeypatch": Environment()} | case.arguments
    case.module.run_in_process = run_in_process
    case.function(**{name: given[name] for name in inspect.signature(case.function).parameters})


def is_accepted(case, report):
    """Whether the assertions of a test accept a report."""
    try:
        call_test(case, lambda *_: report)
    except AssertionError:
        return False
    return True


def ask_consan(case):
    """The messages that ConSan reports for a test, as its assertions say; none where it must be silent; None for a skipped test."""
    import pytest

    failure = Report(is_failure=True)
    try:
        accepts_failure = is_accepted(case, failure)
        accepts_silence = is_accepted(case, Report(is_failure=False))
    except pytest.skip.Exception:
        return None
    return (failure.messages or ["device-side assert"]) if accepts_failure and not accepts_silence else []


def run_case(case, seeds=SEEDS):
    """The runs of the kernels that a test launches, one for each seed."""
    launches = Launches(case.arch, seeds)

    def run_here(function, arguments=(), _keywords=None):
        function(*arguments)
        return Report(is_failure=False)

    # A skip inside the test concerns the card; the kernel is behind it, so it runs without.
    given = {"device": "cuda", "run_wrapper": False, "monkeypatch": Environment()} | case.arguments
    case.module.run_in_process = run_here
    with without_a_card(case.arch, launches), contextlib.suppress(AssertionError):
        case.function(**{name: given[name] for name in inspect.signature(case.function).parameters})
    return launches.runs


def judge(messages, runs):
    """(whether tilescope agrees with ConSan, the rules of its errors)."""
    errors = sorted({finding.rule for run in runs for finding in run.findings if finding.severity == "error"})
    hangs = any(run.outcome == "hang" for run in runs)
    if not runs:
        return False, ["no kernel was launched"]
    if not messages:
        return not errors and not hangs, errors
    wanted = set().union(*(same_kind(message) for message in messages))
    return bool(wanted & set(errors)), errors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, help="python/test/gluon/test_consan.py of a checkout of Triton")
    parser.add_argument("--cache", type=Path, help="folder in which Triton keeps what it compiled")
    parser.add_argument("--findings", action="store_true", help="print the errors where the two differ")
    parser.add_argument("names", nargs="*", help="only tests whose name has one of these")
    asked = parser.parse_intermixed_args()
    if asked.cache is not None:
        os.environ["TRITON_CACHE_DIR"] = str(asked.cache)
    modules = {arch: import_tests(asked.path, arch) for arch in ARCHITECTURES}
    counts = {"as ConSan says": 0, "differs": 0, "skipped there": 0}
    for case in list_cases(modules):
        if asked.names and not any(part in case.name for part in asked.names):
            continue
        start = time.monotonic()
        messages = ask_consan(case)
        if messages is None:
            counts["skipped there"] += 1
            print(f"skipped there   {case.arch:6} {case.name}", flush=True)
            continue
        try:
            runs = run_case(case)
            agrees, errors = judge(messages, runs)
        except Exception as error:  # noqa: BLE001  a test that cannot be run is a row too
            runs, agrees, errors = [], False, [f"{type(error).__name__}: {str(error)[:300]}"]
        verdict = "as ConSan says" if agrees else "differs"
        counts[verdict] += 1
        expected = "error" if messages else "none"
        found = ", ".join(errors) or "none"
        seconds = time.monotonic() - start
        print(f"{verdict:15} {case.arch:6} {case.name}: ConSan {expected}, here {found} ({seconds:.1f} s)", flush=True)
        if asked.findings and not agrees:
            for run in runs:
                print(f"    outcome {run.outcome}")
                for finding in run.findings:
                    print(f"    {finding.severity}: {finding}")
    print()
    for verdict, count in counts.items():
        print(f"{verdict}: {count} of {sum(counts.values())}")


if __name__ == "__main__":
    main()
