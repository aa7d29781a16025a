"""The desk in a real Chromium: days of approvers and operators, on a desktop and on a phone."""

import contextlib
import re
import time
from datetime import timedelta

import pytest
from peewee import Value, fn

from browser import ENTER, HOST
from databases import on_both
from desk_visitor import unlike
from running import ALWAYS, PUBLIC_URL, SECRET_KEY
from samples import LONDON, NEW_YORK
from stored_messages import again, held, key_named, store, store_many
from texting.access.do_not_call import DoNotCall, OptedOut
from texting.access.keys import ApiKey, Role
from texting.access.sign_ins import SignIn
from texting.carriers import IncomingText
from texting.database import clock
from texting.messages.model import Message, Status
from texting.replies import inbound
from texting.replies.inbound import ReplyRules
from texting.replies.model import Reply

LONG = "<i>\u202e" + "W" * 1590
TAB = "\ue004"
WIDE, PHONE, DESKTOP = (1100, 900), (390, 844), (1280, 900)
LOOKS = ((*WIDE, False), (*WIDE, True), (*PHONE, False), (*PHONE, True))
TOP = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
CARD = "const it = document.querySelector(arguments[0]).closest('.card'); "
PLACE = f"{CARD} it.scrollIntoView({{block: 'center'}}); return it.getBoundingClientRect().top"
FOCUS = "return document.activeElement.getAttribute('aria-labelledby')"
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
TARGETS = """return [...document.querySelectorAll('button, input, select, header a, label.to')]
    .filter((each) => !['hidden', 'checkbox'].includes(each.type) && each.offsetHeight)
    .map((each) => each.getBoundingClientRect().height)"""
LABELS = """return [...document.querySelectorAll("svg text")].map((label) =>
    parseFloat(getComputedStyle(label).fontSize) * label.getScreenCTM().a)"""


ONLY = "{resultTypes: ['violations']}"


@pytest.fixture
def desk(shared_web):
    """The address of a desk."""
    web, _ = shared_web
    return f"http://{HOST}:{web.port}/desk/"


@pytest.fixture(scope="session")
def axe(npm_package):
    """The source of axe-core, which checks accessibility."""
    return (npm_package("axe-core", "4.14.1") / "axe-core/axe.min.js").read_text()


def issue(name, role, group=None):
    return ApiKey.issue(name, group, clock.now(), role=role)


def ask(text, to=NEW_YORK, **columns):
    """Store a text of the group that waits for approval and is due in a day."""
    now = clock.now()
    waits = {"manual_mode": True, "available_to_group": True, "status": Status.SCHEDULED}
    key = key_named("shop", "front")
    at = {"send_at": now + timedelta(days=1), "created_at": now}
    return store(now, message=text, to=to, key=key, **at | waits | columns)


def sign_in(browser, desk, role, group=None, look=None):
    if look:
        browser.look_like(*look)
    browser.open(desk)
    browser.write("input[type=password]", issue(f"Ann the {role}", role, group))
    browser.press("Sign in")
    assert browser.text("h1").startswith("Waiting for approval")


def press(browser, button):
    """Press the button of a card, a selector; return where the card stood in the window."""
    top = browser.run(PLACE, button)
    with browser.leaving():
        browser.run("document.querySelector(arguments[0]).click()", button)
    return top


def select(browser, count):
    for box in range(count):
        browser.run(
            "document.querySelectorAll('.cards [type=checkbox]')[arguments[0]].click()", box
        )


def test_an_approver_approves_thirty_and_refuses_the_rest(browser, desk):
    asked = sorted((ask(unlike(number)) for number in range(32)), key=lambda text: text.id)
    sign_in(browser, desk, Role.APPROVER, "front")
    select(browser, 30)
    browser.press("Approve selected")
    assert browser.text("#result").startswith("30 texts approved: +")
    assert again(asked[0]).approved_by == "Ann the approver"
    browser.press("Refuse")
    assert browser.text("#result").startswith("1 text refused: +")
    select(browser, 1)
    browser.press("Refuse selected")
    assert browser.text(".empty") == "Nothing is waiting for approval."
    assert approved().count() == 30
    assert browser.complaints() == []


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.APPROVER])
def test_on_a_phone_all_is_whole_and_in_sight_and_a_target_for_a_finger(browser, desk, role):
    text = ask(LONG)
    hear(LONG, "+12125550188")
    browser.look_like(*PHONE)
    assert_fits(browser, desk)
    browser.open(desk.replace("/desk/", "/docs"))
    browser.wait_for("return !!document.querySelector('.responses-table')")
    assert (browser.sideways(), browser.run(TORN)) == (0, [])
    sign_in(browser, desk, role, "front")
    assert browser.text(".text") == LONG
    if role == Role.OPERATOR:
        assert min(browser.run(LABELS)) >= 11
    for page in ("", "messages", f"messages/{text.id}", "do-not-call", "nowhere", "replies"):
        assert_fits(browser, desk + page)


def assert_fits(browser, page):
    """Words are torn only where a text is one, nothing is wider, and fingers find their targets."""
    browser.open(page)
    assert browser.sideways() == 0, page
    assert {*"".join(browser.run(TORN))} <= {"W"}, page
    assert min(browser.run(TARGETS)) >= 44, page


@pytest.mark.parametrize("look", [PHONE, DESKTOP])
def test_a_long_name_of_a_key_and_its_pause_stay_in_their_column(browser, desk, look):
    issue("W" * 60, Role.SENDER)
    ApiKey.update(paused_at=clock.now() - timedelta(days=400)).execute()
    sign_in(browser, desk, Role.OPERATOR, look=look)
    browser.open(f"{desk}keys")
    edge, *ends = browser.run("""return ['.who', '.who strong', '.who .badge'].map((name) =>
        Math.max(...[...document.querySelectorAll(`.key ${name}`)].map(
            (each) => each.getBoundingClientRect().right)))""")
    assert max(ends) <= edge
    assert browser.sideways() == 0


def test_an_operators_pages_bring_nothing_of_other_hosts(browser, desk):
    text = ask("<img src=//elsewhere.test/x>")
    sign_in(browser, desk, Role.OPERATOR)
    assert "<img" in browser.text(".text")
    assert browser.count("svg[role=img]") == 2
    for page in ("messages", f"messages/{text.id}", "replies"):
        browser.open(desk + page)
    browser.open(f"{desk}do-not-call")
    browser.write("#number", "+44 20 8366 1177")
    browser.press("Add")
    assert DoNotCall.lists(LONDON)
    assert {url for url in browser.requested() if not url.startswith(desk)} == set()
    assert browser.complaints() == []


def test_the_script_writes_the_readers_time_and_asks_before_many_are_approved(browser, desk):
    now = clock.now()
    for number in range(31):
        ask(unlike(number))
    store(now, status=Status.SCHEDULED, send_at=now + timedelta(hours=2))
    with browser.living_in("Asia/Kolkata"):
        sign_in(browser, desk, Role.OPERATOR)
        browser.click(".more summary")
        assert browser.text(".more time").endswith("your time")
        assert browser.run("return document.querySelector('.more time').title").endswith(" UTC")
        busiest = browser.text("figcaption span:not(.swatch)")
        assert re.search(r"Busiest hour: \d+:30 [AP]M your time, 1 text", busiest)
        assert re.fullmatch(r"\d+:30 [AP]M", browser.text("svg text"))
        with browser.speaking("de"):
            browser.open(desk)
            assert re.fullmatch(r"\d\d:30", browser.text("svg text"))
            for words in (browser.text(".when"), browser.text("figcaption")):
                assert re.search(r"\d\d:\d\d", words)
                assert not re.search("[AP]M", words)
    browser.open(f"{desk}?select=all")
    browser.run("window.confirm = (words) => { window.asked = words; return false }")
    browser.click("button[name=approve][value=selected]")
    assert browser.run("return window.asked").startswith("Approve 31 texts?")
    assert not Message.select().where(Message.approved, Message.manual_mode).exists()
    browser.press("Refuse selected")
    assert browser.text("#result").startswith("31 texts refused: +")
    browser.press("Undo")
    assert browser.text("#result").startswith("Refusal of 31 texts undone: +")


@pytest.mark.slow
@pytest.mark.parametrize("role", [Role.OPERATOR, Role.APPROVER])
def test_axe_finds_nothing(browser, desk, axe, role):
    text = ask(LONG)
    for name in ("Ann", "Bob"):
        like = ask(f"Hi {name}, our sale starts on Friday.")
    ask("Hello", status=Status.FAILED, approved=True, finished_at=clock.now())
    twenty_replies()
    hear(LONG, "+12125550123")
    hear("STOP", "+12125550124")
    Reply.mark_read([Reply.get().id], "Bob", clock.now())
    replied = Reply.get(Reply.may_be_no).message_id

    def look(page=None, button=None, number="+1 212 555 0123"):
        """Open a page, press a button, and say what axe finds on each screen, light and dark."""
        if page is not None:
            browser.open(desk + page)
        if button and page == "do-not-call":
            browser.write("#number", number)
        if button:
            browser.press(button)
        for screen in LOOKS:
            browser.look_like(*screen)
            for each in browser.run(f"{axe}\nreturn axe.run(document, {ONLY})")["violations"]:
                found.extend((page, button, screen, each["id"], n["html"]) for n in each["nodes"])

    found = []
    for way_in in ("", "link"):
        look(way_in)
    sign_in(browser, desk, role, "front")
    pages = [
        "",
        f"?alike={like.id}",
        "?select=all",
        "messages",
        f"messages/{text.id}",
        f"messages/{replied}",
        "nowhere",
    ]
    for page in (*pages, "replies"):
        look(page)
    look("", "Refuse all")
    browser.press("Undo")
    look("replies", "Mark as read")
    if role == Role.OPERATOR:
        look("do-not-call")
        look("do-not-call", "Check", number="1")
        assert browser.count("#problem") == 1
        for words in ("Check", "Add", "Refuse"):
            look("messages" if words == "Refuse" else "do-not-call", words)
            assert browser.count("#result") == 1
    look(f"messages/{text.id}")
    look("")
    ask("new")
    browser.run(LOOK)
    browser.wait_for(TOLD)
    look()
    browser.open(desk.replace("/desk/", "/docs"))
    browser.wait_for("return !!document.querySelector('#servers[aria-label]')")
    look()
    assert found == []


def test_the_page_of_addresses_has_its_whole_width_in_a_wide_window(browser, desk):
    widths = []
    for size in (WIDE, DESKTOP):
        browser.look_like(*size)
        browser.open(desk.replace("/desk/", "/"))
        widths.append(browser.run("return document.querySelector('h1').offsetWidth"))
    assert widths == [640, 640]
    browser.open(desk.replace("/desk/", "/docs"))
    browser.wait_for("return !!document.querySelector('#samples pre')")
    left = browser.run("return document.querySelector('#samples').offsetLeft")
    assert left > 600  # beside the page


def test_a_link_from_another_site_finds_one_signed_in(browser, desk):
    here = desk.replace(HOST, "127.0.0.1")  # browsers say where a request is from to safe hosts
    sign_in(browser, here, Role.APPROVER, "front")
    browser.open(desk.replace("/desk/", "/docs"))
    browser.run(f"location.href = '{here}'")
    browser.wait_for("return document.title.startsWith('Waiting')")


def test_a_sign_in_link_on_another_site_signs_nobody_out_before_its_button(browser, desk):
    here = desk.replace(HOST, "127.0.0.1")
    sign_in(browser, here, Role.APPROVER, "front")
    issue("Bob", Role.APPROVER, "front")
    link = f"{here}link#{SignIn.make_link(ApiKey.named('Bob'), SECRET_KEY, clock.now())}"
    names = [each.key.name for each in SignIn.select()]
    for is_pressed in (False, True):
        browser.open(desk.replace("/desk/", "/docs"))
        browser.run(f"location.href = '{link}'")
        browser.wait_for(
            "return document.querySelector('[data-fragment]')?.value && !location.hash"
        )
        if is_pressed:
            browser.press("Sign in")
        browser.open(here)
        name = "Bob" if is_pressed else "Ann the approver"
        assert browser.text("footer").startswith(f"Signed in as {name}")
        assert [each.key.name for each in SignIn.select()] == ([name] if is_pressed else names)


# The open page learns of new texts

LOOK = "document.dispatchEvent(new Event('visibilitychange'))"
TOLD = "return document.querySelector('.new-texts').innerText"


def asks(browser):
    return [url for url in browser.requested() if "new-texts" in url]


@pytest.mark.parametrize("look", [WIDE, PHONE])
def test_new_texts_are_told_of_and_nothing_moves(browser, desk, asked, look):
    places = "return [...document.querySelectorAll('.card, h1, .select a')]"
    places += ".map(each => each.getBoundingClientRect().top)"
    sign_in(browser, desk, Role.APPROVER, "front", look)
    browser.run("scrollTo(0, 500)")
    before = browser.run(places)
    assert browser.run(TOLD) == ""
    for count in ("1 new text", "2 new texts"):
        ask("<b>new", send_at=clock.now())
        browser.run(LOOK)
        browser.wait_for(f"{TOLD} == '{count}'")
    assert browser.run("return document.title") == "(2) Waiting for approval · Text messages"
    assert browser.run(places) == before
    assert browser.run("return document.querySelector('.new-texts a').offsetHeight") >= 44
    assert browser.sideways() == 0
    browser.follow(".new-texts a")
    assert browser.text("h1") == "Waiting for approval 22"
    assert browser.text(".text") == "<b>new"
    assert browser.run(TOLD) == ""
    assert browser.complaints() == []


def test_nobody_is_asked_while_nobody_looks_or_is_signed_in(browser, desk, asked):
    sign_in(browser, desk, Role.APPROVER, "front")
    asks(browser)
    hide = "Object.defineProperty(document, 'hidden', {value: arguments[0], configurable: true})"
    browser.run(hide, True)
    browser.run(LOOK)
    assert asks(browser) == []
    SignIn.delete().execute()
    browser.run(hide, False)
    browser.run(LOOK)
    browser.wait_for(f"{TOLD} == 'You are signed out'")
    assert len(asks(browser)) == 1
    browser.run(LOOK)
    assert asks(browser) == []
    browser.follow(".new-texts a")
    assert browser.count("input[type=password]") == 1


# Texts that are alike


@on_both
def test_a_newsletter_of_five_thousand_is_decided_in_one_look(
    browser, database_url, serve, record_property
):
    """All are approved by one button, and none is once that is undone."""
    options = {"SECRET_KEY": SECRET_KEY, "PUBLIC_URL": PUBLIC_URL, **ALWAYS}
    web = serve(database_url, workers=1, **options)
    waits = {"manual_mode": True, "available_to_group": True, "status": Status.SCHEDULED}
    at = clock.now() + timedelta(days=1)
    shop = key_named("shop", "front")
    store_many(5_000, clock.now(), key=shop, send_at=at, message="-", **waits)
    name = fn.REPLACE(fn.REPLACE(Message.to, "1", "a"), "2", "b")
    Message.update(message=Value("Hi ").concat(name).concat(", our sale starts at 8.")).execute()
    sign_in(browser, f"http://{HOST}:{web.port}/desk/", Role.APPROVER, "front", PHONE)
    assert browser.text(".pile .to strong") == "5,000 similar texts"
    assert browser.count(".pile .text") == 3
    for words, told in (
        ("Approve all 5,000", "5,000 texts approved"),
        ("Undo", "Approval of 5,000 texts undone"),
        ("Refuse all", "5,000 texts refused"),
        ("Undo", "Refusal of 5,000 texts undone"),
    ):
        began = time.monotonic()
        browser.press(words)
        assert browser.text("#result").startswith(told)
        record_property(words, time.monotonic() - began)
        print(words, f"{time.monotonic() - began:.2f} s")
        assert Message.select().where(Message.approved).count() == 5_000 * ("Approve" in words)
        assert 0 <= browser.run(TOP, "#result") < PHONE[1]
    assert browser.sideways() == 0
    assert browser.complaints() == []


@pytest.mark.parametrize("look", [PHONE, DESKTOP])
def test_a_card_of_similar_texts_opens_into_them_and_keeps_open(browser, desk, look):
    for name in ("Ann", "Bob", "Carla M Lee", "Dan"):
        ask(f"Hi {name}, our sale starts on Friday.")
    sign_in(browser, desk, Role.APPROVER, "front", look)
    assert browser.text(".pile mark") in ("Ann", "Bob", "Dan", "Carla M Lee")
    browser.follow(".opens")
    assert browser.text("h1") == "Similar texts 4"
    browser.press("Approve")
    assert browser.text("h1") == "Similar texts 3"
    browser.press("Refuse all")
    assert browser.text("#result").startswith("3 texts refused: ")
    assert not Message.select().where(~Message.approved, Message.finished_at.is_null()).exists()
    assert browser.sideways() == 0
    assert browser.complaints() == []


@pytest.mark.parametrize("scripted", [True, False])
def test_the_result_of_twenty_is_in_view_with_its_undo_three_numbers_and_a_count(
    browser, desk, scripted
):
    """Also where the address stays the same."""
    for number in range(40):
        ask(unlike(number), send_at=clock.now())
    sign_in(browser, desk, Role.APPROVER, "front", PHONE)
    with contextlib.nullcontext() if scripted else browser.without_script():
        for _ in range(2):
            select(browser, 20)
            button = "document.querySelector('button[name=approve][value=selected]')"
            browser.run(f"{button}.scrollIntoView()")
            browser.run("window.confirm = () => true")
            if scripted:
                browser.press("Approve selected")
            else:
                with browser.leaving():
                    browser.click("button[name=approve][value=selected]")
            assert browser.text("#result").startswith("20 texts approved: +1 212-555-0123, +1 ")
            assert browser.text("#result").endswith("and 17 more")
            assert 0 <= browser.run(TOP, "#result") < browser.run(TOP, ".result button") < 800


def test_three_cards_are_on_the_screen_of_a_phone_and_the_text_is_the_largest(browser, desk):
    for number in range(4):
        ask(f"Reminder: your appointment is on Friday at 9:40 a.m. {unlike(number)}")
    sign_in(browser, desk, Role.APPROVER, "front", PHONE)
    ends = "return [...document.querySelectorAll('.card')]"
    assert browser.run(f"{ends}[2].getBoundingClientRect().bottom") <= PHONE[1]
    sizes = """return [...document.querySelectorAll('.card:first-of-type *')]
        .map((each) => [parseFloat(getComputedStyle(each).fontSize), each.closest('.text') != null])
        .sort((one, other) => other[0] - one[0])"""
    assert browser.run(sizes)[0][1]
    assert re.fullmatch(r"\d+:\d\d [AP]M there, in 2[34] hours", browser.text(".when"))
    assert (
        browser.run("return document.querySelectorAll('.card:first-of-type .when time').length")
        == 0
    )


# After a decision the page keeps its place, and goes on with the next card


def twenty_texts():
    """Return the texts that wait, in the order of the page."""
    now = clock.now()
    later = [now + timedelta(days=1, minutes=n) for n in range(20)]
    return [ask(unlike(n), send_at=at, created_at=now) for n, at in enumerate(later)]


@pytest.fixture
def asked(shared_web):
    return twenty_texts()


TEXTS = ("Yes, I'll come 🎉", "stpo", "Please don't text me any more", "Can I come at 5?", "No")


def hear(text, number, minutes=0):
    now = clock.now() - timedelta(minutes=minutes)
    key = key_named("clinic", "front")
    reminder = "Reminder: your appointment is on Friday at 9:40 a.m. Reply YES to confirm."
    at = {"created_at": now - timedelta(hours=1), "finished_at": now - timedelta(hours=1)}
    held(Status.DELIVERED, key=key, to=number, message=reminder, available_to_group=True, **at)
    inbound.record([IncomingText(number, text)], now, ReplyRules("fake", "asked", None, None))


def twenty_replies():
    """Return replies in the order of the page."""
    for n in range(20):
        hear(TEXTS[n % len(TEXTS)], f"+1212555{n:04}", n * 7)
    return list(Reply.select().order_by(Reply.may_be_no.desc(), Reply.at.desc()))


def button(words, card):
    """Return the selector of a button of a text or a reply."""
    return f"button[name={words}][value$='{card.id if isinstance(card, Message) else card.id.hex}']"


def heading(card):
    """Return the id of the heading of a card."""
    return f"{'to' if isinstance(card, Message) else 'from'}-{card.id}"


def approved():
    return Message.select(Message.id).where(Message.approved).order_by(Message.send_at)


# A page: its cards, three buttons, what they change
LISTS = {
    "": (twenty_texts, ("approve", "refuse", "approve"), approved),
    "replies": (twenty_replies, ("read", "list", "list"), OptedOut.select),
}


@pytest.mark.parametrize("page", LISTS)
@pytest.mark.parametrize("look", [WIDE, PHONE])
def test_the_page_keeps_its_place_and_the_focus_goes_on(browser, desk, page, look):
    """The result stands where the card stood, the next card has the focus and is in sight."""
    make, buttons, changed = LISTS[page]
    cards = make()
    sign_in(browser, desk, Role.OPERATOR, look=look)
    browser.open(desk + page)
    for n, words in zip((9, 10, 4), buttons, strict=True):
        top = press(browser, button(words, cards[n]))
        browser.wait_for("return !sessionStorage.top")
        assert browser.run(TOP, ".result") == pytest.approx(top, abs=2)
        assert browser.run(FOCUS) == heading(cards[n + 1])
        assert browser.run(TOP, ":focus") < look[1]
    assert changed().count() == 2
    assert browser.sideways() == 0
    assert browser.complaints() == []


def test_the_page_stays_where_an_undo_was_pressed(browser, desk, asked):
    sign_in(browser, desk, Role.APPROVER, "front")
    press(browser, button("refuse", asked[9]))
    browser.wait_for("return !sessionStorage.top")
    top = browser.run(TOP, ".result")
    with browser.leaving():
        browser.run("document.querySelector('.result button').click()")
    browser.wait_for("return !sessionStorage.top")
    assert browser.text("#result").startswith("Refusal of 1 text undone")
    assert browser.run(TOP, ".result") == pytest.approx(top, abs=2)
    assert browser.run(FOCUS) == heading(asked[10])


@pytest.mark.parametrize("page", LISTS)
def test_without_the_script_the_result_and_the_first_card_are_in_sight(browser, desk, page):
    make, (words, *_), _ = LISTS[page]
    cards = make()
    with browser.without_script():
        sign_in(browser, desk, Role.APPROVER, "front", PHONE)
        browser.open(desk + page)
        browser.click(button(words, cards[9]))
        browser.wait_for("return location.hash == '#list' && !!document.querySelector('#result')")
        assert 0 <= browser.run(TOP, "#result") < browser.run(TOP, ".card") < PHONE[1]


def test_after_eleven_decisions_the_next_card_is_still_in_sight(browser, desk, asked):
    sign_in(browser, desk, Role.APPROVER, "front", PHONE)
    for n in range(11):
        press(browser, button("refuse", asked[n]))
        browser.wait_for("return !sessionStorage.top")
        assert browser.run(FOCUS) == f"to-{asked[n + 1].id}"
        assert 0 < browser.run(TOP, ".result") < browser.run(TOP, ":focus") < 600
    assert browser.text(".result summary") == "8 earlier"
    browser.click(".result summary")
    assert browser.run("return document.querySelectorAll('.result details .undo').length") == 8
    assert browser.sideways() == 0


def test_the_seconds_count_down_undo_goes_with_the_last_and_nothing_moves(browser, desk, asked):
    sign_in(browser, desk, Role.APPROVER, "front", PHONE)
    press(browser, button("refuse", asked[0]))
    browser.wait_for(
        "return /for 5[0-8] seconds/.test(document.querySelector('[data-left]').innerText)"
    )
    before = browser.run(TOP, ":focus")
    browser.run("const now = Date.now; Date.now = () => now() + 60_000")
    browser.wait_for("return document.querySelector('.undo').innerText == 'Too late to undo'")
    assert browser.run("return !document.querySelector('[data-left], .undo button')")
    assert browser.text("#result").startswith("1 text refused")
    assert browser.run(TOP, ":focus") == before


def test_space_ticks_a_box_and_enter_in_it_approves_nothing(browser, desk, asked):
    sign_in(browser, desk, Role.APPROVER, "front")
    browser.run("document.querySelector('.cards input').focus()")
    browser.type(ENTER)
    browser.type(" ")
    assert browser.run("return document.querySelector('.cards input').checked")
    assert browser.text(".chosen") == ""  # what follows is the style sheet's
    shown = "return getComputedStyle(document.querySelector('.chosen'), '::before').content"
    assert browser.run(shown) == 'counter(chosen) " selected"'
    assert not approved().exists()


@pytest.mark.parametrize("page", LISTS)
def test_without_a_mouse_a_few_keys_decide_on_each_card(browser, desk, page):
    """The text, its buttons, Enter: nobody has to find the place again."""
    make, (words, *_), *_ = LISTS[page]
    cards = make()
    sign_in(browser, desk, Role.OPERATOR, look=PHONE)
    browser.open(desk + page)
    browser.run(f'document.querySelector("{button(words, cards[0])}").focus()')
    for _ in range(6):
        for _ in range(5):
            if browser.run("return document.activeElement.name") == words:
                break
            browser.type(TAB)
        with browser.leaving():
            browser.type(ENTER)
        browser.wait_for("return document.activeElement.className.startsWith('card')")
    assert re.search(r"\d+", browser.text("h1"))[0] == "14"
    assert browser.complaints() == []


def test_a_long_text_is_folded_and_unfolds_by_a_key(browser, desk):
    ask("\n".join(f"line {n}" for n in range(30)), send_at=clock.now() + timedelta(hours=1))
    ask("short")
    heights = "return [...document.querySelectorAll('.text span')]"
    heights += ".map((each) => each.getBoundingClientRect().height)"
    line = "return parseFloat(getComputedStyle(document.querySelector('.text')).lineHeight)"
    sign_in(browser, desk, Role.APPROVER, "front")
    for look in (PHONE, WIDE, DESKTOP):
        browser.look_like(*look)
        browser.open(desk)
        height = browser.run(line)
        assert browser.run(heights) == pytest.approx([6 * height, height], abs=1)
        browser.run("document.querySelector('.text summary').focus()")
        browser.type(ENTER)
        assert browser.run(heights) == pytest.approx([30 * height, height], abs=1)
        assert browser.sideways() == 0


def test_rows_are_compact_on_a_desktop(browser, desk, asked):
    sign_in(browser, desk, Role.APPROVER, "front", DESKTOP)
    heights = browser.run(
        "return [...document.querySelectorAll('.card')].map(e => e.getBoundingClientRect().height)"
    )
    assert max(heights) <= 140


# One grid

EDGES = """return Object.fromEntries(arguments[0].map((name) => {
    const { left, right } = document.querySelector(name).getBoundingClientRect();
    return [name, [Math.round(left), Math.round(right)]];
}))"""
WORDS_BEGIN = """const first = (name) => {
    const walk = document.createTreeWalker(document.querySelector(name), NodeFilter.SHOW_TEXT);
    while (walk.nextNode() && !walk.currentNode.data.trim());
    const range = document.createRange();
    range.selectNodeContents(walk.currentNode);
    return range.getClientRects()[0].left;
};
return arguments[0].map(first)"""


@pytest.mark.parametrize(("width", "edge"), [(390, 16), (1280, 48)])
def test_header_tabs_cards_strips_and_bubbles_are_on_one_grid(browser, desk, width, edge):
    twenty_replies()
    hear("No\n" * 30, "+12125550099")
    browser.look_like(width, 900)
    sign_in(browser, desk, Role.OPERATOR)
    browser.open(f"{desk}replies")
    browser.press("Mark as read")
    browser.press("Mark as read")
    if width > 390:
        edge -= browser.run("return innerWidth - document.documentElement.clientWidth") / 2
    left_of = ("header .name", "h1", ".card", ".notice", ".cards")
    edges = browser.run(EDGES, [*left_of, "header form"])
    if width == 390:
        left_of += ("header nav a",)
        edges |= browser.run(EDGES, ["header nav a"])
    assert [edges[name][0] for name in left_of] == [pytest.approx(edge, abs=1)] * len(left_of)
    whole = edges["header form"][1]
    assert {edges[name][1] for name in (".card", ".notice", ".cards")} == {whole}
    strip, card = browser.run(WORDS_BEGIN, [".notice", ".card .to strong"])
    assert strip == pytest.approx(card, abs=1)
    ends = "return [...document.querySelectorAll('.card .text')]"
    ends += ".map((each) => Math.round(each.getBoundingClientRect().right))"
    assert len({*browser.run(ends)}) == 1
    broken = "return [...document.querySelectorAll('.number, .to strong')]"
    broken += ".filter((each) => each.getClientRects().length > 1).length"
    assert browser.run(broken) == 0
    assert browser.sideways() == 0


# The way in


def test_a_key_is_seen_while_it_is_typed_and_a_password_again_when_it_is_sent(browser, desk):
    browser.look_like(*PHONE)
    browser.open(desk)
    kind = "return document.querySelector('#key').type"
    browser.write("#key", "tms_wrong")
    for words, shown in (("Show", "text"), ("Hide", "password"), ("Show", "text")):
        browser.click(f"button[aria-label='{words} the key']")
        assert browser.run(kind) == shown
        assert browser.run("return document.activeElement.id") == "key"
    browser.run("document.forms[0].addEventListener('submit', (event) => event.preventDefault())")
    browser.click("button.yes")
    assert browser.run(kind) == "password"
    assert browser.run("return document.querySelector('#key').value") == "tms_wrong"


def test_a_link_signs_in_and_leaves_no_trace_in_the_address(browser, desk, shared_web):
    issue("Ann", Role.APPROVER, "front")
    link = f"{desk}link#{SignIn.make_link(ApiKey.named('Ann'), SECRET_KEY, clock.now())}"
    for told in ("Waiting for approval 0", "Sign in"):
        browser.open("about:blank")
        browser.open(link)
        assert browser.run("return location.hash") == ""
        browser.press("Sign in")
        assert browser.text("h1") == told
        if told != "Sign in":
            browser.press("Sign out")
    assert "This link was used" in browser.text("[role=alert]")
