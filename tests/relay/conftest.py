"""The tests of the Relay door need TVM; their shared models and runners lie beside them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

collect_ignore_glob = [] if importlib.util.find_spec("tvm") else ["test_*.py"]
