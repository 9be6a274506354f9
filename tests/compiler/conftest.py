"""Makes ``attention`` and the kernels' ``one_node`` importable: pytest's importlib mode leaves the folders out of the path."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "kernels")]
