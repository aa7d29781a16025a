"""New messages: what arrives together is stored as if it had come one after the other."""

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from peewee import IntegrityError, fn

from databases import on_both, on_postgres
from running import wait_until
from samples import DAY, LONDON, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import create, key_named, new_message
from texting import database
from texting.access.do_not_call import DoNotCall, OnDoNotCallList, OptedOut
from texting.access.keys import ApiKey, Role
from texting.access.limits import KeyUse, LimitReached, parse, parse_recipient_limit
from texting.messages import storing
from texting.messages.admission import AlreadyAnswered, NewMessage, Request
from texting.messages.model import Message, Status, first_id

pytestmark = on_both

MIDNIGHT = TUESDAY_NOON.replace(hour=0)
KEYS = {"free": "", "other": "", "tight": "2/min,4/d", "wide": "3/min,6/h"}
OWN_OF_NUMBERS = {"other": "1/1h", "wide": "none"}
OPTED_OUT, LISTED = "+34911234567", "+33142685300"
NO_KEY = 10**6  # refused by the database: it refers to no key


@pytest.fixture
def keys(database_url):
    """Keys with and without limits, one a tester's, by name; two numbers are on the list."""
    OptedOut.add([OPTED_OUT], TUESDAY_NOON, "reply")
    DoNotCall.add([LISTED], TUESDAY_NOON, "operator")
    made = {name: ApiKey.create(name=name, digest=name, created_at=TUESDAY_NOON) for name in KEYS}
    for name, text in KEYS.items():
        ApiKey.update(limits=text or None).where(ApiKey.id == made[name].id).execute()
    for name, own in OWN_OF_NUMBERS.items():
        ApiKey.update(recipient_limit=own).where(ApiKey.name == name).execute()
    tester = ApiKey.create(
        name="tester", digest="tester", created_at=TUESDAY_NOON, role=Role.TESTER, limits="5/d"
    )
    return {name: key.id for name, key in made.items()} | {"tester": tester.id, "none": NO_KEY}


# One at a time: what each field of a message may be


SHAPES = st.fixed_dictionaries(
    {
        "key": st.sampled_from([*KEYS, "tight", "wide", "tester", "none"]),
        "to": st.sampled_from([NEW_YORK, NEW_YORK, LONDON, OPTED_OUT, LISTED]),
        "message": st.sampled_from(["Hello", "Grüße 🎉", "x" * 1600]),
        "after": st.sampled_from([-1.5, 0, 0, 0, 0.4, 1, 61, 3700]),  # seconds: clocks differ
        "send_in": st.sampled_from([None, None, 60, 86_400]),
        "manual_mode": st.booleans(),
        "available_to_group": st.booleans(),
        "check_dnc": st.booleans(),
        "spare_opted_out": st.booleans(),
        "idempotency_key": st.sampled_from([None, None, None, "a", "b"]),
        "repeats_id": st.sampled_from([False] * 9 + [True]),
        "default_limits": st.sampled_from(["", "", "3/d"]),
        "recipient_limit": st.sampled_from(["", "", "2/1h", "1/1min"]),
    }
)


def request(serial, keys, shape):
    """Make a request of a shape; its id sorts by its time."""
    now = MIDNIGHT + shape["after"] * SECOND
    send_date = shape["send_in"] and now + shape["send_in"] * SECOND
    number = 1 if shape["repeats_id"] else serial + 1
    named = shape["idempotency_key"]
    message = NewMessage(
        id=type(first_id(now))(int=first_id(now).int + number),
        key=keys[shape["key"]],
        to=shape["to"],
        country="GB" if shape["to"] == LONDON else "US",
        message=shape["message"],
        parts=serial + 1,
        send_date=send_date,
        send_at=send_date or now,
        expires_at=(send_date or now) + DAY,
        status=Status.SCHEDULED if send_date else Status.QUEUED,
        manual_mode=shape["manual_mode"],
        available_to_group=shape["available_to_group"],
        check_dnc=shape["check_dnc"],
        max_retries=serial,
        created_at=now,
        idempotency_key=named,
        request_digest=named and f"digest {serial}",
        response=named and f"response {serial}",
        lane="GB" if shape["to"] == LONDON else "US",
    )
    recipient_limit = parse_recipient_limit(shape["recipient_limit"])
    limits = parse(shape["default_limits"]), recipient_limit
    return Request(message, *limits, shape["spare_opted_out"])


@contextmanager
def undone():
    """Undo what happens within it."""
    with database.db.atomic() as transaction:
        yield
        transaction.rollback()


def stored(requests, one_by_one):
    """Insert requests; return the outcome of each, and what the tables hold then."""
    outcomes = []
    for few in [[each] for each in requests] if one_by_one else [requests]:
        outcomes += insert(few)
    return (
        [described(each) for each in outcomes],
        [*Message.select().order_by(Message.id).dicts()],
        sorted(KeyUse.select().tuples()),
    )


def insert(requests):
    """Insert requests as the queue does: together and, if one of them fails, each alone."""
    try:
        with database.db.atomic():
            return storing.insert_all(requests)
    except database.ERRORS as error:
        if len(requests) == 1:
            return [error]
        return [outcome for each in requests for outcome in insert([each])]


def described(outcome):
    """Describe an outcome so that equal ones are equal."""
    if isinstance(outcome, NewMessage):
        return outcome
    if isinstance(outcome, LimitReached):
        return outcome.whose, str(outcome.limit), outcome.free_at
    if isinstance(outcome, AlreadyAnswered):
        return outcome.earlier.response, outcome.earlier.request_digest
    return type(outcome)


slowly = hypothesis_settings(
    database=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
@slowly
@given(before=st.lists(SHAPES, max_size=4), shapes=st.lists(SHAPES, min_size=2, max_size=12))
def test_all_at_once_equals_one_after_the_other(keys, before, shapes):
    """In any mix of fields, keys, limits, repeats and rows that the database refuses."""
    earlier = [request(100 + n, keys, shape) for n, shape in enumerate(before)]
    requests = [request(n, keys, shape) for n, shape in enumerate(shapes)]
    results = []
    for one_by_one in (True, False):
        with undone():
            stored(earlier, one_by_one=True)
            results.append(stored(requests, one_by_one))
    assert results[0] == results[1]


@slowly
@given(shapes=st.lists(SHAPES, min_size=1, max_size=12))
def test_no_limit_is_passed_and_what_is_stored_is_what_was_asked_for(keys, shapes):
    requests = [request(n, keys, shape) for n, shape in enumerate(shapes)]
    with undone():
        outcomes = insert(requests)
        rows = {row["id"]: row for row in Message.select().dicts()}
        both = zip(requests, outcomes, strict=True)
        kept = [each for each, outcome in both if isinstance(outcome, NewMessage)]
        assert len(kept) == len(rows)
        for each in kept:
            wanted = each.message._asdict()
            assert {name: rows[each.message.id][name] for name in wanted} == wanted
            assert rows[each.message.id]["first_send_at"] == each.message.send_at
            assert rows[each.message.id]["approved"] != each.message.manual_mode
        check_outcomes(keys, requests, outcomes, kept)


def check_outcomes(keys, requests, outcomes, kept):
    """Check by counting what came before: nobody is refused without a reason."""
    named = [each.message for each in kept if each.message.unique_key]
    answers = {message.unique_key: message.response for message in named}
    assert len(answers) == len(named)
    for each, outcome in zip(requests, outcomes, strict=True):
        forbidden = each.message.to in (OPTED_OUT, LISTED) and each.message.check_dnc
        forbidden |= each.message.to == OPTED_OUT and each.spare_opted_out
        assert not (forbidden and isinstance(outcome, NewMessage))
        assert forbidden or type(outcome) is not OnDoNotCallList
        if type(outcome) is AlreadyAnswered:
            assert outcome.earlier.response == answers[each.message.unique_key]
        if isinstance(outcome, IntegrityError):
            ids = [r.message.id for r in kept]
            assert each.message.key == NO_KEY or each.message.id in ids
    for name, text in {**KEYS, "tester": "5/d"}.items():
        for limit in parse(text):
            of_key = [
                each.message.second // limit.seconds
                for each in kept
                if each.message.key == keys[name]
            ]
            assert max(Counter(of_key).values(), default=0) <= limit.number


def test_of_a_batch_the_texts_of_testers_use_nothing_of_a_number_up(keys):
    limit = parse_recipient_limit("1/1h")
    names = ("tester", "free", "tight")
    batch = [Request(new_message(each, key=keys[each]), (), limit) for each in names]
    with undone():
        outcomes = [type(outcome) for outcome in insert(batch)]
    assert outcomes == [NewMessage, NewMessage, LimitReached]


def test_of_a_batch_texts_of_keys_with_their_own_limit_count_for_these_alone(keys):
    limit = parse_recipient_limit("1/1h")
    names = ("other", "wide", "other", "free", "wide", "tight")
    batch = [Request(new_message(each, key=keys[each]), (), limit) for each in names]
    with undone():
        outcomes = [type(outcome) is NewMessage for outcome in insert(batch)]
    assert outcomes == [True, True, False, True, True, False]


# Rows


def test_what_is_not_decided_of_a_new_message_is_as_in_a_model_of_it(database_url):
    create("Hello")
    (row,) = Message.select().dicts()
    fields = Message._meta.fields.items()
    undecided = {name: field.default for name, field in fields if name not in new_message().row()}
    assert undecided.keys() > {"last_error", "carrier", "in_doubt"}
    assert {name: row[name] for name in undecided} == undecided
    assert row["attempts"] == 0


# Many at once, over the queue


def insert_at_once(messages):
    """Store messages from as many threads; return what each raised, or None."""

    def insert(message):
        try:
            storing.store(Request(*message))
        except Exception as error:
            return type(error)

    with ThreadPoolExecutor(20) as pool:
        return [*pool.map(insert, messages)]


@pytest.mark.parametrize("limits", ["", "60/d"])
@pytest.mark.parametrize("wrong", [{"key": NO_KEY}, {"expires_at": "soon"}], ids=str)
def test_a_message_that_cannot_be_stored_fails_alone_of_its_batch(database_url, limits, wrong):
    """The database refuses it, or it breaks our own code, which is no outage of the database."""
    key = key_named("app").id
    messages = [
        (new_message(str(n), **{"key": key} | (wrong if n % 10 == 0 else {})), parse(limits))
        for n in range(60)
    ]
    outcomes = insert_at_once(messages)
    assert [n for n, outcome in enumerate(outcomes) if outcome] == [*range(0, 60, 10)]
    assert (IntegrityError in outcomes) == ("key" in wrong)
    assert Message.select().count() == 54


@on_postgres
@pytest.mark.parametrize(
    ("limits", "accepted"),
    [
        (("", "1/24h"), [0]),
        (("", "2/24h"), [0, 1]),
        (("1/d", ""), []),  # what another process has stored counts
        (("3/d", ""), [0, 1]),
        (("3/d", "1/24h"), [0]),
    ],
)
def test_what_is_not_stored_after_all_uses_nothing_up(database_url, limits, accepted):
    """Another process stores a message to another number with the same idempotency key."""
    key, of_key, of_number = key_named("app").id, parse(limits[0]), limits[1]
    named = new_message("taken", key=key, idempotency_key="1", response="{}")
    windows = [each.window_of(key, named.second) for each in of_key]
    batch = [Request(named, of_key, parse_recipient_limit(of_number))]
    for n in range(3):
        batch.append(batch[0]._replace(message=new_message(f"text {n}", key=key)))
    with closing(psycopg.connect(database_url)) as other, ThreadPoolExecutor(1) as pool:
        other.execute(
            'INSERT INTO message (id, key_id, "to", send_at, status, manual_mode, '
            "available_to_group, check_dnc, approved, attempts, max_retries, created_at, "
            "first_send_at, expires_at, lane, country, parts, idempotency_key) VALUES "
            "(%s, %s, %s, 0, 'queued', false, false, false, true, 0, 0, "
            "0, 0, 0, 'GB', 'GB', 1, '1')",
            [new_message(key=key).id, key, LONDON],
        )
        for window in windows:
            other.execute("INSERT INTO key_use VALUES (%s, %s, %s, %s, 1)", window)
        waiting = pool.submit(in_thread, batch)
        wait_until(lambda: is_waiting(database_url))
        other.commit()
        outcomes = waiting.result()
    assert type(outcomes[0]) is AlreadyAnswered
    assert [n for n, each in enumerate(outcomes[1:]) if isinstance(each, NewMessage)] == accepted
    assert Message.select().where(Message.to == NEW_YORK).count() == len(accepted)


@on_postgres
def test_what_another_process_uses_up_meanwhile_is_left_to_nobody_else(database_url):
    """It has not committed when the batch is decided on, so the batch is decided on again."""
    key, of_key = key_named("app").id, parse("3/d,9p/mo")
    batch = [Request(new_message(f"text {n}", key=key, parts=2), of_key) for n in range(3)]
    window = of_key[0].window_of(key, batch[0].message.second)
    with closing(psycopg.connect(database_url)) as other, ThreadPoolExecutor(1) as pool:
        other.execute("INSERT INTO key_use VALUES (%s, %s, %s, %s, 2)", window)
        waiting = pool.submit(in_thread, batch)
        wait_until(lambda: is_waiting(database_url))
        other.commit()
        outcomes = waiting.result()
    assert [type(each) for each in outcomes] == [NewMessage, LimitReached, LimitReached]
    assert Message.select().count() == 1
    assert {use.used for use in KeyUse} == {3, 2}


def test_batches_at_once_store_as_many_as_the_limits_allow(keys):
    """As several processes do: each inserts its own batches, of several keys and with repeats."""
    limits = {"free": parse("40/d,60p/mo"), "other": parse("25/h"), "tester": parse("30p/d")}
    ids = [keys[name] for name in limits]
    ApiKey.update(limits=None).where(ApiKey.id.in_(ids)).execute()
    chance = random.Random(1)
    batches = [[] for _ in range(32)]
    for n, batch in enumerate(batches):
        for name in chance.sample([*limits] * 3, 9):
            message = new_message(f"{n}", key=keys[name], to=f"+1212555{chance.randrange(9999):04}")
            batch.append(Request(message, limits[name]))
        named = new_message("named", key=keys["other"], idempotency_key="1", response="{}")
        batch.insert(chance.randrange(9), Request(named, limits["other"]))
    with ThreadPoolExecutor(3) as pool:  # the test itself holds a connection, too, of four
        outcomes = [each for some in pool.map(in_thread, batches) for each in some]
    kept = Counter(each.key for each in outcomes if isinstance(each, NewMessage))
    assert [kept[id] for id in ids] == [40, 25, 30]
    assert Counter(dict(stored_by_key())) == kept
    assert {use.used for use in KeyUse} == {40, 25, 30}
    named = [each for each in outcomes if type(each) is AlreadyAnswered]
    assert len(named) == len(batches) - 1
    assert Message.select().where(Message.idempotency_key == "1").count() == 1


def stored_by_key():
    counts = Message.select(Message.key, fn.COUNT(Message.id)).group_by(Message.key)
    return counts.tuples()


def in_thread(batch):
    try:
        return storing.insert_all(batch)
    finally:
        database.disconnect()


def is_waiting(url):
    query = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        return connection.execute(query, [connection.info.dbname]).fetchall()
