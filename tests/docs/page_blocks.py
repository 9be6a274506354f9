"""The examples of a page: fenced blocks of Markdown, and what the comment before a block says about it.

``python`` blocks are run, and of ``sh`` blocks the lines that begin with ``epu``. On the line before a block may stand:
``<!-- skip: why -->`` it is not run; ``<!-- slow -->`` it and what follows on the page is run by ``make test-slow`` only;
``<!-- exit 1 -->`` the last command of it ends so; ``<!-- output -->`` of a ``text`` block: what the block before it printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

FENCE = re.compile(r"```(\w*)\s*$")
MARK = re.compile(r"<!-- (skip: .+|slow|exit \d+|output) -->$")


@dataclass(frozen=True)
class Block:
    """``line``: number of the first line of ``text`` in the page, from 1. ``mark``: what the comment before it says."""

    language: str
    mark: str
    line: int
    text: str

    @property
    def is_run(self) -> bool:
        return self.language in ("python", "sh") and not self.mark.startswith("skip")

    @property
    def is_output(self) -> bool:
        return self.mark == "output"

    @property
    def exit_code(self) -> int:
        return int(self.mark.removeprefix("exit ")) if self.mark.startswith("exit ") else 0


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page in order. Raises ValueError for one that is not closed."""
    lines = page.splitlines()
    number = 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        number += 1
        if not fence:
            continue
        end = next((at for at in count(number) if at >= len(lines) or lines[at].rstrip() == "```"), len(lines))
        if end >= len(lines):
            raise ValueError(f"line {number}: the block is not closed")
        marked = MARK.match(lines[number - 2].strip()) if number >= 2 else None
        text = "".join(f"{line}\n" for line in lines[number:end])
        yield Block(fence[1], marked[1] if marked else "", number + 1, text)
        number = end + 1


def with_output(page: str, block: Block, text: str) -> str:
    """The page with another text in a block."""
    lines = page.splitlines(keepends=True)
    end = block.line - 1 + len(block.text.splitlines())
    return "".join([*lines[: block.line - 1], text, *lines[end:]])
