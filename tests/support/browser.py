"""A real Chromium without a window, driven by its own chromedriver over the WebDriver protocol."""

import contextlib
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request

import pytest

PROGRAMS = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
MISSING = " and ".join(name for name, path in PROGRAMS.items() if not path)
HOST = "texts.test"  # resolves to this machine; no other name resolves
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # W3C WebDriver, 12.1
ENTER = "\ue007"
IS_THERE = (
    "return document.readyState == 'complete' && "
    "[...document.querySelectorAll('link[rel=stylesheet]')].every(link => link.sheet)"
)


@contextlib.contextmanager
def open_browser(folder):
    """A browser with its profile in a folder, closed at the end."""
    words = [PROGRAMS["chromedriver"], "--port=0"]
    driver = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        told = next(line for line in driver.stdout if "successfully on port" in line)
        browser = Browser(f"http://127.0.0.1:{int(told.split()[-1].rstrip('.'))}", folder)
        try:
            yield browser
        finally:
            browser.close()
    finally:
        driver.kill()
        driver.communicate()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A browser of a worker's own; skip where there is none."""
    if MISSING:
        pytest.skip(f"{MISSING} not installed: apt-get install chromium chromium-driver")
    with open_browser(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def browser(chromium):
    """The browser, without the state of earlier tests."""
    yield chromium
    chromium.forget()


class Browser:
    """One window; waits for elements to appear."""

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
        """Open a page, and wait until it is there with its style sheets."""
        self._call("/url", {"url": url})
        self.wait_for(IS_THERE)

    def click(self, selector):
        self._click(self._find(selector))

    def write(self, selector, text):
        self._call(f"/element/{self._find(selector)}/value", {"text": text})

    def text(self, selector):
        return self._call(f"/element/{self._find(selector)}/text")

    def count(self, selector):
        """The number of elements, once there is one."""
        self._find(selector)
        return self.run("return document.querySelectorAll(arguments[0]).length", selector)

    def press(self, words, index=0):
        """Press a button, found by its words, and wait for the next page."""
        found = f"//button[normalize-space()='{words}']"
        buttons = self._call("/elements", {"using": "xpath", "value": found})
        with self.leaving():
            self._click(buttons[index][ELEMENT])

    def follow(self, selector):
        """Follow a link and wait for its page."""
        with self.leaving():
            self._click(self._find(selector))

    @contextlib.contextmanager
    def leaving(self):
        """Wait for the page that the body of the `with` statement leads to."""
        self.run("window.isLeft = true")
        yield
        self.wait_for(f"{IS_THERE} && !window.isLeft")

    def wait_for(self, script):
        """Wait until a script returns something true, even while pages change."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(urllib.error.HTTPError):  # between two pages
                if self.run(script):
                    return
            time.sleep(0.02)
        raise AssertionError(f"not in time: {script}")

    def type(self, key):
        """Type a key wherever the focus is."""
        keys = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._call("/actions", {"actions": [{"type": "key", "id": "keys", "actions": keys}]})

    def look_like(self, width, height, dark=False):
        """Emulate a screen of this size, a phone's if it is narrow, in dark or light mode."""
        phone = width < 600
        screen = {"width": width, "height": height, "deviceScaleFactor": 1 + phone, "mobile": phone}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setDeviceMetricsOverride", **screen)
        self._devtools("Emulation.setEmulatedMedia", features=[scheme])

    def living_in(self, zone):
        """Have the browser's clock in a time zone within the `with` statement."""
        command = "Emulation.setTimezoneOverride"
        return self._within(command, {"timezoneId": zone}, {"timezoneId": ""})

    def speaking(self, language):
        """Ask for pages in a language within the `with` statement."""
        asked = {"headers": {"Accept-Language": language}}
        return self._within("Network.setExtraHTTPHeaders", asked, {"headers": {}})

    def without_script(self):
        """Run no script of pages within the `with` statement."""
        command = "Emulation.setScriptExecutionDisabled"
        return self._within(command, {"value": True}, {"value": False})

    @contextlib.contextmanager
    def _within(self, command, begin, end):
        self._devtools(command, **begin)
        try:
            yield
        finally:
            self._devtools(command, **end)

    def forget(self):
        """Clear cookies, the page, the logs and the emulated screen."""
        self.open("about:blank")
        self._devtools("Network.clearBrowserCookies")
        self._devtools("Emulation.clearDeviceMetricsOverride")
        self._devtools("Emulation.setEmulatedMedia", features=[])
        self.requested()
        self.complaints()

    def sideways(self):
        """How many pixels the page can be scrolled sideways."""
        page = "document.documentElement"
        return self.run(f"return {page}.scrollWidth - {page}.clientWidth")

    def requested(self):
        """The addresses requested by pages, but for the browser's own, since the last call."""
        events = [json.loads(line["message"])["message"] for line in self._log("performance")]
        urls = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith(("data:", "chrome"))]

    def complaints(self):
        """The browser's errors since the last call, such as a blocked file."""
        return [line["message"] for line in self._log("browser") if line["level"] == "SEVERE"]

    def close(self):
        self._call("", method="DELETE")

    def run(self, script, *args):
        """Run a script in the page; the value that it returns or promises."""
        return self._call("/execute/sync", {"script": script, "args": args})

    def _click(self, element):
        """Click an element in the middle of the window, where no sticky bar covers it."""
        self.run("arguments[0].scrollIntoView({block: 'center'})", {ELEMENT: element})
        self._call(f"/element/{element}/click", {})

    def _find(self, selector):
        return self._call("/element", {"using": "css selector", "value": selector})[ELEMENT]

    def _devtools(self, command, **params):
        self._call("/goog/cdp/execute", {"cmd": command, "params": params})

    def _log(self, kind):
        return self._call("/se/log", {"type": kind})

    def _call(self, path, value=None, method=None):
        body = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(self.url + path, body, method=method)
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)["value"]
