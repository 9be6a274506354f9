"""Lets the tests of this folder import ``form_models`` and ``form_answers``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
