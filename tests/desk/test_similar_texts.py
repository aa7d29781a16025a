"""Texts that are alike are one card while they wait, decided and undone together."""

import random
import re
import time
import uuid
from base64 import urlsafe_b64encode

import pytest

from app import create_app
from databases import on_both
from desk_visitor import UNDONE, ask, ask_many, signed_in, unlike
from own_threads import at_once
from samples import DAY, LONDON, MILLISECOND, MINUTE, SECOND, TUESDAY_NOON
from stored_messages import again, decide_on, store, store_many
from texting.access.audit import Audit
from texting.access.limits import parse_recipient_limit
from texting.desk import cards
from texting.messages.model import Message, Status

TEXT = "Hi {}, our sale starts on Friday: {}% off all boots."
NAMES = ("Ann", "Bob", "Carla de Cruz", "Dan")


def newsletter(names=NAMES, **columns):
    """Store texts that are alike, the first to be sent first."""
    at = TUESDAY_NOON + DAY
    usual = {"status": Status.SCHEDULED} | columns
    return [
        ask(TEXT.format(name, 10 + n), send_at=at + n * MINUTE, **usual)
        for n, name in enumerate(names)
    ]


def many(count=60):
    """Store so many texts that are alike, by default more than a page."""
    waits = {"manual_mode": True, "available_to_group": True, "status": Status.SCHEDULED}
    key = ask("another", send_at=TUESDAY_NOON + DAY).key
    store_many(count, key=key.id, message="Hi 5", send_at=TUESDAY_NOON + DAY, **waits)
    return [*Message.select().where(Message.message == "Hi 5")]


def waiting():
    return Message.select().where(~Message.approved, Message.finished_at.is_null())


# What is shown


@on_both
@pytest.mark.parametrize("person", ["approver", "operator"])
def test_they_are_one_card_with_how_many_where_to_and_three_to_read(request, person):
    visitor = request.getfixturevalue(person)
    *_, last = newsletter([*NAMES, "Eve"])
    Message.update(to=LONDON, country="GB").where(Message.id == last.id).execute()
    alone = ask(unlike(1))
    text = visitor.read()
    assert "5 similar texts 4 to United States, 1 to United Kingdom" in text
    assert "The first: 12:00 PM there , in 24 hours" in text
    assert "5 parts · Requested by shop · Show each Note Refuse all Approve all 5" in text
    html = visitor.response.text
    read = re.findall(
        r"Hi <mark>([\w ]+)</mark>, our sale starts on Friday: <mark>\d+</mark>% off", html
    )
    assert read == ["Ann", "Carla de Cruz", "Bob"], "the first, and those least like it"
    assert len(visitor.page.buttons("Approve")) == 1
    assert "Waiting for approval 6" in text
    assert str(alone.id) in html


def test_similar_texts_are_read_as_they_were_written(approver):
    for name in ("<b>Ann & Co ", "Bob ", ""):
        ask(f"Hi {name}our <i>sale</i> starts on Friday, in both shops.")
    approver.open()
    for beginning in ("<mark>&lt;b&gt;Ann &amp; Co</mark> our", "<mark>Bob</mark> our", ">Hi our"):
        assert f"{beginning} &lt;i&gt;sale&lt;/i&gt; starts" in approver.response.text


@pytest.mark.slow
def test_thousands_of_marks_hold_the_worker_no_longer_than_any_page(approver, monkeypatch):
    """By the time of the processor, between two pauses, in which others are answered."""
    approver.open()  # the templates are compiled once
    for kind in range(50):
        letters = random.Random(kind).choices("abcdefghijklmnopqrstuvwxyz", k=800)
        for digit in "123":
            ask(digit.join([*letters, ""]))
    held, began = [], time.thread_time()

    def pause(_=0):
        nonlocal began
        held.append(time.thread_time() - began)
        began = time.thread_time()

    monkeypatch.setattr(time, "sleep", pause)
    page = approver.client.get("/desk/").text
    pause()
    assert page.count("<mark>") == 50 * 3 * 800
    assert max(held) < 0.3


def test_what_is_the_same_in_all_is_shown_once(approver):
    for _ in range(3):
        ask("Hello")
    assert approver.read().count("Hello") == 1
    assert "<mark>" not in approver.response.text


def test_one_text_alone_is_a_card_as_ever(approver):
    newsletter(["Ann"])
    approver.open()
    assert "similar" not in approver.page.text
    assert approver.page.buttons("Approve")


def test_the_card_opens_into_its_texts_page_by_page(approver):
    asked = newsletter([f"name{'abcdefghij'[n % 10]}" for n in range(55)])
    other = ask(unlike(1))
    approver.open()
    (opens,) = (link for link in approver.page.links if "alike=" in link and "select" not in link)
    assert "Similar texts 55" in approver.read(opens)
    assert approver.page.buttons("Approve all 55")
    assert len(approver.page.buttons("Approve")) == 50
    assert str(other.id) not in approver.response.text
    approver.press("Approve", asked[0])
    assert "Similar texts 54" in approver.page.text, "it stays open, though its first is gone"
    (following,) = (
        link for link in approver.page.links if "after=" in link and "select" not in link
    )
    approver.open(following)
    assert len(approver.page.buttons("Approve")) == 4
    assert not approver.page.buttons("Approve all 54")
    approver.press("Refuse selected", selected=asked[51:])
    approver.open(opens)
    assert "Similar texts 50" in approver.page.text
    approver.press("Approve all 50")
    assert "Nothing is waiting for approval" in approver.page.text
    assert not waiting().where(Message.id != other.id).exists()


@pytest.mark.parametrize("text", ["", "x", "0" * 32])
def test_a_card_of_nothing_is_not_opened(approver, text):
    newsletter()
    assert approver.open(f"/desk/?alike={text}").status_code == 404


@on_both
@pytest.mark.parametrize("many_wait", [False, True])
def test_cards_are_paged_by_their_first_texts_and_each_is_there_once(
    approver, monkeypatch, many_wait
):
    """However few texts are looked over: then a later page may have a second card."""
    if many_wait:
        monkeypatch.setattr(cards, "LOOKED_OVER", 40)
    ask_many(70)
    newsletter(["Ann"] * 20, status=Status.QUEUED)
    Message.update(send_at=TUESDAY_NOON).where(Message.message.contains("% off")).execute()
    seen, path, similar = [], "/desk/", 0
    while path:
        approver.open(path)
        seen += re.findall(r"text \d+", approver.page.text)
        similar += sum(map(int, re.findall(r"(\d+) similar", approver.page.text)))
        path = next(
            (
                each
                for each in approver.page.links
                if "after=" in each
                and "select" not in each
                and each != path
                and "Next" in approver.page.text
            ),
            None,
        )
    assert sorted(seen) == sorted(f"text {n}" for n in range(70))
    assert similar == 20


# What is decided


@on_both
@pytest.mark.parametrize("person", ["approver", "operator"])
@pytest.mark.parametrize("words", ["Approve all 4", "Refuse all"])
def test_all_are_decided_at_once_and_nothing_else(request, person, words):
    visitor = request.getfixturevalue(person)
    asked, other = newsletter(), ask(unlike(1))
    visitor.press(words, on="/desk/")
    past = "approved" if "Approve" in words else "refused"
    assert f"4 texts {past}:" in visitor.page.text
    assert [each.id for each in waiting()] == [other.id]
    noted = Audit.select().where(Audit.what == f"message {past}")
    assert {row.message_id for row in noted} == {each.id for each in asked}
    assert visitor.page.buttons("Undo")


@on_both
@pytest.mark.parametrize("words", ["Approve all 4", "Refuse all"])
def test_what_came_after_the_page_was_loaded_is_not_decided(approver, words):
    """Nor what waits again since: it was not on the card."""
    asked = newsletter()
    back, ended = newsletter(["Eve", "Flo"])
    decide_on(back).decide(False, "Bob", TUESDAY_NOON)
    Message.update(status=Status.EXPIRED, finished_at=TUESDAY_NOON).where(
        Message.id == ended.id
    ).execute()
    approver.open()
    decide_on(back).undo_cancel("Bob", TUESDAY_NOON)
    decide_on(ended).retry(TUESDAY_NOON, DAY)
    (new,) = newsletter(["Gus"], now=TUESDAY_NOON - SECOND)
    approver.press(words)
    assert {each.id for each in waiting()} == {back.id, ended.id, new.id}
    assert len([each for each in asked if again(each).approved or again(each).finished_at]) == 4


def test_what_was_decided_meanwhile_is_told_and_stays(approver):
    first, second, *_ = newsletter()
    approver.open()
    decide_on(first).decide(False, "Bob", TUESDAY_NOON)
    decide_on(second).approve("Bob", TUESDAY_NOON)
    approver.press("Approve all 4")
    assert "2 texts approved:" in approver.page.text
    assert "2 texts of the card no longer waited for approval." in approver.page.text
    assert again(first).status == Status.CANCELLED
    assert again(second).approved_by == "Bob"


def test_what_is_too_late_expires_and_the_rest_is_decided(app, at):
    late = newsletter(first_send_at=TUESDAY_NOON - 3 * DAY)
    young = newsletter(["Eve"])
    visitor = signed_in(app, "Ann", "front")
    visitor.press("Approve all 5", on="/desk/")
    assert [again(each).status for each in late] == [Status.EXPIRED] * 4
    assert again(young[0]).approved
    assert "1 text approved:" in visitor.page.text
    assert "4 texts not changed:" in visitor.page.text


@on_both
@pytest.mark.parametrize("count", [6, 60])
@pytest.mark.parametrize("others", ["Approve all", "Refuse all"])
def test_two_who_decide_the_same_card_at_once_decide_each_text_once(app, others, count):
    asked = many(count)
    ann, bob = signed_in(app, "Ann", "front"), signed_in(app, "Bob", "front")
    for visitor in (ann, bob):
        visitor.open()
    also = f"{others} {count}" if others == "Approve all" else others
    at_once(lambda: ann.press(f"Approve all {count}"), lambda: bob.press(also))
    decided = {row.message_id: row.who for row in Audit.select() if row.message_id}
    assert {*decided} == {message.id for message in asked}
    for message in map(again, asked):
        assert decided[message.id] == (message.approved_by or message.cancelled_by)


@pytest.mark.parametrize(
    "hidden",
    [
        {"key": "other", "group": "back"},
        {"key": "alone", "group": None},
        {"available_to_group": False},
    ],
)
def test_an_approver_sees_and_decides_nothing_of_others(approver, operator, hidden):
    theirs = newsletter(**hidden)
    approver.open()
    assert "similar" not in approver.page.text
    assert approver.open(f"/desk/?alike={theirs[0].id}").status_code == 404
    (_, button), *_ = [operator.open(), operator.page.buttons("Approve all 4")][1]
    approver.open()
    approver.send("/desk/", approve=button["value"])
    assert waiting().count() == 4
    assert "4 texts of the card no longer waited" in approver.page.text


@pytest.mark.parametrize(
    "value",
    [
        "all.",
        "all.1",
        "all.AAAA",
        f"all.{'A' * 23}",
        f"all.1.{'A' * 22}",
        f"all.{'A' * 21}é",
        f"all.{'A' * 22}\n",
        "at.",
        "at.x",
        "at.999999999999999",
    ],
)
@pytest.mark.parametrize("action", ["approve", "refuse", "undo-approve", "undo-refuse"])
def test_the_button_of_no_card_is_refused(approver, value, action):
    newsletter()
    approver.open()
    assert approver.send("/desk/", **{action: value}).status_code == 400
    assert waiting().count() == 4


def value_of(ids):
    """The value of the buttons of a card of these texts."""
    whole = b"".join(id.bytes for id in ids)
    return f"all.{urlsafe_b64encode(whole).decode().rstrip('=')}"


def test_a_form_has_room_for_all_that_is_looked_over(approver):
    """10,000 texts on one card, all boxes of the page, and a note to some."""
    ids = [uuid.UUID(int=n) for n in range(cards.LOOKED_OVER)]
    approver.open()
    fields = [("csrf_token", approver.token), ("refuse", value_of(ids))]
    fields += [("id", "x" * 36), (f"note-{uuid.UUID(int=0)}", "é" * 100)] * 50
    assert approver.post("/desk/", fields).status_code == 200
    assert "10,000 texts of the card no longer waited for approval." in approver.page.text
    more = value_of([*ids, uuid.uuid4()])
    assert approver.send("/desk/", approve=more).status_code == 400


@on_both
@pytest.mark.parametrize("words", ["Approve all 4", "Refuse all"])
def test_a_button_decides_exactly_what_was_drawn(approver, words):
    """And no text that came since, however little its id differs."""
    asked = newsletter()
    approver.open()
    came = [
        ask(TEXT.format("Eve", 7), id=uuid.UUID(int=each.id.int ^ 1 << bit))
        for each in asked
        for bit in (0, 47, 90, 120)
    ]
    approver.press(words)
    assert {each.id for each in waiting()} == {each.id for each in came}


# What is undone


@on_both
@pytest.mark.parametrize("count", [50, 60])
@pytest.mark.parametrize("words", ["Approve all", "Refuse all"])
def test_undo_takes_back_exactly_what_was_decided(approver, at, words, count):
    """Also of more than a page, whose result has the first ones only."""
    asked, (other,) = many(count), waiting().where(Message.message == "another")
    decide_on(asked[0]).decide(True, "Bob", TUESDAY_NOON)
    past = "approved" if "Approve" in words else "refused"
    approver.open()
    approver.press(f"{words} {count - 1}" if past == "approved" else words)
    assert f"{count - 1} texts {past}: +1 " in approver.page.text
    assert f"and {count - 4} more Undo for 60 seconds" in approver.page.text
    at(TUESDAY_NOON + 20 * SECOND)
    approver.press("Approve" if past == "approved" else "Refuse", other)
    at(TUESDAY_NOON + 59 * SECOND)
    assert f"and {count - 4} more Undo for 1 second" in approver.read()
    _, (form, undo) = approver.page.buttons("Undo")
    approver.post("/desk/", [*form["inputs"], (undo["name"], undo["value"])])
    assert f"{UNDONE[past]} of {count - 1} texts undone" in approver.page.text
    assert f"{count - 1} texts {past}" not in approver.page.text
    assert {each.id for each in waiting()} == {each.id for each in asked[1:]}
    assert again(asked[0]).approved_by == "Bob"


@pytest.mark.parametrize(("count", "seconds"), [(2, 10), (10, 10), (11, 60), (60, 60)])
def test_a_card_of_more_than_ten_stays_for_a_minute(
    approver, run_pass, carrier, at, count, seconds
):
    asked = [ask(f"Hi {n}", to=f"+1212555{n:04}") for n in range(100, 100 + count)]
    approver.press(f"Approve all {count}", on="/desk/")
    assert f"Undo for {seconds} seconds" in approver.page.text
    before = TUESDAY_NOON + seconds * SECOND - MILLISECOND
    run_pass(before)
    assert carrier.texts == []
    at(before)
    approver.press("Undo")
    assert waiting().count() == count
    at(TUESDAY_NOON)
    approver.press(f"Approve all {count}", on="/desk/")
    run_pass(TUESDAY_NOON + seconds * SECOND)
    assert sorted(carrier.numbers) == [each.to for each in asked]
    at(TUESDAY_NOON + seconds * SECOND - SECOND)
    assert "Too late to undo" in approver.read()


@on_both
def test_a_refusal_of_many_is_undone_by_the_person_who_refused_and_within_a_minute(
    app, approver, at
):
    many()
    approver.press("Refuse all", on="/desk/")
    (_, undo), *_ = approver.page.buttons("Undo")
    bob = signed_in(app, "Bob", "front")
    bob.open()
    bob.send("/desk/", **{undo["name"]: undo["value"]})
    assert waiting().count() == 1
    at(TUESDAY_NOON + MINUTE)
    approver.send("/desk/", **{undo["name"]: undo["value"]})
    assert waiting().count() == 1
    assert "60 texts not changed" in approver.page.text


@on_both
def test_an_undo_of_many_keeps_to_the_limit_of_each_recipient(desk_settings, at):
    limit = parse_recipient_limit("1/24h")
    app = create_app(desk_settings._replace(recipient_limit=limit))
    asked = many()
    visitor = signed_in(app, "Ann", "front")
    visitor.press("Refuse all", on="/desk/")
    Message.update(to=asked[1].to).where(Message.id == asked[0].id).execute()
    store(to=asked[2].to)
    visitor.press("Undo")
    assert "Refusal of 58 texts undone" in visitor.page.text
    left = {each.to for each in Message.select().where(Message.status == Status.CANCELLED)}
    assert left == {asked[1].to, asked[2].to}
