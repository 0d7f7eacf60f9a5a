"""A real browser for tests: Chromium without a window, driven over a pipe by the DevTools protocol.

The pipe (file descriptors 3 and 4, messages that end in a zero byte) needs neither a driver program nor a websocket
library, so there is nothing to install beside the browser itself.
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
# Puts the ends of the pipes where the browser looks for them, then becomes the browser. By way of high numbers, as 3
# and 4 may be among those that are moved.
WIRE = """
import os, sys
ends = [os.dup2(int(number), 100 + place, inheritable=False) for place, number in enumerate(sys.argv[1:3])]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    """The program, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class BrowserError(AssertionError):
    """The browser refused a call."""


class Page:
    """One page, and everything that it complained about or asked the network for."""

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
        # An address of its own each time, as a change behind the # alone would not load the page anew.
        self._opened += 1
        query = f"?{self._opened}"
        address = path.absolute().as_uri() + query + (f"#{fragment}" if fragment else "")
        found = self.call("Page.navigate", url=address)
        assert "errorText" not in found, found
        self.wait(
            f"location.search === '{query}' && document.readyState === 'complete' && "
            "globalThis.penstockReport?.view.numFrames > 0"
        )

    def run(self, script: str) -> Any:
        """The value of an expression, waited for if it is a promise."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while True:
            with suppress(BrowserError):  # a page that is just being left has nothing to say
                if self.run(condition):
                    return
            if time.monotonic() > end:
                where = self.run("[location.href, document.readyState, document.visibilityState].join()")
                raise AssertionError(f"{condition}: not within {PATIENCE_S} s; {where}; {self.complaints}")
            time.sleep(0.01)

    def settle(self) -> None:
        """Until what was changed has been drawn and the address has followed."""
        self.run("new Promise(done => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 150))")

    def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def prefer(self, scheme: str) -> None:
        """Light or dark, as the system would ask for."""
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
        places = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        self.call("Input.dispatchTouchEvent", type=kind, touchPoints=places)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


class Browser:
    """Chromium with its own empty profile."""

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
        # A page that is not seen is not drawn.
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
            found = self._next()
            if found.get("id") == self._number:
                if "error" in found:
                    raise BrowserError(f"{method}: {found['error']}")
                result: dict[str, Any] = found["result"]
                return result
            self._note(found)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], PATIENCE_S)[0]:
                raise AssertionError("the browser does not answer")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise AssertionError("the browser has ended")
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
    """A browser that ends with the block."""
    program = find_browser()
    assert program is not None, "no Chromium here: apt-get install chromium"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(program, folder)
        try:
            yield browser
        finally:
            browser.close()
