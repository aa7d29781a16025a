"""Among millions of replies or messages, an index answers each question, and finds each claim."""

import uuid

import pytest

import stored_messages
from databases import on_both, on_sqlite
from query_plans import plans, reads_whole, steps
from samples import DAY, LONDON, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import key_named, store, store_many
from texting.access.keys import ApiKey, Role
from texting.carriers import IncomingText, Part
from texting.database import clock, db
from texting.messages import doubts, receipts, storing
from texting.messages.attempts import IS_ASKED_ABOUT, IS_UNDER_WAY, Attempt
from texting.messages.model import Message, Status, has_status
from texting.replies import inbound, inbox
from texting.replies.inbound import ReplyRules
from texting.replies.model import Reply
from texting.reports.listings import Cursor
from texting.sending import claims

pytestmark = on_both

RULES = ReplyRules("twilio", "asked", "Bye.", "Ask us.")
OPERATOR = ApiKey(id=1, name="Olga", role=Role.OPERATOR)


def page(person, rank=0):
    after = Cursor(rank, TUESDAY_NOON, store().id)
    return lambda: inbox.page(person, after, 51, TUESDAY_NOON)


def approver():
    key = key_named("shop", "front")
    return ApiKey(id=key.id, name="Ann", group="front", role=Role.APPROVER)


def by_number_for(person):
    return lambda: inbox.conversations(person, None, 51, TUESDAY_NOON)


ACTIONS = {
    "the first page": lambda: page(OPERATOR),
    "the next page": lambda: page(OPERATOR, 1),
    "an approver's page": lambda: page(approver()),
    "by number": lambda: lambda: inbox.conversations(OPERATOR, None, 51, TUESDAY_NOON),
    "an approver's by number": lambda: by_number_for(approver()),
    "found": lambda: lambda: inbox.search(OPERATOR, "y", None, 50, TUESDAY_NOON),
    "of a message": lambda: lambda: inbox.of_message(store().id, TUESDAY_NOON),
    "how many wait": lambda: lambda: inbox.waiting(TUESDAY_NOON),
    "unread": lambda: lambda: [*inbox.listing(TUESDAY_NOON, 50, unread=True)],
    "may be a no": lambda: lambda: [*inbox.listing(TUESDAY_NOON, 50, may_be_no=True)],
    "of a number": lambda: lambda: [*inbox.listing(TUESDAY_NOON, 50, to=NEW_YORK)],
    "since": lambda: lambda: [*inbox.listing(TUESDAY_NOON, 50, since=TUESDAY_NOON)],
    "decided": lambda: lambda: Reply.record_listed([NEW_YORK], "Olga", TUESDAY_NOON),
    "due": lambda: lambda: inbound.report_incomplete(TUESDAY_NOON),
    "purge": lambda: lambda: Reply.purge(TUESDAY_NOON - DAY, TUESDAY_NOON),
    "forget": lambda: lambda: Reply.forget_number(NEW_YORK, TUESDAY_NOON),
    "a reply": lambda: (
        lambda: inbound.record([IncomingText(NEW_YORK, "HELP")], TUESDAY_NOON, RULES)
    ),
    "a part": lambda: (
        lambda: inbound.record(
            [IncomingText(NEW_YORK, "HELP", part=Part("7", 2, 1))], TUESDAY_NOON, RULES
        )
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS)
def test_an_index_answers(action, database_url):
    store(status="sent", finished_at=clock.now())
    usual = {"carrier": "x", "text": "x", "at": TUESDAY_NOON, "received_at": TUESDAY_NOON}
    rows = [{"id": f"{n:032x}", "number": f"+1212555{n:04}"} | usual for n in range(300)]
    Reply.insert_many(rows).execute()
    Reply.update(read_at=TUESDAY_NOON).where(Reply.number != rows[0]["number"]).execute()
    db.execute_sql("ANALYZE")
    assert reads_whole(ACTIONS[action]()) == []


@on_sqlite
@pytest.mark.parametrize("who", ["an operator", "an approver"])
def test_the_first_replies_of_a_number_are_read_in_the_order_of_an_index(who, database_url):
    reply = {"carrier": "x", "text": "x", "at": TUESDAY_NOON, "received_at": TUESDAY_NOON}
    person, of_group = approver(), {"available_to_group": True}
    Reply.create(id=store().id, number=NEW_YORK, key=person.id, **reply | of_group)
    person = OPERATOR if who == "an operator" else person
    (plan,) = (each for each in plans(by_number_for(person)) if "SCAN json_each" in each[0])
    assert any("reply_number_first" in line for line in plan)
    assert not any("ORDER BY" in line for line in plan)


def wrote(count, **columns):
    """Have a number write some long replies to a shop, and another one before them."""
    reply = {"carrier": "x", "text": "x" * 1500, "received_at": TUESDAY_NOON} | columns
    reply |= {"key": key_named("shop", "front").id, "available_to_group": True}
    rows = [{"number": NEW_YORK, "at": TUESDAY_NOON - n * SECOND} for n in range(count)]
    rows.append({"number": LONDON, "at": TUESDAY_NOON - DAY})
    Reply.insert_many([{"id": uuid.uuid4()} | reply | row for row in rows]).execute()


PEOPLE = {"an operator": lambda: OPERATOR, "an approver": approver}


@on_sqlite
@pytest.mark.parametrize("who", PEOPLE)
def test_however_many_replies_wait_the_first_of_a_page_are_found_at_once(who, database_url):
    taken, person = [], PEOPLE[who]()
    for count in (100, 2000):
        wrote(count)
        taken.append(steps(lambda: inbox.page(person, None, 51, TUESDAY_NOON)))
    assert taken[1] < 2 * taken[0]


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("columns", [{}, {"may_be_no": True}, {"read_at": TUESDAY_NOON}], ids=str)
def test_the_replies_of_numbers_that_are_shown_are_passed_over_in_an_index(
    database_url, columns, who
):
    """A number may have sent any number of them, and their texts are long."""
    person = PEOPLE[who]()
    wrote(2000, **columns)
    db.execute_sql("VACUUM ANALYZE" if db.for_update else "ANALYZE")
    name = "reply_group_" if who == "an approver" else "reply_"
    name += "done" if "read_at" in columns else "waiting"

    def next_numbers():
        (found,) = inbox.page(person, None, 51, TUESDAY_NOON, excluded={NEW_YORK})
        assert found.number == LONDON

    of_pages = [lines for lines in plans(next_numbers) if name in str(lines)]
    assert of_pages
    if db.for_update:
        assert any("Index Only Scan" in line for lines in of_pages for line in lines)
    assert not reads_whole(next_numbers)


# Claims


@pytest.fixture(params=["no statistics", "of a quiet moment", "statistics"])
def many(request, database_url):
    """Finished messages, many in the lane of another carrier, and a few to be claimed.

    A plan may not hang on whether Postgres' ANALYZE has been here.
    """
    store_many(1000, key=key_named("a"), status=Status.SENT, finished_at=TUESDAY_NOON)
    if request.param == "of a quiet moment":
        db.execute_sql("ANALYZE")
    store_many(1000, key=key_named("a"), lane="=elsewhere")
    for name in ("a", "b", "u"):
        store_many(20, key=key_named(name))
    store(key=key_named("a"), country="GB", lane="GB")
    ApiKey.update(urgent=True).where(ApiKey.name == "u").execute()
    if request.param == "statistics":
        db.execute_sql("ANALYZE")


def claim_urgent_ones():
    assert {message.key_id for message in stored_messages.claim(8)} == {key_named("u").id}


def claim_others():
    ApiKey.update(urgent=False).execute()
    claimed = stored_messages.claim(8)
    assert len(claimed) == 8
    assert {message.lane for message in claimed} <= {"US", "GB"}


@pytest.mark.parametrize("action", [claims.lanes, claim_urgent_ones, claim_others])
def test_what_waits_in_other_lanes_is_not_even_passed_over(action, many):
    """An index by the key alone would go through all of its texts in the lane of another."""
    found = plans(action)
    lines = [line for lines in found for line in lines]
    assert any("message_lane" in line for line in lines)
    by_key = [lines for lines in found if "message_sendable_key" in str(lines)]
    assert len(by_key) == (action is not claims.lanes), "to find the keys"
    assert [line for line in lines if "Filter: (lane =" in line] == []


@pytest.mark.parametrize("action", [claims.lanes, claim_urgent_ones, claim_others])
def test_no_statement_of_a_claim_reads_the_whole_table(action, many):
    assert not reads_whole(action)


def test_what_a_scheduler_has_in_hand_is_found_by_one_lookup(many):
    def open_of_sender():
        Attempt.open_of(stored_messages.SENDER, "fake")

    (plan,) = plans(open_of_sender)
    assert not reads_whole(open_of_sender)
    assert any("attempt_sender" in line for line in plan)


def test_what_is_in_hand_is_found_without_reading_all_texts_to_its_number(many):
    Message.update(to=NEW_YORK).execute()
    message = Message.select().first()

    def texts_in_hand():
        doubts.texts_at({"fake"}, [message], IS_UNDER_WAY, IS_ASKED_ABOUT)

    assert not reads_whole(texts_in_hand)
    assert not any("message_to" in line for lines in plans(texts_in_hand) for line in lines)


def steps_of_claim(count, look=False):
    """How much SQLite does for the second claim of some texts, or the look before it."""
    turns = stored_messages.turns()
    assert len(stored_messages.claim(count, turns)) == count
    if look:
        return steps(lambda: turns.refresh(stored_messages.may_take))
    return steps(lambda: stored_messages.claim(count, turns))


@on_sqlite
@pytest.mark.parametrize("count", [1, 2])
def test_a_claim_steps_through_no_texts_but_its_own(database_url, count):
    taken = []
    for more in (20, 2000):
        store_many(more, key=key_named("a"))
        store_many(20, key=key_named("b"))
        taken.append((steps_of_claim(count), steps_of_claim(count, look=True)))
    assert all(after < 2 * before for before, after in zip(*taken, strict=True))


@on_sqlite
def test_keys_that_wait_for_another_carrier_and_paused_ones_cost_a_claim_nothing(database_url):
    taken = []
    for several in (range(3), range(100)):
        for number in several:
            store(key=key_named(f"paused {number}"), lane=f"A{number}")
            store(key=key_named(f"elsewhere {number}"), lane="=elsewhere")
        store_many(20, key=key_named("a"))
        ApiKey.update(paused_at=TUESDAY_NOON).where(ApiKey.name.startswith("paused")).execute()
        taken.append(steps_of_claim(2))
    assert taken[1] < 2 * taken[0]


# Answers


def accept(reference):
    """An action: record that the carrier took 20 texts, which it all calls the same."""
    store_many(20, status=Status.SENDING, carrier="fake")
    taken = Message.select().where(has_status(Status.SENDING))
    said = {each.id: reference for each in taken}
    return lambda: receipts.record_accepted(said, TUESDAY_NOON, stored_messages.FAKE)


@on_sqlite
def test_an_answer_looks_at_no_earlier_texts_that_the_carrier_called_the_same(database_url):
    """As a webhook does that answers a constant."""
    taken = []
    for earlier in (20, 2000):
        called = {"carrier": "fake", "carrier_reference": "ok"}
        store_many(earlier, status=Status.SENT, finished_at=TUESDAY_NOON, **called)
        taken.append(steps(accept("ok")))
    assert taken[1] < 2 * taken[0]


@on_sqlite
def test_a_repeated_request_looks_at_none_of_its_keys_other_texts(database_url):
    taken, key = [], key_named("a")
    for more in (20, 2000):
        store_many(more, key=key)
        taken.append(steps(lambda: storing.stored_before(key.id, "order", "a digest")))
    assert taken[1] < 2 * taken[0]


def test_an_answer_is_found_by_its_message_and_not_by_what_the_carrier_calls_it(many):
    lines = [line for lines in plans(accept("ok")) for line in lines]
    assert any("attempt" in line for line in lines)
    assert not [line for line in lines if "attempt_reference" in line]
