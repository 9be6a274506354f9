"""Headless Chromium over its DevTools protocol: open a page, run scripts in it, hear its console, take a picture."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

import websocket

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60.0
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)


def chromium() -> str | None:
    """The browser's program: ``EPU_CHROMIUM``, or the first found on the path."""
    return os.environ.get("EPU_CHROMIUM") or next((path for path in map(shutil.which, NAMES) if path), None)


class Page:
    """One tab; ``messages`` are what the console said and the exceptions that nobody caught."""

    def __init__(self, program: str, profile: Path, width: int = 1400, height: int = 1000) -> None:
        self.messages: list[str] = []
        self.requests: list[str] = []
        self._number = 0
        command = [program, *OPTIONS, f"--window-size={width},{height}", f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port = self._port(profile / "DevToolsActivePort")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=SECONDS) as answer:
            targets = json.load(answer)
        address = next(each["webSocketDebuggerUrl"] for each in targets if each["type"] == "page")
        self._socket = websocket.create_connection(address, timeout=SECONDS)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _port(self, file: Path) -> str:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if file.exists() and (lines := file.read_text().splitlines()):
                return lines[0]
            if self._process.poll() is not None:
                raise RuntimeError(f"Chromium ended with code {self._process.returncode}")
            time.sleep(0.05)
        raise TimeoutError("Chromium opened no DevTools port")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol and its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._hear(answer)

    def _hear(self, event: dict[str, Any]) -> None:
        method, about = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.messages.append(f"{about['type']}: {[each.get('value') for each in about['args']]}")
        elif method == "Runtime.exceptionThrown":
            self.messages.append(json.dumps(about["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.messages.append(f"{about['entry']['level']}: {about['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])

    def open(self, path: Path) -> None:
        """Load a file and wait until it is loaded; a load event alone may be that of the page before."""
        address = path.as_uri()
        self.call("Page.navigate", url=address)
        end = time.monotonic() + SECONDS
        while not self.run(f"document.readyState === 'complete' && location.href === {json.dumps(address)}"):
            if time.monotonic() > end:
                raise TimeoutError(f"{address} did not load")
            time.sleep(0.02)

    def run(self, script: str) -> Any:
        """The value of an expression in the page; what it throws is raised here."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def settle(self) -> None:
        """Wait for the frames that resizes and choices ask for."""
        self.run(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 60))))"
        )

    def picture(self, path: Path) -> None:
        """The whole page as a PNG file."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
