"""The site: it builds without a warning, its links lead somewhere, and it asks the network for nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from epu.cli.group import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """Links, ids, and what a browser fetches by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in FETCHED and FETCHED[tag] in given:
            self.fetched.append(given[FETCHED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: make venv")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def test_every_page_is_built(site: Path) -> None:
    written = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert written <= {path.stem for path in site.glob("*.html")}


def broken(pages: dict[Path, Page]) -> Iterator[str]:
    for path, page in pages.items():
        if path.name == "404.html":  # its links are those of the server's root
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{path.name}: {link}"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                yield f"{path.name}: {link} (no such place)"


def test_links_lead_somewhere(pages: dict[Path, Page]) -> None:
    assert len(pages) > 15
    assert list(broken(pages)) == []


def test_nothing_is_fetched_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    outside = [f"{path.name}: {address}" for path, page in pages.items() for address in page.fetched if "//" in address]
    sheets = [
        path for path in site.rglob("*.css") if re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", path.read_text())
    ]
    assert outside + [str(path) for path in sheets] == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    for name, body in (
        ("a", '<a href="b.html#there"></a><a href="b.html#gone"></a><a href="c.html"></a>'),
        ("b", '<p id="there">'),
    ):
        (tmp_path / f"{name}.html").write_text(body)
    pages = {path: Page(path.read_text()) for path in sorted(tmp_path.glob("*.html"))}
    assert list(broken(pages)) == ["a.html: b.html#gone (no such place)", "a.html: c.html"]


MADE = {"reproduce.py"}  # files that are named in pages and made by a command


def test_files_named_in_pages_exist() -> None:
    """Files of code between backticks, with or without their folder."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    missing = [
        f"{page.name}: {name}"
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
        for spans in re.findall(r"`([\w /*.]+\.py)`", page.read_text(encoding="utf-8"))
        for name in spans.split()
        if name.endswith(".py") and name not in MADE and not any(Path(path).match(name) for path in listed)
    ]
    assert missing == []


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^()#:]+)(?:#[\w-]+)?\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_every_command_is_in_the_index() -> None:
    named = re.findall(r"(?m)^\| `epu ([a-z]+)` \|", (ROOT / "docs/index.md").read_text(encoding="utf-8"))
    assert sorted(named) == sorted(COMMANDS)
