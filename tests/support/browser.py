"""A real browser for tests: headless Chromium, driven over a pipe by the DevTools protocol.

The pipe (file descriptors 3 and 4, messages that end in a zero byte) needs neither a driver program nor a websocket
library, so only the browser itself must be installed.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PATIENCE_S = 30.0
# Moves the ends of the pipes to file descriptors 3 and 4, then executes the browser. High numbers come between, because
# 3 and 4 may be among the given ones.
WIRE = """
import os, sys
ends = [os.dup2(int(number), 100 + index, inheritable=False) for index, number in enumerate(sys.argv[1:3])]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    """The path of the browser; None if it is not installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class BrowserError(AssertionError):
    """The browser returned an error for a call."""


class Page:
    """One page, with its errors and warnings and its requests to the network."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self._browser = browser
        self._session = session
        self._opened = 0
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, session=self._session, **params)

    def open(self, path: Path, fragment: str = "") -> None:
        """Open a file and wait until it is drawn."""
        # A new address each time, because a change of the fragment alone does not reload the page.
        self._opened += 1
        query = f"?{self._opened}"
        address = path.absolute().as_uri() + query + (f"#{fragment}" if fragment else "")
        reply = self.call("Page.navigate", url=address)
        assert "errorText" not in reply, reply
        self.wait(
            f"location.search === '{query}' && document.readyState === 'complete' && "
            "globalThis.penstockReport?.view.numFrames > 0"
        )

    def run(self, script: str) -> Any:
        """The value of an expression, or of the promise that it returns."""
        reply = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in reply:
            raise AssertionError(f"{script}: {reply['exceptionDetails']}")
        return reply["result"].get("value")

    def wait(self, condition: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while True:
            with suppress(BrowserError):  # the old page may be closing
                if self.run(condition):
                    return
            if time.monotonic() > end:
                where = self.run("[location.href, document.readyState, document.visibilityState].join()")
                raise AssertionError(f"{condition}: not within {PATIENCE_S} s; {where}; {self.complaints}")
            time.sleep(0.01)

    def settle(self) -> None:
        """Wait until changes are drawn and the address is updated."""
        self.run("new Promise(done => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 150))")

    def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def prefer(self, scheme: str) -> None:
        """Emulate the light or dark theme of the system."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def key(self, key: str, *, shift: bool = False) -> None:
        text = key if len(key) == 1 else "\r" if key == "Enter" else ""
        code = {"Tab": 9, "Enter": 13, "Escape": 27}.get(key, 0)
        common = {"key": key, "modifiers": 8 if shift else 0, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        touches = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        self.call("Input.dispatchTouchEvent", type=kind, touchPoints=touches)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        reply = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(reply["data"]))


class Browser:
    """Chromium with an empty profile."""

    def __init__(self, program: str, folder: str) -> None:
        into, self._write = os.pipe()
        self._read, out = os.pipe()
        options = [
            "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--mute-audio",
            "--hide-scrollbars", "--disable-renderer-backgrounding", "--disable-background-timer-throttling",
            "--disable-backgrounding-occluded-windows", "--force-device-scale-factor=1", f"--user-data-dir={folder}",
            "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-c", WIRE, str(into), str(out), program, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(into, out),
        )
        os.close(into)
        os.close(out)
        self._buffer = b""
        self._number = 0
        self._pages: dict[str, Page] = {}

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def new_page(self) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        self._pages[session] = page
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        # Hidden pages are not drawn.
        page.call("Page.bringToFront")
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        return page

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next()
            if reply.get("id") == self._number:
                if "error" in reply:
                    raise BrowserError(f"{method}: {reply['error']}")
                result: dict[str, Any] = reply["result"]
                return result
            self._note(reply)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], PATIENCE_S)[0]:
                raise AssertionError("the browser does not respond")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise AssertionError("the browser has exited")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        page, params = self._pages.get(event.get("sessionId", "")), event.get("params", {})
        if page is None:
            return
        if event["method"] == "Runtime.exceptionThrown":
            page.complaints.append(str(params["exceptionDetails"]))
        elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            page.complaints.append(str(params["args"]))
        elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            page.complaints.append(str(params["entry"]))
        elif event["method"] == "Network.requestWillBeSent":
            page.requests.append(params["request"]["url"])


@contextmanager
def running_browser() -> Iterator[Browser]:
    """A browser for the duration of a block."""
    program = find_browser()
    assert program is not None, "Chromium is not installed: apt-get install chromium"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(program, folder)
        try:
            yield browser
        finally:
            browser.close()
