# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Headless Chromium driven over its debugging pipe (Chrome DevTools Protocol), with the standard library alone.

``Browser`` starts one process with an empty profile; ``Browser.page(url)`` opens a tab and records what the tests judge: console
messages, uncaught exceptions and every request. Commands are JSON messages ended by a NUL byte on file descriptor 3, answers and events
come the same way on 4 (``--remote-debugging-pipe``).
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--mute-audio",
    "--remote-debugging-pipe",
)


def find():
    """The path of a Chromium (or Chrome) on this machine, or None."""
    for name in (
        os.environ.get("HOSTPREP_CHROMIUM"),
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
    ):
        path = shutil.which(name) if name else None
        if path:
            return path
    return None


class Browser:
    def __init__(self, program=None, timeout=60):
        self.timeout = timeout
        self._profile = tempfile.mkdtemp(prefix="hostprep-chromium-")
        # The shell moves its standard input and output, which are pipes to us, to where Chromium looks for them.
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null', "sh"]
            + [program or find(), *FLAGS, "--user-data-dir=" + self._profile],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self._buffer = b""
        self._last = 0
        self._pages = {}

    def close(self):
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method, session=None, **params):
        """One command and its result. Raises RuntimeError when the browser refuses, dies or does not answer in time."""
        self._last += 1
        number = self._last
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        until = time.monotonic() + self.timeout
        while True:
            answer = self._read(until - time.monotonic())
            if answer is None:
                raise RuntimeError("no answer to %s" % method)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"].get("message")))
                return answer["result"]

    def _read(self, seconds):
        """The next message; events are handed to their page on the way. None when ``seconds`` pass without one."""
        while b"\0" not in self._buffer:
            ready = select.select([self._process.stdout], [], [], max(0, seconds))[0]
            if not ready:
                return None
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise RuntimeError("the browser ended")
            self._buffer += chunk
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(raw)
        page = self._pages.get(message.get("sessionId"))
        if page and "method" in message:
            page.event(message["method"], message["params"])
        return message

    def page(self, url, width=1440, height=900, dark=False):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        self._pages[session] = page
        page.open(url, width, height, dark)
        return page


class Page:
    """A tab. ``console`` and ``exceptions`` hold texts, ``requests`` the URLs asked for."""

    def __init__(self, browser, session, target):
        self._browser = browser
        self._session = session
        self._target = target
        self._loaded = False
        self.console = []
        self.exceptions = []
        self.requests = []
        self.load_seconds = None

    def call(self, method, **params):
        return self._browser.call(method, self._session, **params)

    def event(self, method, params):
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.consoleAPICalled":
            self.console.append(
                "%s: %s"
                % (params["type"], " ".join(str(item.get("value", item.get("description"))) for item in params["args"]))
            )
        elif method == "Log.entryAdded":
            self.console.append("%(level)s: %(text)s" % params["entry"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.exceptions.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, url, width, height, dark):
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.media(dark=dark)
        started = time.monotonic()
        self.call("Page.navigate", url=url)
        until = started + self._browser.timeout
        while not self._loaded:
            if self._browser._read(until - time.monotonic()) is None:
                raise RuntimeError("the page did not load")
        self.js(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )  # until it has been painted
        self.load_seconds = time.monotonic() - started

    def media(self, dark=False, printing=False):
        self.call(
            "Emulation.setEmulatedMedia",
            media="print" if printing else "",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )

    def js(self, expression):
        """The value of a JavaScript expression (promises are awaited). Raises RuntimeError when it throws."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(
                result["exceptionDetails"].get("exception", {}).get("description") or result["exceptionDetails"]["text"]
            )
        return result["result"].get("value")

    def key(self, key, text=None):
        """A key press as from a keyboard: a named key ("Tab", "Enter", "ArrowDown") or a single character."""
        codes = {
            "Tab": 9,
            "Enter": 13,
            "Escape": 27,
            " ": 32,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
            "Home": 36,
            "End": 35,
        }
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "") if text is None else text
        code = codes.get(
            key, ord(key.upper()) if key.isalnum() and len(key) == 1 else 0
        )  # of "." it would be that of Delete
        down = {"type": "keyDown" if text else "rawKeyDown", "key": key, "windowsVirtualKeyCode": code}
        if text:
            down["text"] = text
        self.call("Input.dispatchKeyEvent", **down)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text):
        for char in text:
            self.key(char)

    def hover(self, selector):
        x, y = self.js(
            "(() => { const node = document.querySelector(%s); node.scrollIntoView({block: 'center'}); const box = node.getBoundingClientRect(); "
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()" % json.dumps(selector)
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def pdf(self):
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"])

    def screenshot(self, path, full=True):
        picture = self.call(
            "Page.captureScreenshot",
            format="png",
            captureBeyondViewport=full,
            **({"clip": dict(self._whole(), scale=1)} if full else {}),
        )
        with open(path, "wb") as handle:
            handle.write(base64.b64decode(picture["data"]))

    def _whole(self):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12000)}

    def close(self):
        self._browser.call("Target.closeTarget", targetId=self._target)
