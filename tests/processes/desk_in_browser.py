"""A desk, people and texts for a real browser, and axe-core."""

import shutil
import subprocess
from datetime import timedelta

import pytest

from access.keys import ApiKey
from browser import HOST
from database import clock
from models import Status
from samples import NEW_YORK
from stored_messages import key_named, store

TAB = "\ue004"
WIDE, PHONE = (1100, 900), (390, 844)
LOOKS = ((*WIDE, False), (*WIDE, True), (*PHONE, False), (*PHONE, True))
TOP = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
CARD = "const it = document.querySelector(arguments[0]).closest('.card'); "
PLACE = f"{CARD} it.scrollIntoView({{block: 'center'}}); return it.getBoundingClientRect().top"
FOCUS = "return document.activeElement.getAttribute('aria-labelledby')"
AXE = "4.14.1"
TORN = r"""
const torn = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; (node = walk.nextNode()); )
  for (const { 0: word, index } of node.data.matchAll(/[\p{L}\p{N}_]+/gu)) {
    const range = document.createRange();
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const lines = [...range.getClientRects()].filter((line) => line.width);
    if (new Set(lines.map((line) => Math.round(line.top))).size > 1) torn.push(word);
  }
return torn;
"""
"""Return the words that are torn between two lines, as a script for a page."""


@pytest.fixture
def desk(shared_web):
    """The address of a desk."""
    web, _ = shared_web
    return f"http://{HOST}:{web.port}/desk/"


@pytest.fixture(scope="session")
def axe(request, tmp_path_factory):
    """The source of axe-core, which checks accessibility; skip if it cannot be installed."""
    if not shutil.which("npm"):
        pytest.skip("there is no npm to install axe-core")
    folder = request.config.cache.mkdir(f"axe-core-{AXE}")
    source = folder / "node_modules/axe-core/axe.min.js"
    if not source.exists():
        fresh = tmp_path_factory.mktemp("npm") / "axe"
        install = "npm install --no-audit --no-fund --ignore-scripts --fetch-retries=0"
        words = [*install.split(), f"axe-core@{AXE}", "--prefix", str(fresh)]
        if subprocess.run(words, capture_output=True, timeout=300).returncode:
            pytest.skip("the npm package axe-core cannot be installed")
        shutil.copytree(fresh, folder, dirs_exist_ok=True)
    return source.read_text()


def issue(name, role, group=None):
    return ApiKey.issue(name, group, clock.now(), role=role)


def ask(text, to=NEW_YORK, **columns):
    """Store a text of the group that waits for approval and is due in a day."""
    now = clock.now()
    waits = {"manual_mode": True, "available_to_group": True, "status": Status.SCHEDULED}
    key = key_named("shop", "front")
    at = {"send_at": now + timedelta(days=1), "created_at": now}
    return store(now, message=text, to=to, key=key, **at | waits | columns)


def sign_in(browser, desk, role, group=None):
    browser.open(desk)
    browser.write("input[type=password]", issue(f"Ann the {role}", role, group))
    browser.press("Sign in")
    assert browser.text("h1").startswith("Waiting for approval")


def assert_goes_on(browser, top, card, height):
    """The result stands where the card stood, the next card has the focus and is in sight."""
    browser.wait_for("return !sessionStorage.top")
    assert browser.run(TOP, ".result:has(#result)") == pytest.approx(top, abs=2)
    assert browser.run(FOCUS) == card
    assert browser.run(TOP, "#next") < height


def press_without_script(browser, button, card):
    """Press the button of a card: the result and the next card are in sight, with the focus."""
    browser.click(button)
    browser.wait_for("return location.hash == '#next' && !!document.querySelector('#result')")
    browser.wait_for(f"{FOCUS} == '{card}'")
    assert 0 <= browser.run(TOP, "#result") < browser.run(TOP, "#next") < PHONE[1]


def press(browser, button):
    """Press the button of a card, a selector; return where the card stood in the window."""
    top = browser.run(PLACE, button)
    with browser.leaving():
        browser.run("document.querySelector(arguments[0]).click()", button)
    return top
