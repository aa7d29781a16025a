"""The desk in a real Chromium: an approver's and an operator's day, on a desktop and on a phone."""

from datetime import timedelta

import pytest

from access.do_not_call import DoNotCall
from access.keys import Role
from browser import ENTER, HOST
from database import clock
from desk_in_browser import PHONE, TORN, WIDE, ask, sign_in
from models import Message, Status
from running import ALWAYS
from samples import LONDON
from stored_messages import again, store

LONG = "<i>\u202e" + "W" * 1590


def select(browser, count):
    for box in range(count):
        browser.run(
            "document.querySelectorAll('.cards [type=checkbox]')[arguments[0]].click()", box
        )


def test_an_approver_approves_one_then_thirty_and_refuses_the_rest(browser, desk):
    asked = sorted((ask(f"text {number}") for number in range(33)), key=lambda text: text.id)
    sign_in(browser, desk, Role.APPROVER, "front")
    assert browser.text("h1") == "Waiting for approval 33"
    browser.press("Approve")
    assert browser.text("#result").startswith("1 text approved: +")
    assert again(asked[0]).approved_by == "Ann the approver"
    select(browser, 30)
    browser.press("Approve selected")
    assert browser.text("#result").startswith("30 texts approved: +")
    browser.press("Refuse", 1)
    assert browser.text("#result").startswith("1 text refused: +")
    select(browser, 1)
    browser.press("Refuse selected")
    assert browser.text(".empty") == "Nothing is waiting for approval."
    assert Message.select().where(Message.approved).count() == 31
    assert again(asked[32]).status == again(asked[31]).status == Status.CANCELLED
    browser.press("Sign out")
    assert browser.count("input[type=password]") == 1
    assert browser.complaints() == []


def test_a_phone_shows_a_hostile_text_whole_and_nothing_scrolls_sideways(browser, desk):
    message = ask(LONG)
    browser.look_like(*PHONE)
    browser.open(desk)
    assert browser.sideways() == 0
    sign_in(browser, desk, Role.OPERATOR)
    assert browser.text(".text") == LONG.replace("\u202e", "U+202E")
    for page in ("", "messages", f"messages/{message.id}", "do-not-call", "nowhere"):
        browser.open(desk + page)
        assert browser.sideways() == 0, page
    browser.open(desk)
    height = "return Math.min(...[...document.querySelectorAll('button, input, select, header a')]"
    height += ".filter(e => e.type != 'hidden' && e.type != 'checkbox' && e.offsetHeight)"
    assert browser.run(f"{height}.map(e => e.getBoundingClientRect().height))") >= 44
    assert browser.run("return document.querySelector('label.to').offsetHeight") >= 44


def test_a_race_with_a_sender_is_told(browser, desk, shared_web, start, twilio):
    environ = {"DATABASE_URL": shared_web[0].database_url, "CARRIER_URL": twilio.url} | ALWAYS
    message = ask("Hello", status=Status.QUEUED, send_at=clock.now())
    sign_in(browser, desk, Role.APPROVER, "front")
    message.approve("Bob", clock.now())
    assert start("scheduler.py", **environ).wait() == 0
    assert again(message).status == Status.SENT
    browser.press("Refuse")
    told = browser.text("#result")
    assert "1 text not changed" in told
    assert "+1 212-555-0123 was sent." in told
    assert again(message).status == Status.SENT


def test_an_operators_day_brings_nothing_of_other_hosts(browser, desk):
    failed = store(clock.now(), status=Status.FAILED, to=LONDON, finished_at=clock.now())
    waiting = ask("not this one", manual_mode=False)
    ask("<img src=//elsewhere.test/x>", to=LONDON)
    sign_in(browser, desk, Role.OPERATOR)
    assert "<img" in browser.text(".text")
    assert browser.count("svg[role=img]") == 2
    browser.open(f"{desk}messages?status=failed")
    browser.press("Retry")
    assert browser.text("#result").startswith("1 text retried: +")
    assert again(failed).status == Status.SCHEDULED
    browser.open(f"{desk}messages")
    browser.write("#number", "+1 212 555 0123")
    browser.press("Show")
    browser.follow(".to a")
    browser.press("Cancel")
    assert browser.text("#result").startswith("1 text cancelled: +")
    assert again(waiting).status == Status.CANCELLED
    assert "was cancelled by Ann the operator" in browser.text(".history")
    browser.open(f"{desk}do-not-call")
    for button, told in (("Add", "is on the list now"), ("Remove", "is no longer on the list")):
        browser.write("#number", "+44 20 8366 1177")
        browser.press(button)
        assert told in browser.text("[role=status]")
        assert DoNotCall.lists(LONDON) is (button == "Add")
    assert {url for url in browser.requested() if not url.startswith(desk)} == set()
    assert browser.complaints() == []


def test_the_keyboard_reaches_everything_and_enter_in_a_box_approves_nothing(browser, desk):
    message = ask("Hello")
    sign_in(browser, desk, Role.APPROVER, "front")
    browser.run("document.querySelector('.cards input').focus()")
    browser.type(ENTER)
    browser.type(" ")
    assert browser.run("return document.querySelector('.cards input').checked")
    assert browser.text(".chosen") == ""  # what follows is the style sheet's
    shown = "return getComputedStyle(document.querySelector('.chosen'), '::before').content"
    assert browser.run(shown) == 'counter(chosen) " selected"'
    assert not again(message).approved
    browser.run("document.querySelector('button[name=approve]').focus()")
    with browser.leaving():
        browser.type(ENTER)
    assert browser.text("#result").startswith("1 text approved: +")
    assert again(message).approved


def test_the_script_writes_the_readers_time_and_asks_before_many_are_approved(browser, desk):
    now = clock.now()
    for number in range(31):
        ask(f"text {number}")
    store(now, status=Status.SCHEDULED, send_at=now + timedelta(hours=2))
    with browser.living_in("Asia/Kolkata"):
        sign_in(browser, desk, Role.OPERATOR)
        assert "GMT+5:30" in browser.text(".when time")
        assert browser.run("return document.querySelector('.when time').title").endswith(" UTC")
        assert ":30 GMT+5:30, 1 text" in browser.text("figcaption span:not(.swatch)")
        assert browser.text("svg text").endswith(":30")
    browser.open(f"{desk}?select=all")
    browser.run("window.confirm = (words) => { window.asked = words; return false }")
    browser.click("button[name=approve][value=selected]")
    assert browser.run("return window.asked").startswith("Approve 31 texts?")
    assert not Message.select().where(Message.approved, Message.manual_mode).exists()
    browser.press("Refuse selected")
    assert browser.text("#result").startswith("31 texts refused: +")
    browser.press("Undo")
    assert browser.text("#result").startswith("31 texts no longer refused: +")


def test_on_a_phone_words_are_whole_and_labels_can_be_read(browser, desk):
    ask("Hello")
    browser.look_like(*PHONE)
    browser.open(desk.replace("/desk/", "/docs"))
    browser.wait_for("return !!document.querySelector('.responses-table')")
    assert browser.sideways() == 0
    assert browser.run(TORN) == []
    sign_in(browser, desk, Role.OPERATOR)
    assert browser.run(TORN) == []
    sizes = """return [...document.querySelectorAll("svg text")].map((label) =>
        parseFloat(getComputedStyle(label).fontSize) * label.getScreenCTM().a)"""
    assert min(browser.run(sizes)) >= 11


@pytest.mark.slow
def test_axe_finds_nothing(browser, desk, axe):
    message = ask(LONG)
    ask("Hello", status=Status.FAILED, approved=True, finished_at=clock.now())

    def findings():
        """What axe reports about the page on each screen, in light and dark mode."""
        script = f"{axe}\nreturn axe.run(document, {{resultTypes: ['violations']}})"
        for look in ((*WIDE, False), (*WIDE, True), (*PHONE, False), (*PHONE, True)):
            browser.look_like(*look)
            for each in browser.run(script)["violations"]:
                yield from ((look, each["id"], node["html"]) for node in each["nodes"])

    browser.open(desk)
    assert [*findings()] == []
    sign_in(browser, desk, Role.OPERATOR)
    pages = ("", "?select=all", "messages", f"messages/{message.id}")
    for page in (*pages, "do-not-call", "nowhere"):
        browser.open(desk + page)
        assert [*findings()] == [], page
    browser.open(desk + "messages")
    browser.write("#number", "1")
    browser.press("Show")
    browser.wait_for("return document.querySelector('#problem')")
    assert [*findings()] == []
    for button, page in (("Check", "do-not-call"), ("Add", "do-not-call"), ("Refuse", "messages")):
        browser.open(desk + page)
        if button != "Refuse":
            browser.write("#number", "+1 212 555 0123")
        browser.press(button)
        assert browser.count("#result") == 1
        assert [*findings()] == [], button
    for page in ("", f"messages/{message.id}"):
        browser.open(desk + page)
        assert [*findings()] == [], page
    browser.open(desk.replace("/desk/", "/docs"))
    browser.wait_for("return !!document.querySelector('#servers[aria-label]')")
    assert [*findings()] == []


def test_a_link_from_another_site_finds_one_signed_in(browser, desk):
    here = desk.replace(HOST, "127.0.0.1")  # browsers say where a request is from to safe hosts
    sign_in(browser, here, Role.APPROVER, "front")
    browser.open(desk.replace("/desk/", "/docs"))
    browser.run(f"location.href = '{here}'")
    browser.wait_for("return document.title.startsWith('Waiting')")
