"""Modules beside the tests can be imported by name, and the compilers of the emitter's tests too."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "emitter")]
