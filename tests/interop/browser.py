"""A headless Chromium, controlled through the DevTools protocol: JSON messages, terminated by zeros, in two pipes.

Protocol: https://chromedevtools.github.io/devtools-protocol/
"""

import base64
import json
import os
import select
import subprocess
import tempfile
import time

PATIENCE = 60  # seconds for each wait

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
]


class Browser:
    """The browser, with additional flags. It has one page, and exits with the value."""

    def __init__(self, program, *flags):
        self.profile = tempfile.TemporaryDirectory(prefix="chromium.", ignore_cleanup_errors=True)
        ours_in, its_out = os.pipe()
        its_in, ours_out = os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        command = f'exec "$@" 3<&{its_in} 4>&{its_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", command, "bash", program, *FLAGS, *flags, f"--user-data-dir={self.profile.name}", "about:blank"],
            pass_fds=(its_in, its_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(its_in)
        os.close(its_out)
        self.input, self.output, self.read, self.calls = ours_in, ours_out, b"", 0
        self.session = None
        self.forget()
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.profile.cleanup()

    def forget(self):
        """Clears the lists of requests, errors and dialogs."""
        self.requests, self.errors, self.dialogs, self.loaded = [], [], [], False

    def call(self, method, **parameters):
        """Calls a method of the browser, and returns its answer."""
        number = self.send(method, **parameters)
        while True:
            message = self.receive()
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]

    def send(self, method, **parameters):
        self.calls += 1
        message = {"id": self.calls, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self.output, text):]
        return self.calls

    def receive(self):
        """Returns the next message. Events of the page are recorded first."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.read:
            ready, _, _ = select.select([self.input], [], [], max(0, end - time.monotonic()))
            part = os.read(self.input, 1 << 16) if ready else b""
            if not part:
                raise RuntimeError("the browser says nothing any more")
            self.read += part
        text, self.read = self.read.split(b"\0", 1)
        message = json.loads(text)
        self.note(message.get("method"), message.get("params", {}))
        return message

    def note(self, event, about):
        if event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(part.get("value")) for part in about["args"]))
        elif event == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.errors.append(about["entry"]["text"])
        elif event == "Page.javascriptDialogOpening":
            self.dialogs.append(about["message"])
        elif event == "Page.loadEventFired":
            self.loaded = True

    def until(self, what, holds):
        """Waits until a condition is true."""
        end = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > end:
                raise RuntimeError(f"not within {PATIENCE} s: {what}")
            time.sleep(0.05)

    def open(self, address):
        """Opens a page, and waits until it is loaded and its initial scripts are done."""
        self.forget()
        self.call("Page.navigate", url=address)
        while not self.loaded:
            self.receive()
        self.ask("new Promise(done => setTimeout(() => requestAnimationFrame(() => done(0)), 50))")

    def look(self, dark=False, width=1280, height=900):
        """Sets how the page is shown from now on."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def ask(self, expression):
        """Returns the value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def click(self, element):
        """Clicks into the middle of the element that an expression returns."""
        x, y = self.ask(
            f"(() => {{ const e = {element}; e.scrollIntoView({{block: 'center'}}); const box = e.getBoundingClientRect(); "
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mouseMoved", "mousePressed"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        # A dialog that opens when the button is released must be answered before this call returns.
        self.send("Input.dispatchMouseEvent", type="mouseReleased", x=x, y=y, button="left", clickCount=1)

    def press(self, key, code, number, modifiers):
        """Presses a key."""
        about = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers}
        self.send("Input.dispatchKeyEvent", type="rawKeyDown", **about)
        self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def answer(self, text):
        """Waits for a dialog, and answers it."""
        while not self.dialogs:
            self.receive()
        self.call("Page.handleJavaScriptDialog", accept=True, promptText=text)
        return self.dialogs.pop()

    def picture(self, path):
        """Writes the visible part as a PNG. For more than that, the browser would temporarily make the page narrow."""
        shot = self.call("Page.captureScreenshot", format="png")
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
