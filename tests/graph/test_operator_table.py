"""The table of operators."""

from __future__ import annotations

import pytest

from epu.operators import OPERATORS, table


def test_two_rows_of_one_name_are_refused() -> None:
    row = OPERATORS["Add"]
    with pytest.raises(AssertionError, match="two rows for operator Add"):
        table([row, row])
