"""Lets the tests of this folder import its cases; all but the replacement of subgraphs need TVM."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))

NEED_TVM = [
    f"test_{name}.py"
    for name in ("custom_kernels", "custom_errors", "custom_relay", "custom_quantize", "wave_attention")
]
collect_ignore_glob = [] if importlib.util.find_spec("tvm") else NEED_TVM
