"""The program of attention on a card: right for random shapes, and without a race."""

import random
import shutil
import subprocess

import pytest
from emitter_toolchain import link

import tilescope as ts

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("card")]
NAMES = ("attention-forward-64", "attention-forward-64-causal", "attention-forward-128", "attention-forward-128-causal")
TOOLS = ("memcheck", "racecheck", "synccheck")


@pytest.fixture(scope="module", params=NAMES)
def program(request, tmp_path_factory):
    """The program of one kernel, compiled."""
    return link(ts.emit(ts.plan_kernel(request.param), "cuda"), "sm_90a", tmp_path_factory.mktemp(request.param))


def random_shape(seed):
    """Batches, heads, heads of K and V, queries and keys: heads share keys, lengths are odd, queries may exceed keys."""
    draw = random.Random(seed)
    kv_heads = draw.choice((1, 2, 3))
    return [
        draw.randint(1, 3),
        kv_heads * draw.choice((1, 2, 4)),
        kv_heads,
        draw.randint(1, 1500),
        draw.randint(1, 1800),
    ]


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("seed", range(25))
def test_random_shapes_are_exact(program, seed):
    shape = random_shape(seed)
    done = run(program, *shape)
    assert done.returncode == 0, (shape, done.stdout, done.stderr)


def test_a_spoiled_result_is_noticed(program):
    assert run(program, 1, 2, 2, 256, 256, "--spoil").returncode != 0


@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="needs compute-sanitizer")
@pytest.mark.parametrize("tool", TOOLS)
def test_sanitizer_finds_nothing(program, tool):
    done = run("compute-sanitizer", "--tool", tool, "--error-exitcode", 9, program, 1, 2, 1, 300, 400)
    assert done.returncode == 0, done.stdout[-2000:]
