"""The pytest plugin: kernels checked in tests, without a GPU.

    def test_softmax(tilescope_run):
        out = np.zeros((64, 128), np.float32)
        run = tilescope_run(kernel, grid=64, block=128, args=[out, rows])      fails where the run is not clean
        tilescope.testing.assert_equal_to(run, 0, softmax(rows), rtol=1e-5)

Errors and warnings about the result fail. Notes, and warnings about performance, do not: `assert_conflict_free` is for these.
`allow=["run-race@12"]` accepts what somebody has judged, `warnings=False` all warnings of a run, and the setting
`tilescope_strict = false`, or --tilescope-lenient, those of all runs. `warnings=True` fails for any warning.

    pytest --tilescope-seeds 4      runs each of these tests five times: asynchronous work as late as its wait allows, and
                                    then at four kinds of random times

    pytest --tilescope              runs Triton programs and their tests without a GPU: every launch is checked, an error fails
    pytest --tilescope=sm_100       the test that made it (`tilescope.triton`); torch's "cuda" is the CPU

    @pytest.mark.tilescope(findings=["run-race"])      a test of a kernel that is wrong: it fails without this finding

pytest loads this module wherever tilescope is installed; no other module of tilescope is loaded until a test uses a
fixture, or the command line has --tilescope.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from tilescope.machine.kernel import Kernel
    from tilescope.machine.report.run import KernelRun
    from tilescope.triton.host_device import Device

SEED_FIXTURE = "tilescope_seed"
TRITON_OPTION = "--tilescope"
TRITON_MARK = "tilescope"
DEFAULT_ARCH = "sm_90"
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120")
_TRITON_DEVICE: pytest.StashKey[Device] = pytest.StashKey()


class CleanRun(Protocol):
    """The fixture `tilescope_run`: Kernel.run with the test's seed, asserted to be clean."""

    def __call__(
        self,
        kernel: Kernel,
        grid: int | Sequence[int],
        block: int | Sequence[int] | None = None,
        args: Sequence[object] = (),
        *,
        warnings: bool | None = None,
        allow: Sequence[str] = (),
        **options: Any,
    ) -> KernelRun:
        """Run the kernel; `warnings` selects whether warnings fail, None: those about the result, as the project is configured."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --tilescope, --tilescope-seeds, --tilescope-lenient and the setting tilescope_strict."""
    group = parser.getgroup("tilescope", "kernels without a GPU")
    group.addoption(
        TRITON_OPTION,
        action="store_const",
        const=DEFAULT_ARCH,
        dest="tilescope_arch",
        help="run Triton kernels of all tests without a GPU, and check every launch; "
        f"--tilescope=ARCH compiles for {', '.join(ARCHITECTURES)} (default: {DEFAULT_ARCH})",
    )
    for arch in ARCHITECTURES:  # options without a value: argparse would take a test's file for one
        group.addoption(
            f"{TRITON_OPTION}={arch}",
            action="store_const",
            const=arch,
            dest="tilescope_arch",
            help=argparse.SUPPRESS,
        )
    group.addoption(
        "--tilescope-seeds",
        type=int,
        default=0,
        metavar="N",
        help="run tests that use tilescope_run N more times, with asynchronous work at random times",
    )
    group.addoption(
        "--tilescope-lenient",
        action="store_true",
        help="let runs of tilescope_run pass with warnings; without it warnings fail",
    )
    parser.addini("tilescope_strict", "whether warnings of tilescope_run fail", type="bool", default=True)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Replace Triton's driver, if --tilescope is set, before a conftest.py tests whether torch has a card."""
    _activate_device(early_config, early_config.known_args_namespace.tilescope_arch)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark; a plugin that a conftest.py loads activates the device here."""
    config.addinivalue_line(
        "markers",
        f"{TRITON_MARK}(findings): rules that launches of this test break, such as run-race or run-race@mm.py:12",
    )
    _activate_device(config, config.getoption("tilescope_arch"))


def _activate_device(config: pytest.Config, arch: str | None) -> None:
    if arch is None or _TRITON_DEVICE in config.stash:
        return
    from tilescope.errors import DeviceError
    from tilescope.triton.host_device import Device

    device = Device(arch, reports=False)
    try:
        device.activate()
    except DeviceError as error:
        raise pytest.UsageError(f"{TRITON_OPTION}: {error}") from None
    config.stash[_TRITON_DEVICE] = device


def pytest_unconfigure(config: pytest.Config) -> None:
    """Restore the driver."""
    device = config.stash.get(_TRITON_DEVICE, None)
    if device is not None:
        device.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test under --tilescope, and fail it for an error that it passed over, or an expected finding that is missing."""
    device = item.config.stash.get(_TRITON_DEVICE, None)
    if device is None:
        return (yield)
    mark = item.get_closest_marker(TRITON_MARK)
    expected = _read_expected(mark)
    device.runs = []
    device.strict = mark is None
    try:
        result = yield
    finally:
        device.strict = True
    _check_findings(device.runs, expected)
    return result


def _read_expected(mark: pytest.Mark | None) -> tuple[str, ...]:
    if mark is None:
        return ()
    expected = mark.kwargs.get("findings", ())
    if mark.args or mark.kwargs.keys() - {"findings"} or isinstance(expected, str):
        raise pytest.UsageError(f'write @pytest.mark.{TRITON_MARK}(findings=["run-race"])')
    return tuple(expected)


def _check_findings(runs: Sequence[KernelRun], expected: Sequence[str]) -> None:
    """Fail for unexpected errors, and for expectations without a finding."""
    __tracebackhide__ = True
    from tilescope.machine.report.finding_text import format_finding
    from tilescope.machine.report.verdict import read_acceptance

    entries = [read_acceptance(entry) for entry in expected]
    findings = [(run, finding) for run in runs for finding in run.findings]
    lines = []
    for run, finding in findings:
        if finding.severity == "error" and not any(entry.matches(finding) for entry in entries):
            lines += [*format_finding(finding), f"  launched at: {run.call_site}"]
    lines += [
        f"no launch has the finding {entry.text}, which this test expects"
        for entry in entries
        if not any(entry.matches(finding) for _, finding in findings)
    ]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the launches of all tests, and their findings by kernel."""
    device = config.stash.get(_TRITON_DEVICE, None)
    if device is None or config.getoption("no_summary"):
        return
    report = device.report()
    if report.launches:
        terminalreporter.section("Triton kernels without a GPU (tilescope)")
        for line in report.lines():
            terminalreporter.write_line(line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that uses a seed one case for every seed."""
    seeds: int = metafunc.config.getoption("--tilescope-seeds")
    if seeds > 0 and SEED_FIXTURE in metafunc.fixturenames:
        cases = [pytest.param(None, id="late"), *(pytest.param(seed, id=f"seed{seed}") for seed in range(seeds))]
        metafunc.parametrize(SEED_FIXTURE, cases)


@pytest.fixture
def tilescope_seed() -> int | None:
    """The seed of this case, for Kernel.run; None: asynchronous work as late as its wait allows."""
    return None


@pytest.fixture
def tilescope_run(tilescope_seed: int | None, pytestconfig: pytest.Config) -> CleanRun:
    """Run a kernel with the seed of this case, and assert that nothing is wrong with it: `Kernel.run`, checked."""
    from tilescope.machine.report.run import is_about_result
    from tilescope.testing import assert_clean

    is_strict = bool(pytestconfig.getini("tilescope_strict")) and not pytestconfig.getoption("--tilescope-lenient")

    def run_clean(
        kernel: Kernel,
        grid: int | Sequence[int],
        block: int | Sequence[int] | None = None,
        args: Sequence[object] = (),
        *,
        warnings: bool | None = None,
        allow: Sequence[str] = (),
        **options: Any,
    ) -> KernelRun:
        __tracebackhide__ = True
        run = kernel.run(grid, block, args, **{"seed": tilescope_seed} | options)
        if warnings is None:
            costs = {finding.rule for finding in run.findings if not is_about_result(finding)}
            assert_clean(run, warnings=is_strict, allow=[*allow, *costs])
        else:
            assert_clean(run, warnings=warnings, allow=allow)
        return run

    return run_clean
