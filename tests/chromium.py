"""A headless Chromium that opens files and says what happened: its DevTools protocol over two pipes, no port, no library."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TIMEOUT_S = 30.0
"""For an answer; Chromium takes a second to start on a quiet machine."""

READS, WRITES = 3, 4
"""File descriptors at which Chromium reads commands and writes answers (--remote-debugging-pipe)."""


def program() -> str | None:
    """Its path, or None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """One tab; what the page asked for and complained of is kept."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer, self._last, self._session = b"", 0, None
        self.events: list[dict[str, Any]] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def open(self, file: Path) -> None:
        """Returns when it has loaded."""
        self.events.clear()
        self._ask("Page.navigate", url=file.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._read()

    def run(self, script: str) -> Any:
        """The script's value, as JSON has it; AssertionError where it throws."""
        answer = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def point_at(self, selector: str) -> None:
        """Moves the mouse to the middle of the first element it matches, and scrolls only where that is out of sight."""
        x, y = self.run(
            f"(e => {{ e.scrollIntoView({{block: 'nearest'}}); const b = e.getBoundingClientRect();"
            f" return [b.left + b.width / 2, b.top + b.height / 2]; }})(document.querySelector({json.dumps(selector)}))"
        )
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        self._ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        """`Tab`, `ArrowRight`, ..."""
        for kind in ("keyDown", "keyUp"):
            self._ask("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def shape(self, width: int, height: int = 900, scheme: str = "light", medium: str = "screen") -> None:
        """The window's size, and what the system prefers."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._ask("Emulation.setEmulatedMedia", media=medium, features=[feature])

    def picture(self, *, beyond: bool = True) -> str:
        """The page as PNG, base64: all of it, or without `beyond` what the window shows."""
        return str(self._ask("Page.captureScreenshot", captureBeyondViewport=beyond)["data"])

    def to_paper(self) -> None:
        """Prints the page; returns after its events beforeprint and afterprint."""
        self.run(
            "void (window.ended = new Promise(done => addEventListener('afterprint', () => setTimeout(done), {once: true})))"
        )
        self._ask("Page.printToPDF")
        self.run("window.ended")

    @property
    def requests(self) -> list[str]:
        """Addresses asked for since `open`, the page's own first."""
        return [event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"]

    @property
    def complaints(self) -> list[str]:
        """What the console, exceptions and the browser's log hold."""
        self.run("0")  # what came before this answer has been read then
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event["method"] in kinds]

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._last, "method": method, "params": parameters, **session}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])

    def _read(self) -> dict[str, Any]:
        """The next message; an event is kept."""
        until = time.monotonic() + TIMEOUT_S
        while b"\0" not in self._buffer:
            if not select.select([self._answers], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium did not answer for {TIMEOUT_S} s")
            data = os.read(self._answers, 1 << 20)
            if not data:
                raise ConnectionError("Chromium has ended")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message


@contextlib.contextmanager
def chromium(home: Path) -> Iterator[Page]:
    """Started with its files in `home`, and ended with all its processes."""
    path = program()
    assert path, "no Chromium: ask program() first"
    to_browser, from_browser = _pipe(), _pipe()
    arguments = ["--headless", "--remote-debugging-pipe", f"--user-data-dir={home}", "--no-first-run", "--disable-gpu"]
    arguments += ["--disable-background-networking", "--disable-dev-shm-usage", "--disable-extensions", "--hide-scrollbars"]
    arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
    process = subprocess.Popen(
        [
            "bash",
            "-c",
            f'exec "${{@:2}}" {READS}<&"$0" {WRITES}>&"$1"',
            str(to_browser[0]),
            str(from_browser[1]),
            path,
            *arguments,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(home)},
        start_new_session=True,
        pass_fds=(to_browser[0], from_browser[1]),
    )
    try:
        os.close(to_browser[0])
        os.close(from_browser[1])
        yield Page(to_browser[1], from_browser[0])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(to_browser[1])
        os.close(from_browser[0])


def _pipe() -> tuple[int, int]:
    """Two ends that lie above the descriptors Chromium uses."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
