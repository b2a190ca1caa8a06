"""Tests here share role programs that are written by hand."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
