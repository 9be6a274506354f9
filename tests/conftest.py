"""Settings shared by all tests: hypothesis draws the same examples each time and has no deadline.

``EPU_EXPLORE=1`` draws new examples instead, to search for failures.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeat", derandomize=True, deadline=None, database=None, print_blob=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("explore" if os.environ.get("EPU_EXPLORE") == "1" else "repeat")
