"""inbound.py and replies.py: what recipients write is kept once, and does what it plainly says."""

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial

import pytest

from databases import on_both, on_postgres
from own_threads import at_once, begin
from running import wait_until
from samples import DAY, HOUR, LONDON, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import again, held, key_named, look, store
from texting.access.do_not_call import DoNotCall, DoNotCallHistory, LastReply, OptedOut
from texting.access.keys import ApiKey, Role
from texting.carriers import IncomingText, OptOut, Part
from texting.carriers.lanes import TESTERS
from texting.database import clock, db
from texting.events.outbox import Event, EventAddress
from texting.messages.attempts import Attempt
from texting.messages.model import Message, Status
from texting.replies import inbound, inbox
from texting.replies import model as replies
from texting.replies.inbound import ReplyRules
from texting.replies.model import Reply

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]

RULES = ReplyRules("fake", "asked", None, None)
ANSWERING = RULES._replace(stop_reply="You get no more texts.", help_reply="Ask +1 212 555 0100.")
LATER = TUESDAY_NOON + MINUTE
LOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


def hear(text, now=LATER, rules=RULES, number=NEW_YORK, **fields):
    """Record a reply; return all that there are, the oldest first."""
    inbound.record([IncomingText(number, text, **fields)], now, rules)
    return stored(now)


def stored(now=LATER):
    return [*inbox.listing(now)][::-1]


def sent(finished_at=TUESDAY_NOON, **columns):
    return held(columns.pop("status", Status.SENT), finished_at=finished_at, **columns)


# Kept


@pytest.mark.parametrize("text", ["Yes, I'll come 🎉\r\n", "  x  ", "", "STOP", "e\u0301é", "a\tb"])
def test_a_reply_is_kept_exactly_with_the_message_that_it_belongs_to(text):
    message = sent()
    at = TUESDAY_NOON + 30 * SECOND
    (reply,) = hear(text, at=at)
    assert (reply.text, reply.number, reply.carrier) == (text, NEW_YORK, "fake")
    assert (reply.message_id, reply.at, reply.received_at) == (message.id, at, LATER)
    assert (reply.read_at, reply.read_by) == (LATER if text == "STOP" else None, None)


def test_what_no_database_can_hold_is_replaced():
    (reply,) = hear("a\0b\ud800c")
    assert reply.text == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"


def test_a_reply_is_kept_once_by_any_of_the_carriers_ids():
    hear("Yes", message_ids=("twilio SM1", "twilio signature"))
    hear("Yes", message_ids=("twilio SM1", "twilio another"))
    hear("No", message_ids=("twilio SM2", "twilio signature"))
    assert [each.text for each in stored()] == ["Yes"]


def test_without_an_id_two_equal_texts_are_two_replies():
    hear("Yes")
    assert len(hear("Yes")) == 2


@pytest.mark.parametrize("ids", [("twilio SM1",), ()], ids=["with an id", "without one"])
@pytest.mark.parametrize("text", ["STOP", "HELP"])
def test_of_several_at_once_one_is_answered_and_with_an_id_one_is_kept(database_url, text, ids):
    sent(finished_at=clock.now() - HOUR)
    at_once(*[lambda: hear(text, clock.now(), ANSWERING, message_ids=ids)] * 6)
    assert Reply.select().count() == (1 if ids else 6)
    assert len(answers()) == 1
    is_stop = text == "STOP"
    assert sum(each.opted_out for each in Reply.select()) == is_stop
    assert len(DoNotCallHistory.of(NEW_YORK)) == is_stop


def test_what_fails_midway_leaves_nothing_and_is_kept_when_it_comes_again(monkeypatch):
    sent()
    fail = Event.write_reply

    def break_down(*_):
        raise RuntimeError

    monkeypatch.setattr(Event, "write_reply", break_down)
    with pytest.raises(RuntimeError):
        hear("STOP", message_ids=("twilio SM1",))
    assert not stored()
    assert not OptedOut.lists(NEW_YORK)
    monkeypatch.setattr(Event, "write_reply", fail)
    assert len(hear("STOP", message_ids=("twilio SM1",))) == 1
    assert OptedOut.lists(NEW_YORK)


@pytest.mark.parametrize("texted", [True, False])
def test_a_number_that_may_be_national_is_kept_only_if_it_was_texted(texted, caplog):
    sent(to=NEW_YORK if texted else LONDON)
    with caplog.at_level("DEBUG"):
        assert len(hear("see you", certain=False)) == texted
        assert len(hear("STOP", certain=False)) == 2 * texted
    assert OptedOut.lists(NEW_YORK) == texted
    logged = [each.getMessage() for each in caplog.records if each.name != "peewee"]
    assert not [words for words in logged if "2125550123" in words or "see you" in words]


@pytest.mark.parametrize(
    "at",
    [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
        LATER + HOUR,
        None,
    ],
)
def test_a_time_that_cannot_be_true_is_the_arrival(at):
    (reply,) = hear("Yes", at=at)
    assert reply.at == LATER


# Where it belongs


@pytest.mark.parametrize(
    ("columns", "belongs"),
    [
        ({}, True),
        ({"status": Status.DELIVERED}, True),
        ({"status": Status.UNDELIVERED}, True),
        ({"finished_at": LATER - 30 * DAY}, True),
        ({"finished_at": LATER - 30 * DAY - SECOND}, False),
        ({"finished_at": LATER + SECOND}, False),
        ({"finished_at": LATER + SECOND / 2}, True),  # carriers tell no fractions
        ({"status": Status.FAILED}, False),
        ({"status": Status.QUEUED, "finished_at": None}, False),
        ({"status": Status.FAILED, "in_doubt": 1, "in_doubt_since": TUESDAY_NOON}, True),
        ({"status": Status.SENDING, "finished_at": None, "claimed_at": TUESDAY_NOON}, True),
        ({"to": LONDON}, False),
    ],
)
def test_a_reply_belongs_to_what_the_carrier_was_given_in_the_thirty_days_before(columns, belongs):
    message = sent(**columns)
    (reply,) = hear("Yes", at=LATER)
    assert (reply.message_id == message.id) == belongs
    assert (reply.key == message.key_id) == belongs


def test_a_reply_belongs_to_the_latest_that_was_sent_before_it():
    first = sent(TUESDAY_NOON - HOUR)
    latest = sent(TUESDAY_NOON)
    sent(TUESDAY_NOON + HOUR)
    assert hear("Yes", TUESDAY_NOON + 2 * HOUR, at=LATER)[-1].message_id == latest.id
    at = TUESDAY_NOON - MINUTE
    hear("Ok", TUESDAY_NOON + 2 * HOUR, at=at)
    assert Reply.get(Reply.text == "Ok").message_id == first.id


def test_a_reply_belongs_to_what_was_given_last_not_to_what_was_found_to_be_taken_last():
    first = sent(TUESDAY_NOON - 2 * DAY)
    Attempt.update(ended_at=TUESDAY_NOON).where(Attempt.message == first.id).execute()
    latest = sent(TUESDAY_NOON - DAY)
    (reply,) = hear("Yes")
    assert reply.message_id == latest.id


def test_a_testers_text_went_to_no_carrier():
    ApiKey.issue("trial", None, TUESDAY_NOON, role=Role.TESTER)
    sent(key=key_named("trial"), carrier=TESTERS)
    (reply,) = hear("HELP", rules=ANSWERING)
    assert reply.message_id is None


# Parts


def part(number, total=2, reference="7"):
    return Part(reference, total, number)


@pytest.mark.parametrize("order", [*itertools.permutations([1, 2, 3])])
def test_parts_are_put_together_in_whatever_order_they_come(order):
    message = sent()
    texts = {1: "Please stop", 2: " by ", 3: "tomorrow"}
    for seconds, number in enumerate(order):
        assert not stored(LATER + seconds * SECOND)
        hear(texts[number], LATER + seconds * SECOND, part=part(number, 3))
    (reply,) = stored()
    assert (reply.text, reply.message_id) == ("Please stop by tomorrow", message.id)
    assert reply.may_be_no
    assert not OptedOut.lists(NEW_YORK)


def test_a_long_text_that_is_a_plain_no_joins_the_list_once_it_is_whole():
    hear("Please take me ", part=part(1))
    assert not OptedOut.lists(NEW_YORK)
    (reply,) = hear("off your list", part=part(2))
    assert OptedOut.lists(NEW_YORK)
    assert (reply.opted_out, reply.may_be_no) == (True, False)


@pytest.mark.parametrize(
    "other",
    [
        {"rules": RULES._replace(carrier="other")},
        {"number": LONDON},
        {"part": Part("8", 2, 2)},
        {"part": Part("7", 3, 2)},
    ],
)
def test_a_part_of_another_text_completes_none(other):
    hear("a1", part=part(1))
    assert hear("b2", **{"part": part(2)} | other) == []
    assert [each.text for each in hear("a2", part=part(2))] == ["a1a2"]


def test_parts_that_come_at_once_are_put_together(database_url):
    numbers = [1, 2, 3, 4, 5, 6] * 2
    at_once(*(partial(hear, str(number), part=part(number, 6)) for number in numbers))
    assert [each.text for each in stored(LATER + HOUR)] == ["123456"]


def test_a_reference_that_is_used_again_at_once_begins_another_text():
    for text in ("one ", "two "):
        for number in (1, 2):
            hear(f"{text}{number} ", part=part(number))
    assert {each.text for each in stored()} == {"one 1 one 2 ", "two 1 two 2 "}


def test_a_whole_text_that_is_delivered_again_is_none():
    for text in ("a", "b", "a", "b"):
        hear(text, part=part(1 + (text == "b")))
    assert [each.text for each in stored(LATER + HOUR)] == ["ab"]


def test_a_part_that_comes_again_before_its_text_is_whole_is_of_no_other():
    for seconds, text in enumerate(("a1", "a2", "a2", "x1", "a3", "x2", "x3")):
        hear(text, LATER + seconds * SECOND, part=part(int(text[1]), 3))
    assert sorted(each.text for each in stored(LATER + HOUR)) == ["a1a2a3", "x1x2x3"]


def test_a_character_that_two_parts_share_is_whole_again():
    hear("x\ud83d", part=part(1))
    (reply,) = hear("\ude80y", part=part(2))
    assert reply.text == "x🚀y"


def test_what_is_missing_after_five_minutes_is_not_waited_for(at):
    sent()
    address()
    hear("me, or stop", part=part(2))
    due = LATER + 5 * MINUTE
    assert not stored(due - SECOND)
    inbound.report_incomplete(due - SECOND)
    assert not Event.select().count()
    (reply,) = stored(due)
    assert (reply.text, reply.may_be_no, reply.opted_out) == ("me, or stop", True, False)
    for _ in range(2):
        inbound.report_incomplete(due)
        assert told()["text"] == "me, or stop"
    hear("Call ", due, part=part(1))  # too late
    assert len(stored(due)) == 1
    assert len(stored(due + 5 * MINUTE)) == 2


@pytest.mark.parametrize(
    "texts",
    [
        ("please st", "op this"),
        ("take me", " off at noon"),
        ("don't stop", " there"),
        ("hello, ", "don't stop"),
        ("STOP",),
    ],
)
def test_a_no_in_or_across_the_parts_that_came_is_for_people_though_others_are_missing(texts):
    sent()
    address()
    for number, text in enumerate(texts, 1):
        hear(text, part=part(number, 3))
    (reply,) = stored(LATER + 5 * MINUTE)
    assert reply.may_be_no == (texts[0] not in ("please st", "take me")), "before it is settled"
    inbound.report_incomplete(LATER + 5 * MINUTE)
    assert (Reply.get().may_be_no, told()["may_be_no"]) == (True, True)
    assert not OptedOut.lists(NEW_YORK)


def test_what_was_read_before_it_was_told_is_decided():
    sent()
    address()
    (reply,) = hear("please stop by", LATER + 5 * MINUTE, part=part(1)) or Reply.select()
    Reply.mark_read([reply.id], "Olga", LATER + 10 * MINUTE)
    inbound.report_incomplete(LATER + 10 * MINUTE)
    assert (Reply.get().may_be_no, told()["may_be_no"]) == (False, False)


def test_a_text_whose_last_part_comes_as_it_is_settled_is_told_once(monkeypatch):
    sent()
    address()
    hear("me, or ", part=part(1))
    due, lock = LATER + 5 * MINUTE, inbound.lock_numbers

    def lock_after_the_last_part(numbers):
        monkeypatch.setattr(inbound, "lock_numbers", lock)
        hear("stop", due - SECOND, part=part(2))
        lock(numbers)

    monkeypatch.setattr(inbound, "lock_numbers", lock_after_the_last_part)
    inbound.report_incomplete(due)
    assert told()["text"] == "me, or stop"


@pytest.mark.parametrize("odd", [Part("", 0, 0), Part("7", 2, 3), Part("\ud800", 255, 0)])
def test_parts_that_fit_nowhere_are_shown_as_they_are(odd):
    hear("hello", part=odd)
    assert [each.text for each in stored(LATER + 5 * MINUTE)] == ["hello"]


# A no


def test_a_plain_no_joins_the_list_and_can_be_undone():
    waiting = store(check_dnc=True)
    (reply,) = hear("Stop texting me please!")
    assert (reply.opted_out, reply.may_be_no) == (True, False)
    assert OptedOut.entry(NEW_YORK).source == "reply"
    assert again(waiting).status == Status.BLOCKED
    hear("START")
    assert not OptedOut.lists(NEW_YORK)


@pytest.mark.parametrize("source", ["operator", "carrier", "reply"])
def test_who_had_opted_out_before_did_not_by_the_reply(source):
    OptedOut.add([NEW_YORK], TUESDAY_NOON, source)
    (reply,) = hear("STOP", rules=ANSWERING)
    assert not reply.opted_out
    assert not Message.select().count()


@on_postgres
@pytest.mark.parametrize("source", ["operator", "import", "carrier"])
@pytest.mark.parametrize("text", ["START", "STOP", "please stop texting me"])
def test_who_opts_out_at_the_same_moment_did_not_by_the_reply(text, source, database_url):
    sent()
    address()
    db.close()
    with ThreadPoolExecutor(1) as pool:
        with db.atomic():
            LastReply.note(NEW_YORK, None, TUESDAY_NOON)  # which the reply waits for
            replies.put_on_list(OptedOut, [NEW_YORK], TUESDAY_NOON, source, "Olga")
            delivery = begin(pool, partial(hear, text, rules=ANSWERING))
            wait_until(lambda: look(database_url, LOCKED)[0][0])
        delivery.result()
    (reply,) = stored()
    assert (reply.opted_out, told()["opted_out"]) == (False, False)
    assert not answers()
    entry = OptedOut.entry(NEW_YORK)
    assert (entry and entry.source) == (None if text == "START" else source)


@pytest.mark.parametrize(
    ("text", "word", "listed", "maybe"),
    [
        ("Bonjour", "STOP", True, False),
        ("stop by tomorrow", "HELP", False, False),
        ("STOP", "HELP", False, False),
        ("stop by tomorrow", None, False, True),
    ],
)
def test_twilios_own_reading_comes_first(text, word, listed, maybe):
    (reply,) = hear(text, word=word)
    assert OptedOut.lists(NEW_YORK) == listed == reply.opted_out
    assert reply.may_be_no == maybe


def decide(how):
    if how == "an operator":
        replies.put_on_list(DoNotCall, [NEW_YORK], LATER, "operator", "Olga")
    elif how == "a carrier":
        inbound.record([OptOut(NEW_YORK, True, "carrier")], LATER, RULES)
    elif how == "a reply":
        hear("STOP")
    else:
        Reply.mark_read([r.id for r in stored() if r.number == NEW_YORK], "Olga", LATER)


@pytest.mark.parametrize("how", ["an operator", "a carrier", "a reply", "reading it"])
def test_what_may_be_a_no_is_so_until_somebody_has_decided(how):
    maybe, *_ = hear("please do not stop by")
    hear("can you stop", number=LONDON)
    decide(how)
    assert {r.number for r in inbox.listing(LATER, may_be_no=True)} == {LONDON}
    decided = Reply.get_by_id(maybe.id)
    assert decided.read_at == LATER
    assert decided.read_by == {"a carrier": "carrier", "a reply": "reply"}.get(how, "Olga")


@pytest.mark.parametrize("which", [OptedOut, DoNotCall])
def test_of_a_number_that_has_opted_out_nothing_is_left_to_be_decided(which):
    """An entry of ours does not stop all texts."""
    which.add([NEW_YORK], TUESDAY_NOON, "operator")
    (reply,) = hear("when does it stop")
    assert reply.may_be_no == (which is DoNotCall)


# Told


def address(key="app"):
    EventAddress.set(key_named(key), "http://127.0.0.1/events", TUESDAY_NOON)


def told():
    (event,) = Event.select()
    said = json.loads(event.body)
    assert said["type"] == event.type == "text_message.replied"
    assert said["timestamp"].endswith("Z")
    return said["data"]


@pytest.mark.parametrize(
    ("text", "opted_out", "may_be_no"),
    [("Yes 🎉", False, False), ("STOP", True, False), ("stpo", False, True)],
)
def test_the_key_of_its_message_is_told(text, opted_out, may_be_no):
    message = sent()
    address()
    (reply,) = hear(text)
    assert told() == {
        "message_id": str(message.id),
        "reply_id": str(reply.id),
        "text": text,
        "opted_out": opted_out,
        "may_be_no": may_be_no,
    }
    assert NEW_YORK not in Event.get().body


def test_nobody_is_told_of_a_reply_to_none_or_without_an_address():
    address("other")
    hear("Yes")
    sent()
    hear("Yes")
    EventAddress.set(key_named("app"), "http://127.0.0.1/events", TUESDAY_NOON)
    EventAddress.switch_off(key_named("app").id, "410", LATER)
    hear("Yes")
    assert not Event.select().count()


# Answered


def answers():
    return [*Message.select().where(Message.auto_reply_to.is_null(False)).order_by(Message.id)]


@pytest.mark.parametrize(
    ("text", "answer", "word"),
    [
        ("STOP", ANSWERING.stop_reply, "STOP"),
        ("please stop texting me", ANSWERING.stop_reply, "STOP"),
        ("Help!", ANSWERING.help_reply, "HELP"),
        ("AIDE svp", None, None),
        ("AIDE", ANSWERING.help_reply, "HELP"),
        ("START", None, None),
        ("stop by tomorrow", None, None),
    ],
)
def test_a_no_and_a_call_for_help_are_answered_under_the_key_of_the_message(text, answer, word):
    message = sent(available_to_group=True, country="US")
    hear(text, rules=ANSWERING)
    given = [
        (m.to, m.message, m.auto_reply_to, m.key_id, m.status, m.max_retries) for m in answers()
    ]
    one = (NEW_YORK, answer, word, message.key_id, Status.QUEUED, 0)
    assert given == ([one] if answer else [])
    assert all(m.available_to_group and m.country == "US" and m.parts == 1 for m in answers())


@pytest.mark.parametrize("text", ["STOP", "HELP"])
def test_without_a_setting_or_a_message_nothing_is_answered(text):
    hear(text, rules=ANSWERING)
    sent(to=LONDON)
    hear(text, rules=RULES, number=LONDON)
    assert not answers()


@pytest.mark.parametrize("word", ["STOP", "HELP"])
def test_where_twilio_has_answered_nobody_else_does(word):
    sent()
    hear(word, rules=ANSWERING, word=word)
    assert not answers()
    assert OptedOut.lists(NEW_YORK) == (word == "STOP")


@pytest.mark.parametrize(("seconds", "answered"), [(119, True), (120, False), (3600, False)])
def test_what_comes_two_minutes_late_is_not_answered(seconds, answered):
    sent(TUESDAY_NOON - DAY)
    said_at = LATER
    hear("HELP", said_at + seconds * SECOND, ANSWERING, at=said_at)
    assert len(answers()) == answered


def test_within_a_day_a_number_has_one_answer_of_each_kind():
    sent()
    for hours in (0, 1, 23, 24, 47):
        for text in ("STOP", "HELP", "START"):
            hear(text, LATER + hours * HOUR, ANSWERING)
    given = {(m.auto_reply_to, m.created_at) for m in answers()}
    assert given == {(word, LATER + n * DAY) for n in (0, 1) for word in ("STOP", "HELP")}
    assert len(answers()) == 4


@pytest.mark.parametrize(
    ("columns", "again_"),
    [
        ({"status": Status.EXPIRED}, True),
        ({"status": Status.CANCELLED}, True),
        ({"status": Status.FAILED, "attempts": 1}, False),
        ({"status": Status.EXPIRED, "in_doubt": 1}, False),
        ({"status": Status.UNDELIVERED, "attempts": 1}, False),
        ({"status": Status.SENDING}, False),
    ],
)
def test_what_was_never_tried_does_not_count(columns, again_):
    sent()
    hear("HELP", rules=ANSWERING)
    Message.update(columns).where(Message.auto_reply_to == "HELP").execute()
    hear("HELP", LATER + MINUTE, ANSWERING)
    assert len(answers()) == 1 + again_


def test_answers_count_for_limits_of_key_and_number(post, key, run, at):
    at(TUESDAY_NOON)
    run("keys", "limit", "app", "2/d")
    assert post().status_code == 201
    sent(now=TUESDAY_NOON - 2 * DAY)
    inbound.record([IncomingText(NEW_YORK, "HELP")], TUESDAY_NOON, ANSWERING)
    assert post().status_code == 429


# Forgotten


def test_a_number_is_forgotten_with_the_texts_that_its_events_hold():
    sent()
    address()
    hear("my secret")
    hear("another's", number=LONDON)
    assert Reply.forget_number(NEW_YORK, LATER) == 1
    assert [each.number for each in stored()] == [LONDON]
    assert told()["text"] == ""


def test_no_text_and_no_number_reaches_a_log(caplog):
    sent()
    address()
    with caplog.at_level("DEBUG"):
        for text in ("STOP xyzzy", "HELP", "STOP", "START"):
            hear(text, rules=ANSWERING)
        hear("xyzzy", part=part(1))
        hear("xyzzy", part=part(2))
        inbound.report_incomplete(LATER + HOUR)
    logged = [record for record in caplog.records if record.name != "peewee"]
    assert logged
    for record in logged:
        assert not any(s in record.getMessage() for s in ("xyzzy", "2125550123", "STOP"))
