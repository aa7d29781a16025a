"""The page "Replies" in a real Chromium: on a phone, without a mouse, for everybody."""

import time
from datetime import timedelta

import pytest

from access.do_not_call import DoNotCall
from access.keys import Role
from browser import ENTER
from carriers import Reply as Said
from carriers.ways import Way
from database import clock
from desk_in_browser import (
    FOCUS,
    PHONE,
    TAB,
    TORN,
    WIDE,
    assert_goes_on,
    press,
    press_without_script,
    sign_in,
)
from models import Status
from sending import inbound
from sending.inbound import ReplyRules
from sending.replies import Reply
from stored_messages import held, key_named

RULES = ReplyRules(Way("twilio"), False, None, None)
TEXTS = ("Yes, I'll come 🎉", "stpo", "Please don't text me any more", "Can I come at 5?", "No")


def hear(text, number, minutes=0):
    now = clock.now() - timedelta(minutes=minutes)
    key = key_named("clinic", "front")
    reminder = "Reminder: your appointment is on Friday at 9:40 a.m. Reply YES to confirm."
    held(
        Status.DELIVERED, key=key, to=number, message=reminder, available_to_group=True,
        created_at=now - timedelta(hours=1), finished_at=now - timedelta(hours=1),
    )  # fmt: skip
    inbound.record([Said(number, text)], now, RULES)


def twenty():
    for n in range(20):
        hear(TEXTS[n % len(TEXTS)], f"+1212555{n:04}", n * 7)


def unread():
    return Reply.select().where(Reply.read_at.is_null()).count()


def focused(browser):
    return browser.run(
        "const e = document.activeElement; return e.tagName == 'BUTTON' ? e.textContent.trim() : ''"
    )


def test_twenty_replies_are_worked_through_on_a_phone_without_a_mouse(browser, desk):
    """A few keys for each: the text, its buttons, Enter; nobody has to find the place again."""
    twenty()
    browser.look_like(*PHONE)
    sign_in(browser, desk, Role.OPERATOR)
    browser.open(f"{desk}replies")
    began, keys = time.monotonic(), 0
    while left := unread():
        is_no = browser.text(".badge") == "may be a no" if browser.count(".badge") else False
        wanted = "Add to Do Not Call" if is_no else "Mark as read"
        while focused(browser) != wanted:
            browser.type(TAB)
            keys += 1
            assert keys < 400
        with browser.leaving():
            browser.type(ENTER)
        keys += 1
        assert unread() < left
        assert browser.run("return document.activeElement.id") == "next"
    assert time.monotonic() - began < 60
    assert keys <= 20 * 4 + 10
    assert DoNotCall.select().count() == 8
    assert browser.text("h1") == "Replies 0 unread"
    assert browser.complaints() == []


def button(words, reply):
    return f"button[name={words}][value$='{reply.id.hex}']"


def in_order():
    return list(Reply.select().order_by(Reply.may_be_no.desc(), Reply.at.desc()))


@pytest.mark.parametrize("look", [WIDE, PHONE])
def test_the_page_keeps_its_place_and_the_focus_goes_on(browser, desk, look):
    twenty()
    heard = in_order()
    browser.look_like(*look)
    sign_in(browser, desk, Role.OPERATOR)
    browser.open(f"{desk}replies")
    for n, words in ((9, "read"), (10, "list"), (4, "list")):
        top = press(browser, button(words, heard[n]))
        assert_goes_on(browser, top, f"from-{heard[n + 1].id}", look[1])
    for step in ("location.reload()", "history.back()", "history.forward()"):
        with browser.leaving():
            browser.run(step)
        assert browser.count(".result > div") == 3
        assert "is on the Do Not Call list now." in browser.text("#result")
    browser.click(".result:has(#result) button")
    browser.wait_for("return document.querySelector('#result').innerText.includes('no longer')")
    assert browser.run(FOCUS) == f"from-{heard[5].id}"
    assert DoNotCall.select().count() == 1
    assert browser.sideways() == 0
    assert browser.complaints() == []


def test_without_the_script_the_result_and_the_next_card_are_in_sight(browser, desk):
    twenty()
    heard = in_order()
    browser._devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.look_like(*PHONE)
        sign_in(browser, desk, Role.APPROVER, "front")
        browser.open(f"{desk}replies")
        press_without_script(browser, button("read", heard[9]), f"from-{heard[10].id}")
    finally:
        browser._devtools("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.APPROVER])
def test_axe_finds_nothing_and_nothing_scrolls_sideways(browser, desk, axe, role):
    twenty()
    hear("<i>\u202e" + "W" * 1590, "+12125550123")
    hear("STOP", "+12125550124")
    Reply.mark_read([Reply.get().id], "Bob", clock.now())
    script = f"{axe}\nreturn axe.run(document, {{resultTypes: ['violations']}})"
    sign_in(browser, desk, role, "front")
    message = Reply.get(Reply.may_be_no).message_id
    for page in ("replies", f"messages/{message}"):
        for look in ((*WIDE, False), (*WIDE, True), (*PHONE, False), (*PHONE, True)):
            browser.look_like(*look)
            browser.open(desk + page)
            if page == "replies":
                press(browser, "button[name=read]")
            found = browser.run(script)["violations"]
            assert [(each["id"], each["impact"]) for each in found] == [], (page, look)
        assert browser.sideways() == 0
        words = [word for word in browser.run(TORN) if set(word) != {"W"}]
        assert words == []
        height = "return Math.min(...[...document.querySelectorAll('.buttons button, header a')]"
        assert browser.run(f"{height}.map(e => e.getBoundingClientRect().height))") >= 44
