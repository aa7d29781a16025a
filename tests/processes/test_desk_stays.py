"""In a real Chromium: after a decision the page keeps its place, and goes on with the next card."""

from datetime import timedelta

import pytest

from access.keys import Role
from browser import ENTER
from database import clock
from desk_in_browser import (
    FOCUS,
    PHONE,
    TAB,
    WIDE,
    ask,
    assert_goes_on,
    press,
    press_without_script,
    sign_in,
)
from models import Message, Status
from stored_messages import again

DESKTOP = (1280, 900)


@pytest.fixture
def asked(shared_web):
    """Twenty texts in the order of the page."""
    now = clock.now()
    return [
        ask(f"text {n}", send_at=now + timedelta(days=1, minutes=n), created_at=now)
        for n in range(20)
    ]


def button(words, message):
    return f"button[name={words}][value='{message.id}']"


@pytest.mark.parametrize("look", [WIDE, PHONE])
def test_the_page_keeps_its_place_and_the_focus_goes_on(browser, desk, asked, look):
    browser.look_like(*look)
    sign_in(browser, desk, Role.OPERATOR)
    for n, words in ((9, "approve"), (10, "refuse"), (4, "approve")):
        top = press(browser, button(words, asked[n]))
        assert_goes_on(browser, top, f"to-{asked[n + 1].id}", look[1])
    assert browser.complaints() == []


def test_without_the_script_the_result_and_the_next_card_are_in_sight(browser, desk, asked):
    browser._devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.look_like(*PHONE)
        sign_in(browser, desk, Role.APPROVER, "front")
        press_without_script(browser, button("approve", asked[9]), f"to-{asked[10].id}")
    finally:
        browser._devtools("Emulation.setScriptExecutionDisabled", value=False)


def test_back_and_reload_show_the_result_where_the_card_was(browser, desk, asked):
    sign_in(browser, desk, Role.APPROVER, "front")
    press(browser, button("refuse", asked[3]))
    is_there = (
        "return document.querySelector('#result').parentElement.previousElementSibling.innerText"
    )
    for step in ("location.reload()", "history.back()", "history.forward()"):
        with browser.leaving():
            browser.run(step)
        assert "text 2" in browser.run(is_there)
        assert browser.text("#result").startswith("1 text refused: +1 212-555-0123")
    browser.press("Undo")
    assert again(asked[3]).status == Status.SCHEDULED
    assert browser.run(FOCUS) == f"to-{asked[3].id}"


def test_the_seconds_count_down_and_undo_goes_with_the_last(browser, desk, asked):
    sign_in(browser, desk, Role.APPROVER, "front")
    press(browser, button("refuse", asked[0]))
    browser.wait_for(
        "return /for 5[0-8] seconds/.test(document.querySelector('[data-left]').innerText)"
    )
    browser.run("const now = Date.now; Date.now = () => now() + 60_000")
    browser.wait_for("return !document.querySelector('[data-left], .undo button')")
    assert browser.text("#result").startswith("1 text refused")


def test_without_a_mouse_one_after_the_other_is_decided(browser, desk, asked):
    """Each card takes a few keys: the box, the details, Refuse, Approve."""
    browser.look_like(*PHONE)
    sign_in(browser, desk, Role.APPROVER, "front")
    browser.run(f'document.querySelector("{button("approve", asked[0])}").focus()')
    with browser.leaving():
        browser.type(ENTER)
    for _ in range(5):
        for _ in range(10):
            if browser.run("return document.activeElement.name") == "approve":
                break
            browser.type(TAB)
        with browser.leaving():
            browser.type(ENTER)
    approved = [
        each.id for each in Message.select().where(Message.approved).order_by(Message.send_at)
    ]
    assert approved == [each.id for each in asked[:6]]


def test_a_long_text_is_folded_and_unfolds_by_a_key(browser, desk):
    long = ask("\n".join(f"line {n}" for n in range(30)), send_at=clock.now() + timedelta(hours=1))
    medium = ask("word " * 80)  # more than six lines on a phone alone
    height = "return document.querySelector(`#to-${arguments[0]}`).closest('.card')"
    height += ".querySelector('.text p').getBoundingClientRect().height"
    line = "return parseFloat(getComputedStyle(document.querySelector('.text p')).lineHeight)"
    sign_in(browser, desk, Role.APPROVER, "front")
    for look in (PHONE, WIDE, DESKTOP):
        browser.look_like(*look)
        browser.open(desk)
        six = 6 * browser.run(line)
        assert browser.run(height, str(long.id)) == pytest.approx(six, abs=1)
        toggles = browser.run(
            "return [...document.querySelectorAll('summary')].map(each => each.innerText.trim())"
        )
        assert [each for each in toggles if each][:1] == ["2 parts · show all"]
        assert browser.run(height, str(medium.id)) <= six + 1
        browser.run("document.querySelector('summary').focus()")
        browser.type(ENTER)
        assert browser.run(height, str(long.id)) == pytest.approx(5 * six, abs=5)
        assert browser.text("summary") == "2 parts · show less"
        assert browser.sideways() == 0


def test_rows_are_compact_on_a_desktop(browser, desk, asked):
    browser.look_like(*DESKTOP)
    sign_in(browser, desk, Role.APPROVER, "front")
    heights = browser.run(
        "return [...document.querySelectorAll('.card')].map(e => e.getBoundingClientRect().height)"
    )
    assert max(heights) <= 140
