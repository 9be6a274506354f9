"""Lets the tests of this folder import its ``tiny_module``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
