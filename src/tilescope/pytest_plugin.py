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

pytest loads this module wherever tilescope is installed; nothing else of tilescope is loaded until a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from tilescope.machine.kernel import Kernel
    from tilescope.machine.report.run import KernelRun

SEED_FIXTURE = "tilescope_seed"


class CleanRun(Protocol):
    """What the fixture `tilescope_run` is: Kernel.run with the test's seed, asserted to be clean."""

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
        """Run the kernel; `warnings` says whether warnings fail, None: those about the result, as the project is set."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --tilescope-seeds, --tilescope-lenient and the setting tilescope_strict."""
    group = parser.getgroup("tilescope", "kernels without a GPU")
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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that asks for a seed one case for every seed."""
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
