"""Drive Chromium through its DevTools protocol, over a pipe: act on a page as a reader would, and inspect the
result."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
)  # fmt: skip
_PATIENCE_S = 60.0


class Browser:
    """One window, a context manager. ``console`` collects all console messages and errors of the page."""

    def __init__(self, profile: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        assert CHROMIUM is not None
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        words = [
            CHROMIUM, *FLAGS, scheme, f"--window-size={width},{height}", f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "bash", *words],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.console: list[str] = []
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        # Chromium windows are at least about 500 pixels wide; the emulated viewport may be narrower.
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        os.close(self._write)
        os.close(self._read)
        self._process.terminate()
        self._process.wait(_PATIENCE_S)

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send one command of the protocol and return its answer."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, found
                result = found["result"]
                assert isinstance(result, dict)
                return result

    def open(self, page: Path) -> None:
        """Open a file, and wait until it is loaded."""
        self.ask("Page.navigate", url=page.as_uri())
        end = time.monotonic() + _PATIENCE_S
        while self.run("document.readyState") != "complete" or self.run("location.href") == "about:blank":
            assert time.monotonic() < end
            time.sleep(0.02)

    def run(self, script: str) -> Any:
        """Evaluate an expression through the debugger, which is not bound by the page's content security
        policy."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def click(self, selector: str) -> None:
        """Send a real click to the middle of the first matching element."""
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y)

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Send one mouse event with the left button."""
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def key(self, name: str) -> None:
        """Press and release a key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def middle(self, selector: str) -> tuple[float, float]:
        """Scroll to the first matching element and return its middle."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center', behavior: 'instant'});"
            " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        return float(box[0]), float(box[1])

    def picture(self, clip: Mapping[str, float] | None = None) -> bytes:
        """Return a screenshot (PNG) of the visible page."""
        more = {} if clip is None else {"clip": {**clip, "scale": 1}}
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png", **more)["data"])

    def settled(self) -> None:
        """Wait until pending drawing is done."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], _PATIENCE_S)
            assert ready, "the browser does not answer"
            some = os.read(self._read, 1 << 20)
            assert some, "the browser has gone"
            self._rest += some
        line, self._rest = self._rest.split(b"\0", 1)
        found = json.loads(line)
        assert isinstance(found, dict)
        if found.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.console.append(json.dumps(found["params"]))
        return found
