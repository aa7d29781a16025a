"""The pages of messages: an operator finds, cancels and retries them, and reads their history.

A search for a number leaves the number in no address, which proxies and browsers keep.
"""

import json
import re
from datetime import timedelta

import pytest

from databases import on_both
from desk_visitor import Visitor, ask, next_page, rows, signed_in, walk
from samples import DAY, HOUR, LONDON, MILLISECOND, MINUTE, NEW_YORK, TUESDAY_NOON
from stored_messages import again, decide_on, held, key_named, store
from texting.access.keys import ApiKey
from texting.access.sign_ins import SignIn
from texting.events.outbox import Event, EventAddress
from texting.messages.attempts import Attempt
from texting.messages.model import FINISHED, Message, Status, new_id
from texting.sending import retention

MIDNIGHT = TUESDAY_NOON.replace(hour=0)
CREATED = {  # by when
    "text 1": MIDNIGHT - MILLISECOND,
    "text 2": MIDNIGHT,
    "text 3": MIDNIGHT + DAY - MILLISECOND,
    "text 4": MIDNIGHT + DAY,
}
DIGITS = "20836611"


def found(operator, path):
    return sorted(text for page in walk(operator, f"/desk/messages{path}") for text in page)


# By status, key and day


@on_both
@pytest.mark.parametrize("status", [None, *Status])
def test_messages_are_found_by_key_day_and_status_in_every_mix(operator, status):
    for text, at in CREATED.items():
        for key in ("app", "shop"):
            held(
                status or Status.QUEUED,
                message=text if key == "shop" else text.replace("text ", "text 1"),
                key=key_named(key),
                id=new_id(at),
                created_at=at,
                finished_at=TUESDAY_NOON if status in FINISHED else None,
                approved=key == "shop",
            )
    more = f"&status={status}" if status else ""
    assert len(found(operator, f"?{more}")) == 8
    assert found(operator, f"?key=shop{more}") == [*CREATED]
    assert found(operator, f"?day=2026-03-03{more}") == ["text 12", "text 13", "text 2", "text 3"]
    assert found(operator, f"?day=2026-03-03&key=shop{more}") == ["text 2", "text 3"]
    other = "failed" if status != Status.FAILED else "sent"
    assert found(operator, f"?day=2026-03-03&key=shop&status={other}") == []


@on_both
@pytest.mark.parametrize("status", [None, Status.SCHEDULED, Status.SENT, Status.SENDING])
def test_pages_of_a_key_and_day_skip_nothing(operator, status):
    ended = TUESDAY_NOON if status == Status.SENT else None
    for n in range(110):
        key = key_named(f"key {n % 2}")
        held(status or Status.QUEUED, message=f"text {n}", finished_at=ended, key=key)
    for query, count in (("", 110), ("&key=key 1&day=2026-03-03", 55)):
        seen = found(operator, f"?status={status or ''}{query}")
        assert len(seen) == len({*seen}) == count


def test_the_form_asks_for_all_of_them_and_keeps_what_was_asked(operator):
    for n, (key, to) in enumerate((("app", LONDON), ("shop", LONDON), ("shop", NEW_YORK))):
        store(message=f"text {n}", key=key_named(key), to=to)
    operator.open("/desk/messages")
    operator.press("Show", find=LONDON, key="shop", day="2026-03-03", status="queued")
    assert rows(operator) == ["text 1"]
    query = "find=on&status=queued&key=shop&day=2026-03-03"
    assert operator.at == f"/desk/messages?{query}"
    chosen = [attrs for tag, attrs in operator.page.elements if tag == "option"]
    assert sum("selected" in attrs for attrs in chosen) == 2
    assert {("day", "2026-03-03"), ("find", LONDON)} <= {*operator.page.forms[1]["inputs"]}
    operator.press("Show", find="", key="", day="", status="sent")
    assert operator.at == "/desk/messages?status=sent"


def test_keys_that_send_are_offered_each_name_once(operator, run):
    for _ in range(3):
        run("keys", "create", "shop")
        run("keys", "revoke", "shop")
    run("keys", "create", "another")
    page = operator.open("/desk/messages").text
    offered = re.findall("<option>([^<]*)</option>", page[page.index('<select id="key"') :])
    assert offered == ["another", "shop"]


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        *((f"key={key}", 400, "no such key") for key in ("none", "%00")),
        *((f"day={d}", 400, "2026-11-24") for d in ("x", "2026-02-30", "9999-12-31", "%00")),
        *(
            (f"day={day}", 200, "No message matches")
            for day in ("0001-01-01", "1969-12-31", "9999-12-30")
        ),
    ],
)
def test_what_there_is_not_is_a_page_that_says_so(operator, asked, status, words):
    store(message="another")
    assert operator.open(f"/desk/messages?{asked}").status_code == status
    assert words in operator.page.text
    assert "another" not in operator.page.text


# By number


def search(visitor, words, **fields):
    visitor.open("/desk/messages")
    return visitor.press("Show", find=words, **fields)


@pytest.fixture
def asked_for(app):
    """Every address that the desk was asked for, with the query."""
    asked, serve = [], app.wsgi_app

    def keep(environ, start_response):
        asked.append(f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}")
        return serve(environ, start_response)

    app.wsgi_app = keep
    return asked


@on_both
def test_no_address_of_a_search_has_the_number(asked_for, operator):
    for n in range(60):
        ask(f"text {n}", to=LONDON)
    store(message="another")
    assert search(operator, "+44 20 8366 1178").status_code == 200
    assert "No message matches" in operator.page.text
    search(operator, "+44 20 8366 1177")
    seen, page = [], operator.at
    while page:
        operator.open(page)
        assert DIGITS not in "".join(operator.page.links)
        assert "another" not in operator.page.text
        seen += rows(operator)
        page = next_page(operator)
    assert len({*seen}) == len(seen) == 60
    operator.press("Approve", Message.get(Message.message == seen[-1]))
    assert rows(operator)[1] == seen[50]
    assert "another" not in operator.page.text
    search(operator, NEW_YORK)
    assert "another" in operator.page.text
    assert len(asked_for) > 8
    assert DIGITS not in "".join(asked_for)


@on_both
@pytest.mark.parametrize("page", ["/desk/messages", "/desk/replies"])
@pytest.mark.parametrize("words", ["xyzzy", "+44 20 8366 1177", "ünsägbar"])
def test_the_cookie_does_not_tell_what_a_person_looks_for(app, operator, page, words):
    another = signed_in(app, "Bob", role="operator")
    for visitor, find in ((another, "another"), (operator, words)):
        visitor.open(page)
        visitor.press("Show", find=find)
    assert f'value="{words}"' in operator.response.text
    cookie = operator.client.get_cookie("desk", path="/desk/").value
    kept = app.session_interface.get_signing_serializer(app).loads(cookie)
    assert words not in json.dumps(kept, ensure_ascii=False)
    assert 'value="another"' in another.open(another.at).text
    operator.press("Sign out")
    assert [each.looks_for for each in SignIn.select()] == ["another"]


@on_both
@pytest.mark.parametrize(
    "words",
    [
        *("+442083661177", "+44 (0)20 8366-1177", "+44.20.8366.1177", "020 8366-1177", "366 11"),
        *("ONE this", "ünique", "ÜNIQUE", "100%", "a_b", "back\\slash", "4711"),
    ],
)
def test_messages_are_found_by_a_part_of_the_number_or_by_words(operator, words):
    store(message="this one is Ünique 100% a_b back\\slash 4711", to=LONDON)
    store(message="another 100 axb backslash", to=NEW_YORK)
    for status in ("", "queued"):
        search(operator, words, status=status)
        assert "this one" in operator.page.text
        assert "another" not in operator.page.text


def test_a_search_looks_through_so_many_messages_and_then_further(operator, monkeypatch):
    for n in range(30):
        at, key = TUESDAY_NOON + n * MINUTE, key_named(f"key {n % 2}")
        store(at, message=f"text {n} of {n + 100}", key=key)
    monkeypatch.setattr("texting.reports.search.LOOKED_THROUGH", 10)
    for key, pages in (("", [[], [], ["text 4"], []]), ("key 1", [[], [], [], []])):
        search(operator, "of 104", key=key)
        seen = [rows(operator)]
        while path := next_page(operator):
            assert bool(seen[-1]) is ("None found so far." not in operator.page.text)
            operator.open(path)
            seen.append(rows(operator))
        assert seen == pages


def test_a_whole_number_is_found_however_old_its_texts_are_until_it_is_cleared(
    operator, monkeypatch
):
    store(message="this one", to=LONDON, status=Status.SENT, finished_at=TUESDAY_NOON)
    for _ in range(5):
        store(message="another")
    monkeypatch.setattr("texting.reports.search.LOOKED_THROUGH", 2)
    search(operator, LONDON)
    there = operator.at
    assert "this one" in operator.page.text
    retention.redact_number(LONDON, TUESDAY_NOON)
    assert operator.open(there).status_code == 200
    assert "this one" not in operator.page.text
    assert "another" not in operator.page.text


def test_only_an_operator_searches_and_only_by_a_form_of_the_desk(app, operator, approver):
    assert approver.send("/desk/search", find=LONDON).status_code == 403
    assert approver.open("/desk/messages?find=on").status_code == 403
    assert operator.post("/desk/search", [("find", LONDON)]).status_code == 400
    assert Visitor(app).send("/desk/search", find=LONDON).status_code == 403
    operator.open()
    assert operator.send("/desk/search", find=LONDON, status="x").status_code == 400


def test_below_a_prefix_the_search_stays_there(app):
    store(message="this one", to=LONDON)
    visitor = signed_in(app, "Olga", role="operator", prefix="/stage")
    search(visitor, LONDON)
    assert "this one" in visitor.page.text


# Buttons


def test_every_button_is_named_with_its_number(operator):
    ask()
    store(status=Status.SCHEDULED, to=LONDON)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON)
    operator.open("/desk/messages")
    named = {
        "Refuse": "Refuse the text to +1 212-555-0123",
        "Approve": "Approve the text to +1 212-555-0123",
        "Cancel": "Cancel the text to +44 20 8366 1177",
        "Retry": "Retry the text to +1 212-555-0123",
    }
    for words, name in named.items():
        assert [button["aria-label"] for _, button in operator.page.buttons(words)] == [name]


@pytest.mark.parametrize(
    ("status", "button", "past", "became"),
    [
        (Status.SCHEDULED, "Cancel", "cancelled", Status.CANCELLED),
        (Status.FAILED, "Retry", "retried", Status.SCHEDULED),
        (Status.BLOCKED, "Retry", "retried", Status.SCHEDULED),
        (Status.EXPIRED, "Retry", "retried", Status.SCHEDULED),
    ],
)
@pytest.mark.parametrize("page", ["?status={}", "/{}"])
def test_an_operator_cancels_and_tries_again(operator, page, status, button, past, became):
    message = store(status=status, finished_at=TUESDAY_NOON if status in FINISHED else None)
    operator.open("/desk/messages" + page.format(status if "?" in page else message.id))
    operator.press(button, message)
    assert f"1 text {past}" in operator.page.text
    kept = again(message)
    assert (kept.status, kept.cancelled_by) == (became, "Olga" if button == "Cancel" else None)


def test_what_is_redacted_cannot_be_tried_again(operator):
    message = store(status=Status.FAILED, finished_at=TUESDAY_NOON, to=None, message=None)
    assert "cleared" in operator.read(f"/desk/messages/{message.id}")
    assert not operator.page.buttons("Retry")
    operator.send("/desk/messages", retry=message.id)
    assert again(message).status == Status.FAILED


# The page of a message


@pytest.mark.parametrize("status", Status)
def test_it_says_how_the_message_stands(operator, status):
    message = held(status, finished_at=TUESDAY_NOON if status in FINISHED else None)
    operator.open(f"/desk/messages/{message.id}")
    assert re.search(r"\bThis text (is|was|waits|expired|could)\b.*\.", operator.page.text)


def test_it_has_the_attempts_in_the_carriers_words(operator):
    message = store(status=Status.FAILED, finished_at=TUESDAY_NOON)
    Attempt.create(
        message=message, claim_number=1, carrier="us", begun_at=TUESDAY_NOON - HOUR,
        ended_at=TUESDAY_NOON - HOUR, result="refused", words="<busy>",
    )  # fmt: skip
    Attempt.create(
        message=message, claim_number=2, carrier="eu", begun_at=TUESDAY_NOON, result=None
    )
    operator.open(f"/desk/messages/{message.id}")
    attempts = operator.page.text.partition("Attempts")[2].partition("Details")[0]
    assert attempts.index("us refused it: <busy>") < attempts.index("eu has not answered yet")


def test_it_has_the_history(operator):
    message = store(
        status=Status.DELIVERED,
        created_at=TUESDAY_NOON - 3 * HOUR,
        manual_mode=True,
        approved=True,
        approved_by="Ann",
        approved_at=TUESDAY_NOON - 2 * HOUR,
        finished_at=TUESDAY_NOON - HOUR,
        receipt_at=TUESDAY_NOON - HOUR / 2,
        event_delivered_at=TUESDAY_NOON,
        attempts=2,
        carrier_reference="SM1",
    )
    operator.open(f"/desk/messages/{message.id}")
    history = operator.page.text.partition("History")[2].lower()
    told = ("requested by app", "approved by ann", "was sent", "reached the phone")
    places = [history.index(words) for words in (*told, "webhook delivered to app")]
    assert places == sorted(places)
    for words in ("SM1", "2 of at most 4", str(message.id), NEW_YORK):
        assert words in operator.page.text
    Message.update(event_delivered_at=None).execute()
    assert "webhook delivered" not in operator.open(f"/desk/messages/{message.id}").text


def test_it_has_seconds_and_when_it_expires(operator):
    at = TUESDAY_NOON + timedelta(seconds=7)
    message = ask(first_send_at=at, send_at=at, expires_at=at + DAY)
    text = operator.read(f"/desk/messages/{message.id}")
    assert "Due 5:00:07 PM, Tuesday, Mar 3 UTC Expires 5:00:07 PM, Wednesday, Mar 4 UTC" in text
    assert re.search(r"requested by shop [\w ]+ · \d+:\d\d:\d\d [AP]M, ", text)


@pytest.mark.parametrize("moved", [timedelta(0), MILLISECOND, HOUR])
def test_it_was_originally_due_at_another_time_only_where_that_moved(operator, moved):
    message = ask(first_send_at=TUESDAY_NOON, send_at=TUESDAY_NOON + moved)
    told = "Originally due" in operator.read(f"/desk/messages/{message.id}")
    assert told is bool(moved)


@pytest.mark.parametrize(
    ("back", "tab"),
    [("", "Waiting"), ("messages?status=sent", "Messages"), ("replies", "Replies")],
)
def test_it_marks_the_tab_that_led_to_it(operator, back, tab):
    operator.open(f"/desk/messages/{store().id}?back={back}")
    marked = re.findall(r'aria-current="true">(\w+)<', operator.response.text)
    assert marked == [tab]
    assert not re.findall('aria-current="page"', operator.response.text)


@on_both
def test_it_says_where_its_event_goes_and_whether_that_was_taken(operator):
    message = store()
    page, key = f"/desk/messages/{message.id}", ApiKey.get_by_id(message.key_id)
    assert "Events" not in operator.read(page)
    EventAddress.set(key, "https://x.test/hook?token=secret", TUESDAY_NOON)
    EventAddress.set(key_named("other"), "https://other.test", TUESDAY_NOON)
    assert "Events https://x.test/hook?token=***, none yet" in operator.read(page)
    for each in (message, store()):
        decide_on(each).cancel("Olga", TUESDAY_NOON)
    event = Event.get(Event.message_id == message.id)
    assert "***, not taken after 0 attempts" in operator.read(page)
    event.failed("503", TUESDAY_NOON + HOUR, TUESDAY_NOON)
    assert "***, not taken after 1 attempt: 503" in operator.read(page)
    Event.get_by_id(event.id).failed("410", None, TUESDAY_NOON)
    assert "***, given up, not taken after 2 attempts: 410" in operator.read(page)
    Event.delete().where(Event.id == event.id).execute()
    Message.record_notified([message.id], TUESDAY_NOON - HOUR)
    assert "***, taken 1 hour ago" in operator.read(page)
    assert "secret" not in operator.response.text


@on_both
@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ("0123", ["+12125550123"]),
        ("123", ["+12125550123", "+12125551234"]),
        ("020836", ["+442083661177"]),
        ("0208 3661", ["+442083661177"]),
        ("000", []),
    ],
)
def test_a_search_for_digits_finds_these_and_a_national_number(operator, words, numbers):
    for number in ("+12125550123", "+12125551234", "+442083661177"):
        store(to=number, message=f"to {number}")
    search(operator, words)
    assert sorted(re.findall(r"to (\+\d+)", operator.page.text)) == sorted(numbers)
