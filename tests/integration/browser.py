"""A headless Chromium, driven over its debugging pipe: what a page asks for, complains about and shows."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip


def chromium() -> str:
    """Return the program; the tests of pages fail without it, as .ci/run installs it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found is not None, "no Chromium here: apt-get install chromium"
    return found


class Browser:
    """One page. Messages go over two pipes, each one JSON object that ends with a zero byte.

    See the Chrome DevTools Protocol for the methods and events.
    """

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._buffer, self._number = write, read, b"", 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method and return its result; events that come meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive(30.0)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, page: Path, *, width: int, height: int = 900) -> None:
        """Show a file in a window of this size, and wait until it has loaded and a moment longer."""
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=page.resolve().as_uri())
        deadline = time.monotonic() + 30
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            assert time.monotonic() < deadline, "the page was not loaded within 30 s"
            self.events.append(self._receive(30.0))
        time.sleep(0.3)
        self.evaluate("1")  # takes what has come since

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, *, x: float, y: float, width: float, height: float) -> bytes:
        """Return a part of the page as PNG, also what is below the window."""
        clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
        answer = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    def requests(self) -> list[str]:
        """Return the addresses that the page asked for."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def complaints(self) -> list[str]:
        """Return what stands in the console: messages of the browser, of scripts, and exceptions."""
        wanted = {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"}
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in wanted]

    def _receive(self, seconds: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], seconds)
            assert ready, f"Chromium said nothing for {seconds:.0f} s"
            block = os.read(self._read, 1 << 20)
            assert block, "Chromium has ended"
            self._buffer += block
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start Chromium with a profile folder of its own, and end it."""
    to_child, our_write = os.pipe()
    our_read, from_child = os.pipe()

    def as_three_and_four() -> None:
        # Out of the way first: one of the two may have the other's number.
        incoming, outgoing = os.dup(to_child), os.dup(from_child)
        os.dup2(incoming, 3)
        os.dup2(outgoing, 4)

    with (profile.parent / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            [chromium(), *_FLAGS, f"--user-data-dir={profile}"],
            preexec_fn=as_three_and_four, close_fds=False, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    os.close(to_child)
    os.close(from_child)
    try:
        yield Browser(our_write, our_read)
    finally:
        os.close(our_write)
        os.close(our_read)
        process.kill()
        process.wait(timeout=30)
