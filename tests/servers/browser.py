"""A real Chromium that a test drives, by the DevTools protocol over a pipe: it needs no port and no driver.

A page that it opens is watched: scripts that ran although they should not (dialogs), violations of the
Content-Security-Policy, errors of scripts, and files that could not be loaded.
"""

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any

_SECONDS = 60.0
_AXE = (Path(__file__).parents[1] / "vendored/axe.min.js").read_text()
_WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", e => window.violations.push(
  `${e.violatedDirective} ${e.blockedURI} ${e.sourceFile || ""}:${e.lineNumber} ${e.sample}`));
"""


class PageLeft(AssertionError):
    """A command failed, perhaps because the page leads to another one at this moment."""


class Browser:
    """A running Chromium with one tab."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("chromium-headless-shell")
        assert program, "Chromium is missing: tests/servers/install installs it"
        (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()

        def give_pipe() -> None:
            # Numbers that no other descriptor has, then 3 and 4, which Chromium expects.
            first, second = os.dup(in_read), os.dup(out_write)
            os.dup2(os.dup(first), 3)
            os.dup2(second, 4)
            os.set_inheritable(3, True)
            os.set_inheritable(4, True)

        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars",
                 "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"]  # fmt: skip
        self._process = subprocess.Popen(
            [program, *flags, "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=give_pipe,
        )  # fmt: skip
        os.close(in_read)
        os.close(out_write)
        self._writing = os.fdopen(in_write, "wb")
        self._answers: Queue[dict[str, Any]] = Queue()
        self.events: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self._reader = threading.Thread(target=self._read, args=(out_read,), daemon=True)
        self._reader.start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)

    def _read(self, descriptor: int) -> None:
        rest = b""
        while part := os.read(descriptor, 65536):
            *messages, rest = (rest + part).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._answers.put(message)
                else:
                    self.events.append(message)
                    if message["method"] == "Page.javascriptDialogOpening":  # otherwise the page would stand still
                        self._send("Page.handleJavaScriptDialog", accept=True)
        os.close(descriptor)

    def _send(self, method: str, **parameters: Any) -> int:
        number = next(self._numbers)  # both threads send
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._writing.write(json.dumps(message).encode() + b"\0")
        self._writing.flush()
        return number

    def call(self, method: str, **parameters: Any) -> Any:
        """Return the result of a command."""
        number = self._send(method, **parameters)
        while True:
            try:
                answer = self._answers.get(timeout=_SECONDS)
            except Empty:
                raise AssertionError(f"Chromium did not answer {method}") from None
            if answer["id"] == number:
                if "error" in answer:
                    raise PageLeft(answer["error"])
                return answer["result"]

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression on the page; of a promise, once it has one."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise PageLeft(result)
        return result["result"].get("value")

    def open(self, address: str) -> None:
        """Open an address, and return when the page is loaded."""
        self.events.clear()
        self.call("Page.navigate", url=address)
        self.wait(f"document.readyState === 'complete' && location.href !== 'about:blank' && !!{json.dumps(address)}")

    def wait(self, condition: str) -> None:
        """Return when an expression on the page, or on the one to which it leads, is true."""
        deadline = time.monotonic() + _SECONDS
        while True:
            with contextlib.suppress(PageLeft):
                if self.evaluate(f"!!({condition})"):
                    return
            if time.monotonic() > deadline:
                shown = self.evaluate("location.href + ' ' + document.body.innerText.slice(0, 2000)")
                raise AssertionError(f"never: {condition}, but {shown}")
            time.sleep(0.02)

    def size(self, width: int, height: int = 900) -> None:
        """Give the page this size, in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name: str) -> None:
        """Prefer light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def cookie(self, address: str, name: str, value: str) -> None:
        """Give the browser a cookie for an address."""
        self.call("Network.setCookie", url=address, name=name, value=value, httpOnly=True, sameSite="Strict")

    def fill(self, field: str, value: str) -> None:
        """Write a value into the field of a form that has this selector; or, if it takes files, the file of this
        path."""
        if self.evaluate(f"document.querySelector({json.dumps(field)}).type") == "file":
            document = self.call("DOM.getDocument")["root"]["nodeId"]
            node = self.call("DOM.querySelector", nodeId=document, selector=field)["nodeId"]
            self.call("DOM.setFileInputFiles", nodeId=node, files=[value])
        else:
            typed = "each.dispatchEvent(new Event('input', {bubbles: true}))"
            self.evaluate(
                f"{{const each = document.querySelector({json.dumps(field)}); "
                f"each.value = {json.dumps(value)}; {typed}}}"
            )

    def click(self, element: str, then: str) -> None:
        """Click on the element that has this selector, and return when an expression is true on the page that comes."""
        self.evaluate(f"document.querySelector({json.dumps(element)}).click()")
        self.wait(then)

    def keep_picture(self, name: str) -> None:
        """Write a picture of the page into the folder that the variable PICTURES names, for the documentation."""
        if folder := os.environ.get("PICTURES"):
            Path(folder, name).write_bytes(self.picture())

    def picture(self) -> bytes:
        """Return a picture of the page, as PNG."""
        content = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(content["data"])

    def faults(self) -> list[str]:
        """Return what went wrong on the page since it was opened."""
        found = [f"violation: {text}" for text in self.evaluate("window.violations")]
        for event in list(self.events):
            method, given = event["method"], event["params"]
            if method == "Page.javascriptDialogOpening":
                found.append(f"dialog: {given['message']}")
            elif method == "Runtime.exceptionThrown":
                found.append(f"exception: {given['exceptionDetails']}")
            elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
                found.append(f"log: {given['entry']['text']} {given['entry'].get('url', '')}")
            elif method == "Network.responseReceived" and given["response"]["status"] >= 400:
                found.append(f"status {given['response']['status']}: {given['response']['url']}")
            elif method == "Network.requestWillBeSent" and not given["request"]["url"].startswith(
                ("http://127.0.0.1:", "http://localhost:", "data:", "about:")
            ):
                found.append(f"elsewhere: {given['request']['url']}")
        return found

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError, AssertionError):
            self._session = None
            self._send("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._reader.join(10)
        self._writing.close()


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A Chromium that runs until the end of the block. `folder`: its profile."""
    found = Browser(folder)
    try:
        yield found
    finally:
        found.close()


_FOCUSABLE = """
[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]')]
  .filter(each => each.checkVisibility({visibilityProperty: true}) && !each.disabled)
"""


def beyond_the_keyboard(chromium: Browser) -> list[str]:
    """Return what a person who has only a keyboard cannot reach on a page, or cannot see that it is reached."""
    chromium.evaluate("""
        window.reached = new Set(); window.unseen = [];
        document.addEventListener('focusin', event => {
            window.reached.add(event.target.outerHTML);  // a part that is shown anew has other elements
            if (getComputedStyle(event.target).outlineStyle === 'none') window.unseen.push(event.target.outerHTML);
        });
        document.activeElement.blur(); 0
    """)
    stops = "(count, each) => count + (each.type === 'datetime-local' ? 8 : 1)"  # its parts, and its calendar
    for _ in range(chromium.evaluate(f"{_FOCUSABLE}.reduce({stops}, 1)")):
        for kind in ("rawKeyDown", "keyUp"):
            chromium.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    found: list[str] = chromium.evaluate(
        f"{_FOCUSABLE}.filter(each => !window.reached.has(each.outerHTML)).map(each => each.outerHTML.slice(0, 200))"
        ".concat(window.unseen)"
    )
    return found


def beyond_the_sides(chromium: Browser) -> list[str]:
    """Return the buttons in tables of a page that a person sees only after scrolling sideways."""
    found: list[str] = chromium.evaluate("""
        [...document.querySelectorAll('td :is(button, .button)')].filter(each => {
            const {left, right} = each.getBoundingClientRect();
            return each.checkVisibility() && (left < 0 || right > window.innerWidth);
        }).map(each => each.outerHTML.slice(0, 200))
    """)
    return found


def unusable(chromium: Browser) -> list[Any]:
    """Return what axe finds wrong on a page."""
    chromium.evaluate(f"{_AXE}; 0")
    found: list[Any] = chromium.evaluate(
        "axe.run(document, {resultTypes: ['violations'], iframes: false})"
        ".then(all => all.violations.map(each => [each.id, each.nodes.map(node => node.html.slice(0, 200))]))"
    )
    return found
