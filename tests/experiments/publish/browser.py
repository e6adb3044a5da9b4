"""A headless browser for tests, driven over a pipe: it opens files, runs scripts, takes pictures, and prints.

Chromium reads the commands of its DevTools protocol from file descriptor 3 and answers on 4, each message JSON with a
null byte behind it. No host name resolves, and each request that the page makes is written down.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from experiments.publish.report import colours

NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)
_PATIENCE_S = 60  # for one answer, on a machine that does other work too


# Text on its ground: each pair of colours that is in view, with the first text that has it.
PAIRS = """(() => {
    const found = {};
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const element = node.parentElement;
        if (!node.data.trim() || element.closest("svg, script, .unseen, .skip") || !element.checkVisibility()) continue;
        let under = element;
        while (under && getComputedStyle(under).backgroundColor === "rgba(0, 0, 0, 0)") under = under.parentElement;
        const pair = [getComputedStyle(element).color, getComputedStyle(under ?? document.body).backgroundColor];
        found[pair.join(" on ")] ??= node.data.trim().slice(0, 40);
    }
    return found;
})()"""


# The same of the texts in pictures, on the latest rectangle that was painted under the middle of each.
PAIRS_IN_PICTURES = r"""(() => {
    const found = {}, paper = getComputedStyle(document.body).backgroundColor;
    for (const picture of document.querySelectorAll("main svg")) {
        const painted = [];
        for (const element of picture.querySelectorAll("path:not(defs *), text")) {
            const { left, right, top, bottom } = element.getBoundingClientRect(), { fill } = getComputedStyle(element);
            if (fill === "none" || left === right) continue;
            if (element.localName === "text") {
                const x = (left + right) / 2, y = (top + bottom) / 2;
                const under = painted.findLast(([box]) => box[0] < x && x < box[1] && box[2] < y && y < box[3]);
                found[`${fill} on ${under ? under[1] : paper}`] ??= element.textContent.trim().slice(0, 40);
            } else if (/^M[^ML]+(L[^ML]+){3,4}$/.test(element.getAttribute("d"))) {
                painted.push([[left, right, top, bottom], fill]);
            }
        }
    }
    return found;
})()"""


def find() -> str | None:
    """The browser's path, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


needed = pytest.mark.skipif(
    find() is None,
    reason=f"no browser here (looked for {', '.join(NAMES)}): apt-get install chromium",
)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours as a page computes them, `rgb(r, g, b)`: 1 to 21."""
    return colours.contrast(
        *("#{:02x}{:02x}{:02x}".format(*map(int, re.findall(r"\d+", text))) for text in (one, other))
    )


def unreadable(pairs: dict[str, str]) -> list[str]:
    """Which of `PAIRS` have too little contrast to be read."""
    ratios = {pair: contrast(*pair.split(" on ")) for pair in pairs}
    return [f"{ratio:.2f}: {pair}: {pairs[pair]}" for pair, ratio in ratios.items() if ratio < 4.5]


class Page:
    """One tab. `problems` holds what the console complained about, `requests` each address that was asked for."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers, self._buffer, self._last = commands, answers, b"", 0
        self._session: str | None = None
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def open(self, path: Path, width: int, height: int = 900, dark: bool = False) -> None:
        """Load a file at a width in CSS pixels, for a reader whose system is light or dark."""
        self.size(width, height)
        self.prefer(dark)
        self._loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        self._wait(lambda: self._loaded)

    def size(self, width: int, height: int = 900) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, dark: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, script: str) -> object:
        """The value of an expression in the page. Raises AssertionError with what it threw."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """A key as a reader presses it, by its name and its number: Tab is 9, Enter 13."""
        about = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def picture(self) -> bytes:
        """A PNG of what is in view."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def pdf(self) -> bytes:
        """The page as it prints on A4."""
        done = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=True)
        return base64.b64decode(done["data"])

    def call(self, method: str, **parameters: object) -> dict:
        """One command of the protocol and its result. Raises AssertionError where the browser refuses it."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        answer: list[dict] = []
        self._wait(lambda: bool(answer), answer)
        assert "error" not in answer[0], f"{method}: {answer[0].get('error')}"
        return answer[0]["result"]

    def _wait(self, done, answer: list[dict] | None = None) -> None:
        end = time.monotonic() + _PATIENCE_S
        while not done():
            message = self._receive(end)
            if message.get("id") == self._last and answer is not None:
                answer.append(message)
            self._note(message)

    def _receive(self, end: float) -> dict:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._answers, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, message: dict) -> None:
        about = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(about["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if about["type"] in ("error", "warning", "assert"):
                self.problems.append(json.dumps(about["args"]))
            case "Log.entryAdded" if about["entry"]["level"] in ("error", "warning"):
                self.problems.append(about["entry"]["text"])


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A browser with an empty profile in `folder`, and its page."""
    theirs_in, commands = os.pipe()
    answers, theirs_out = os.pipe()
    # Away from 3 and 4, so that placing one there closes none of the others.
    high_in, high_out = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 100) for end in (theirs_in, theirs_out))
    os.close(theirs_in)
    os.close(theirs_out)
    process = os.posix_spawn(
        find(),
        [find(), *_FLAGS, f"--user-data-dir={folder}"],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, high_in, 3),
            (os.POSIX_SPAWN_DUP2, high_out, 4),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ],
        setpgroup=0,
    )
    os.close(high_in)
    os.close(high_out)
    try:
        yield Page(commands, answers)
    finally:
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(commands)
        os.close(answers)
