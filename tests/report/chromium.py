"""A real browser for tests: chromium without a window, spoken to through its debugging pipe."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for name in NAMES if (path := shutil.which(name))), None)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")
KEYS = {"Tab": 9, "Enter": 13, " ": 32}


class Chromium:
    """One page of a browser that is started and ended with the context.

    complaints: errors and warnings of the console, exceptions, and what could not be loaded
    """

    def __init__(self, profile: Path) -> None:
        self.profile = profile
        self.complaints: list[str] = []
        self.events: list[str] = []
        self.buffer = b""
        self.count = 0
        self.session: str | None = None

    def __enter__(self) -> "Chromium":
        assert BROWSER is not None
        command, self.write = os.pipe()
        self.read, answer = os.pipe()
        # the browser reads its commands from 3 and answers on 4
        script = f'exec "$0" "$@" 3<&{command} 4>&{answer}'
        flags = [*FLAGS, "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", script, BROWSER, *flags], pass_fds=(command, answer), stderr=subprocess.DEVNULL
        )
        os.close(command)
        os.close(answer)
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.write)  # the browser ends when nobody can speak to it
        os.close(self.read)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(20)

    # -- what a test asks for -------------------------------------------------------------------------------
    def open(
        self, path: Path, width: int, height: int = 900, theme: str = "light", phone: bool = False
    ) -> None:
        """Load a file in a window of that many CSS pixels, for a reader who prefers that theme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        end = time.monotonic() + 60
        while "Page.loadEventFired" not in self.events:
            self._message(end)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """A key, down and up."""
        what = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"Enter": "\r", " ": " "}.get(key)
        self.call("Input.dispatchKeyEvent", type="keyDown", **what, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **what)

    def click(self, expression: str) -> None:
        """The mouse on the middle of the element that a JavaScript expression names."""
        box = f"(({expression}).scrollIntoView({{block: 'center', behavior: 'instant'}}), "
        box += f"({expression}).getBoundingClientRect())"
        at = self.evaluate(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({box})")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    def screenshot(self, path: Path) -> bytes:
        """The whole page as PNG."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path.read_bytes()

    def pdf(self, path: Path) -> bytes:
        """The page as it is printed."""
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))
        return path.read_bytes()

    # -- the pipe -------------------------------------------------------------------------------------------
    def call(self, method: str, **params: Any) -> Any:
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 60
        while True:
            answer = self._message(end)
            if answer.get("id") == self.count:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _message(self, end: float) -> dict[str, Any]:
        """The next answer or event."""
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self.read, 1 << 20)
            assert part, "the browser ended"
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, params: dict[str, Any]) -> None:
        self.events.append(event)
        if event == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(params["args"]))
        elif event == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("file:", "data:", "about:")):
                self.complaints.append(f"asks the network for {url}")
