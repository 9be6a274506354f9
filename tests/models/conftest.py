"""Lets the tests of this folder import its ``small_transformer``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
