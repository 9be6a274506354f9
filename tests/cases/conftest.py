"""Makes ``case_models`` importable: pytest's importlib mode leaves the folder out of the path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
