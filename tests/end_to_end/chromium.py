"""A headless Chromium, driven over its DevTools protocol through two pipes."""

import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome"]


def find():
    """Chromium's path, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """A running Chromium, ended by the end of a `with`."""

    def __init__(self, program, limit=60):
        self.limit, self.last, self.left, self.events = limit, 0, b"", []
        with contextlib.ExitStack() as ending:
            self._start(program, ending)
            self.ending = ending.pop_all()  # where anything fails, what was begun ends at once

    def _start(self, program, ending):
        profile = tempfile.mkdtemp(prefix="chromium-")
        ending.callback(shutil.rmtree, profile, ignore_errors=True)
        its_commands, self.commands = self._pipe(ending)
        self.messages, its_messages = self._pipe(ending)
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        flags += ["--disable-dev-shm-usage", "--disable-background-networking", "--disable-extensions"]
        flags += ["--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        # Chromium reads commands from descriptor 3 and writes to 4.
        ends = f"3<&{its_commands.fileno()} 4>&{its_messages.fileno()}"
        redirect = f'exec "$0" "$@" {ends} {its_commands.fileno()}<&- {its_messages.fileno()}>&-'
        self.process = subprocess.Popen(
            ["bash", "-c", redirect, program, *flags],
            pass_fds=[its_commands.fileno(), its_messages.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ending.callback(self._end)
        its_commands.close()
        its_messages.close()
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self.session = attached["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.page(f"{domain}.enable")

    @staticmethod
    def _pipe(ending):
        """A pipe's read and write ends, with other numbers than the descriptors that Chromium gets."""
        ends = os.pipe()
        copies = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
        for end in ends:
            os.close(end)
        modes = zip(copies, ["rb", "wb"])
        return [ending.enter_context(os.fdopen(copy, mode, buffering=0)) for copy, mode in modes]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ending.close()

    def _end(self):
        self.limit = min(self.limit, 10)
        with contextlib.suppress(OSError, TimeoutError, ConnectionError):
            self.call("Browser.close")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _message(self, until):
        """The next message."""
        while b"\0" not in self.left:
            ready, _, _ = select.select([self.messages], [], [], max(0, until - time.monotonic()))
            if not ready:
                raise TimeoutError("Chromium does not answer")
            part = self.messages.read(1 << 20)
            if not part:
                raise ConnectionError("Chromium has ended")
            self.left += part
        text, self.left = self.left.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, parameters=None, session=None):
        self.last += 1
        command = {"id": self.last, "method": method, "params": parameters or {}}
        if session:
            command["sessionId"] = session
        self.commands.write(json.dumps(command).encode() + b"\0")
        until = time.monotonic() + self.limit
        while True:
            message = self._message(until)
            if message.get("id") != self.last:
                self.events.append(message)
            elif "error" in message:
                raise RuntimeError(f"{method}: {message['error']['message']}")
            else:
                return message["result"]

    def page(self, method, **parameters):
        return self.call(method, parameters, self.session)

    def wait_for(self, method):
        until = time.monotonic() + self.limit
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._message(until))

    def resize(self, width, height=900):
        self.page(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def open(self, url):
        """Loads a page; its messages from then on are in complaints()."""
        self.events.clear()
        self.page("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def run(self, expression):
        """The value of a JavaScript expression."""
        done = self.page("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            details = done["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return done["result"].get("value")

    def complaints(self):
        """Errors and warnings of the page so far, and what it printed."""
        self.run("new Promise((done) => setTimeout(done, 50))")
        found = []
        for event in self.events:
            of = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(json.dumps(of["exceptionDetails"]))
            elif event.get("method") == "Runtime.consoleAPICalled":
                found.append(json.dumps(of["args"]))
            elif event.get("method") == "Log.entryAdded":
                found.append(f"{of['entry']['level']}: {of['entry']['text']}")
        return found

    def requests(self):
        """The addresses that the page has asked for."""
        sent = [e["params"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [of["request"]["url"] for of in sent]

    def press(self, key):
        for kind in ["keyDown", "keyUp"]:
            self.page("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def point_at(self, x, y):
        self.page("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
