"""Runs the examples of one page in the current folder: ``python run_page.py PAGE [--slow] [--rewrite]``.

All blocks of a page share one namespace and one folder, as a reader's would. ``prepare/<page>.py`` beside this file is run first:
it makes what the page takes for granted. ``--rewrite`` puts what was printed into the page's ``output`` blocks.
In an ``output`` block ``...`` stands for any text, and a line of ``...`` for any lines.
"""

from __future__ import annotations

import contextlib
import difflib
import glob
import io
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from page_blocks import Block, blocks, with_output

PREPARE = Path(__file__).parent / "prepare"
sys.path.insert(1, str(PREPARE))
ANY_LINES = "..."  # left to the author: which lines to show cannot be told from what is printed
DIGITS_OF_TIME = re.compile(r"\b\d+(\.\d+)? s\b")


def run_page(path: Path, slow: bool, rewrite: bool) -> str | None:
    """The first example that fails, as text; None where all are as written."""
    text = path.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    before = PREPARE / f"{path.stem}.py"
    if before.is_file():
        exec(compile(before.read_text(encoding="utf-8"), str(before), "exec", dont_inherit=True), names)
    printed = ""
    for block in list(blocks(text)):
        if block.mark == "slow" and not slow:
            return None
        if block.is_run:
            printed = run_block(block, path, names)
        elif block.is_output and not is_as_written(block.text, printed):
            if not rewrite or ANY_LINES in block.text.splitlines():
                return difference(block, path, printed)
            text = with_output(text, moved(text, block), tidy(printed))
            path.write_text(text, encoding="utf-8")
    return None


def moved(text: str, block: Block) -> Block:
    """The block where it stands in a text whose earlier blocks have got other lengths."""
    return next(each for each in blocks(text) if (each.mark, each.text) == (block.mark, block.text))


def run_block(block: Block, path: Path, names: dict[str, Any]) -> str:
    """What the block prints."""
    screen = io.StringIO()
    with contextlib.redirect_stdout(screen):
        if block.language == "sh":
            run_commands(block, path)
        else:
            source = "\n" * (block.line - 1) + block.text  # so that a traceback names the line of the page
            exec(compile(source, str(path), "exec", dont_inherit=True), names)
    return screen.getvalue()


def run_commands(block: Block, path: Path) -> None:
    given = list(commands(block.text))
    for number, (line, arguments) in enumerate(given):
        wanted = block.exit_code if number == len(given) - 1 else 0
        code = epu([found for each in arguments for found in sorted(glob.glob(each)) or [each]])
        if code != wanted:
            raise SystemExit(
                f"{path.name}:{block.line + line}: exit code {code}, not {wanted}: epu {shlex.join(arguments)}"
            )


def commands(text: str) -> Iterator[tuple[int, list[str]]]:
    """Line and arguments of each ``epu`` command; comments and what follows a pipe left out."""
    joined = re.sub(r"\\\n", "  ", text)
    for number, line in enumerate(joined.splitlines()):
        words = shlex.split(line, comments=True)
        words = words[: words.index("|")] if "|" in words else words
        if words[:1] == ["epu"]:
            yield number, words[1:]


def epu(arguments: list[str]) -> int:
    """Exit code of a command, run in this process; its errors are on the screen."""
    from epu.cli import main

    try:
        main(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def tidy(printed: str) -> str:
    """Without trailing blanks and empty lines at the end; seconds are another each time."""
    lines = [line.rstrip() for line in printed.rstrip().splitlines()]
    return "".join(f"{DIGITS_OF_TIME.sub('... s', line)}\n" for line in lines)


def is_as_written(wanted: str, printed: str) -> bool:
    pattern = re.escape(tidy(wanted)).replace(r"\.\.\.", ".*")
    return re.fullmatch(pattern, tidy(printed), re.DOTALL) is not None


def difference(block: Block, path: Path, printed: str) -> str:
    lines = difflib.unified_diff(block.text.splitlines(), tidy(printed).splitlines(), "page", "printed", lineterm="")
    return f"{path.name}:{block.line}: the output is another (--rewrite-outputs writes it):\n" + "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_page(Path(sys.argv[1]), "--slow" in sys.argv, "--rewrite" in sys.argv))
