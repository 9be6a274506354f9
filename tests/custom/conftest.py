"""Lets the tests of this folder import its cases; all but the replacement of subgraphs need TVM."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))

NEED_TVM = ["test_custom_kernels.py", "test_custom_errors.py", "test_custom_relay.py", "test_wave_attention.py"]
collect_ignore_glob = [] if importlib.util.find_spec("tvm") else NEED_TVM
