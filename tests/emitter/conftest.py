"""The plans that are emitted, and the compilers of the CUDA wheels, are modules beside the tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
