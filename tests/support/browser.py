"""A real Chromium without a window, driven by its own chromedriver over the WebDriver protocol."""

import base64
import json
import shutil
import urllib.request

PROGRAMS = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
MISSING = " and ".join(name for name, path in PROGRAMS.items() if not path)
HOST = "texts.test"  # leads here; every other name leads nowhere
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # W3C WebDriver, 12.1


class Browser:
    """One window; looks for an element until it is there."""

    def __init__(self, driver, profile):
        options = {
            "binary": PROGRAMS["chromium"],
            "args": [
                "--headless",
                "--no-sandbox",  # which root may not have
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--no-first-run",
                "--no-proxy-server",
                "--window-size=1200,1800",
                f"--host-resolver-rules=MAP {HOST} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                f"--user-data-dir={profile}",
            ],
        }
        wanted = {
            "browserName": "chrome",
            "timeouts": {"implicit": 20_000, "pageLoad": 60_000},
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        self.url = f"{driver}/session"
        opened = self._call("", {"capabilities": {"alwaysMatch": wanted}})
        self.url += f"/{opened['sessionId']}"

    def open(self, url):
        self._call("/url", {"url": url})

    def click(self, selector):
        self._call(f"/element/{self._find(selector)}/click", {})

    def write(self, selector, text):
        self._call(f"/element/{self._find(selector)}/value", {"text": text})

    def text(self, selector):
        return self._call(f"/element/{self._find(selector)}/text")

    def count(self, selector):
        """How many elements there are, once there is one."""
        self._find(selector)
        return self._run("return document.querySelectorAll(arguments[0]).length", selector)

    def narrow(self, width):
        """Make the window as narrow as a phone, which no window of a desktop may be."""
        screen = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        self._call(
            "/goog/cdp/execute",
            {"cmd": "Emulation.setDeviceMetricsOverride", "params": screen},
        )

    def sideways(self):
        """How many pixels the page can be scrolled sideways."""
        page = "document.documentElement"
        return self._run(f"return {page}.scrollWidth - {page}.clientWidth")

    def requested(self):
        """The addresses that pages asked for since the last call."""
        events = [json.loads(line["message"])["message"] for line in self._log("performance")]
        urls = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith(("data:", "chrome:"))]

    def complaints(self):
        """What the browser complained of since the last call: a script's error, a blocked file."""
        return [line["message"] for line in self._log("browser") if line["level"] == "SEVERE"]

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self._call("/screenshot")))

    def close(self):
        self._call("", method="DELETE")

    def _run(self, script, *args):
        return self._call("/execute/sync", {"script": script, "args": args})

    def _find(self, selector):
        return self._call("/element", {"using": "css selector", "value": selector})[ELEMENT]

    def _log(self, kind):
        return self._call("/se/log", {"type": kind})

    def _call(self, path, value=None, method=None):
        body = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(self.url + path, body, method=method)
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)["value"]
