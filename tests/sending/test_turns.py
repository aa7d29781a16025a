"""Who goes first: keys take turns, urgent ones first, SEND_RATE holds back, testers are apart."""

import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import stored_messages
from access.keys import ApiKey, Role
from carriers import CarrierError
from carriers.lanes import TESTERS
from database import clock, db
from databases import on_both
from events.delivery import Deliveries
from fake_carrier import TOO_FAST
from messages.attempts import Attempt
from messages.model import Message, Status
from own_threads import begin
from samples import ALWAYS_OPEN, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from sending.carrier_state import CarrierState
from sending.heartbeats import Heartbeat
from stored_messages import SENDER, again, key_named, statuses, store, store_many

pytestmark = on_both

PERMANENT, TEMPORARY, TOO_BUSY = "+12125550101", "+12125550102", "+12125550103"


def key_of(name, role=Role.SENDER):
    """A key; those whose names begin with u, v or w are urgent."""
    key = key_named(name)
    ApiKey.update(urgent=name[0] in "uvw", role=role).where(ApiKey.id == key.id).execute()
    return ApiKey.get_by_id(key.id)


def claim(limit, first_key=0, **options):
    """Claim messages; return the names of their keys."""
    names = dict(ApiKey.select(ApiKey.id, ApiKey.name).tuples())
    claimed = stored_messages.claim(limit, first_key, **options)
    return "".join(names[message.key_id] for message in claimed)


# Turns


@pytest.mark.parametrize(
    ("waiting", "claims"),
    [
        ({"a": 100, "b": 2, "c": 1}, ["aaabbc", "aaaaaa"]),
        ({"a": 1, "b": 50, "c": 50}, ["abbbbcccc"]),
        ({"a": 50, "b": 50, "u": 1, "v": 2}, ["uv", "aabbv", "aabb"]),
        ({"a": 20, "u": 20, "v": 20, "w": 20}, ["uuvvww"]),
    ],
)
def test_keys_share_what_may_go_and_urgent_ones_come_first(database_url, waiting, claims):
    """What a key cannot use goes to the others."""
    for name, count in waiting.items():
        store_many(count, key=key_of(name))
    assert ["".join(sorted(claim(len(each)))) for each in claims] == claims


def test_a_claim_begins_with_a_key_and_goes_on_behind_it(database_url):
    _, b, c = (key_of(name).id for name in "abc")
    for name in "abc":
        store_many(10, key=key_named(name))
    assert [claim(1, b), claim(3, c), claim(2, c + 1)] == ["b", "cab", "ab"]
    _, v = (key_of(name).id for name in "uv")
    for name in "uv":
        store_many(10, key=key_named(name))
    assert [claim(1, first_urgent=v), claim(2, 99, first_urgent=v + 1)] == ["v", "uv"]


def test_an_urgent_tester_comes_before_testers_and_not_before_senders(database_url):
    for name, role in (("a", Role.SENDER), ("t", Role.TESTER), ("u", Role.TESTER)):
        store(key=key_of(name, role))
    assert [claim(5), claim(5, carrier=TESTERS)] == ["a", "ut"]


def test_each_key_has_its_own_longest_due_first_and_equal_instants_by_id(database_url):
    for name in "ab":
        for seconds in (1, 3, 2):
            store(key=key_named(name), send_at=TUESDAY_NOON - seconds * SECOND)
        store(key=key_named(name), send_at=TUESDAY_NOON - 3 * SECOND)
    claimed = stored_messages.claim(8)
    for key in map(key_named, "ab"):
        own = [(message.send_at, message.id) for message in claimed if message.key_id == key.id]
        assert own == sorted(own)
        assert len(own) == 4


def test_what_others_are_claiming_just_now_is_passed_over(database_url, kind):
    if kind == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    store(key=key_named("a"))
    store(key=key_named("b"))
    Heartbeat.create(sender=SENDER, beat_at=TUESDAY_NOON)
    locked, done = threading.Event(), threading.Event()

    def hold():
        with db.atomic():
            stored_messages.claim(1)
            locked.set()
            done.wait(30)

    with ThreadPoolExecutor(1) as pool:
        begin(pool, hold)
        locked.wait(30)
        assert [claim(1), claim(1)] == ["b", ""]
        done.set()


@pytest.fixture
def send_one(settings, carrier, at):
    """Send one text by a pass of a process of its own; return the text."""
    at(TUESDAY_NOON)

    def send():
        one = Scheduler(settings._replace(send_concurrency=1), carrier)
        carrier.answers = {NEW_YORK: one.stop.request}
        before = len(carrier.texts)
        one.run_pass()
        ((_, text),) = carrier.texts[before:]
        return text

    return send


def test_both_kinds_take_turns_over_passes(send_one):
    for name in "abcduv":
        for _ in range(2):
            store(key=key_of(name), message=name)
    assert "".join(send_one() for _ in range(12)) == "uvuvabcdabcd"


def test_urgent_texts_in_between_change_no_turn_of_the_others(send_one):
    for name in "abc":
        for _ in range(2):
            store(key=key_of(name), message=name)
    sent = ""
    for _ in range(6):
        store(key=key_of("u"), message="u")
        sent += send_one() + send_one()
    assert sent == "uaubucuaubuc"


@pytest.mark.parametrize("names", ["abc", "uvw", "abuv"])
def test_what_the_rate_holds_back_is_the_next_in_turn(names, settings, carrier, at, run_pass):
    """Three texts are claimed at once, of which one may go."""
    for name in names:
        for _ in range(2):
            store(key=key_of(name), message=name, parts=3)
    for second in range(2 * len(names)):
        run_pass(TUESDAY_NOON + second * SECOND, send_rate=5)
    urgent = "".join(name for name in names if name in "uvw")
    others = names.replace(urgent, "")
    assert "".join(text for _, text in carrier.texts) == 2 * urgent + 2 * others


@pytest.mark.slow
def test_a_repeated_pass_begins_early_for_an_urgent_text(settings, carrier):
    """Two passes are ten minutes apart, which nobody waits for."""
    every = Scheduler(settings._replace(**ALWAYS_OPEN, send_concurrency=1), carrier)
    key_of("u"), key_of("a")

    def create():
        now = clock.now()
        with db.atomic():
            for name in "au":
                store(now=now, key=key_named(name), message=name)
        db.close()

    carrier.answers = {NEW_YORK: every.stop.request}
    threading.Timer(1.5, create).start()
    giving_up = threading.Timer(120, every.stop.request)
    giving_up.start()
    every.run(600, lambda counts: None)
    giving_up.cancel()
    assert carrier.texts[0] == (NEW_YORK, "u")


# The rate

TWO_PARTS = "x" * 200


def test_what_does_not_fit_into_the_rate_keeps_its_place_unchanged(run_pass, carrier):
    numbers = store_many(30, message=TWO_PARTS)
    before = {m.id: m.__data__ | {"claim_number": 0} for m in Message.select()}
    counts = run_pass(TUESDAY_NOON, send_rate=10.0)
    assert +counts == Counter({"sent": 3, "waiting for a carrier": 27})
    assert sorted(carrier.numbers) == numbers[:3]
    waiting = Message.select().where(Message.status == Status.QUEUED)
    assert all(m.__data__ | {"claim_number": 0} == before[m.id] for m in waiting)
    assert run_pass(TUESDAY_NOON + SECOND, send_rate=10.0)["sent"] == 3
    assert sorted(carrier.numbers) == numbers[:6]


@pytest.mark.slow
@pytest.mark.parametrize("used_for", [20, -0.4])
def test_a_signal_ends_the_wait_and_nothing_stays_claimed(settings, carrier, used_for):
    """The rate is used up for some seconds, or a long text has its place and may not go yet."""
    store_many(3, message=TWO_PARTS)
    used_until = round((clock.now().timestamp() + used_for) * 1_000_000)
    CarrierState.create(name="fake", rate_used_until=used_until)
    waiting = Scheduler(settings._replace(send_rate=0.6, **ALWAYS_OPEN), carrier)
    threading.Timer(0.5, waiting.stop.request).start()
    began = time.monotonic()
    waiting.run_pass()
    assert time.monotonic() - began < 10
    assert statuses() == {Status.QUEUED: 3}
    assert not Attempt.select().exists(), "none is in its hands"
    assert {(m.attempts, m.due_since) for m in Message.select()} == {(0, None)}


@pytest.mark.parametrize("has_it", [True, False])
def test_a_question_uses_nothing_of_the_rate_and_a_text_after_it_does(run_pass, carrier, has_it):
    carrier.can_be_asked = True
    carrier.find = lambda to, *_: [to] if has_it else []
    store_many(20, in_doubt=1, in_doubt_since=TUESDAY_NOON)
    sent = run_pass(TUESDAY_NOON, send_rate=10.0)["sent"]
    assert len(carrier.texts) == (0 if has_it else sent)
    assert sent == 20 if has_it else 0 < sent <= 7


def test_a_text_that_waits_for_the_rate_goes_before_others_of_later_keys(run_pass, carrier):
    """Otherwise texts of many parts would be overtaken for ever."""
    store_many(2, key=key_named("a"))
    store(to="+12125559999", key=key_named("b"), message="x" * 900)  # six parts
    store_many(9, key=key_named("c"))
    for seconds in range(3):
        run_pass(TUESDAY_NOON + seconds * SECOND, send_rate=10.0)
    assert carrier.numbers.index("+12125559999") < 10


def test_after_too_fast_the_first_text_keeps_to_the_rate_too(run_pass, carrier):
    numbers = store_many(10)
    carrier.answers = dict.fromkeys(numbers, TOO_FAST)
    run_pass(TUESDAY_NOON, send_rate=1.0)
    assert len(carrier.texts) == 1
    carrier.answers = {}
    run_pass(TUESDAY_NOON + SECOND, send_rate=1.0)
    assert len(carrier.texts) == 2


# Testers


@pytest.mark.parametrize("with_carrier", [True, False])
def test_a_testers_texts_go_to_the_simulator_and_to_no_carrier(
    run_pass, carrier, tester, with_carrier
):
    taken, refused, retried = (
        store(key=tester, to=number) for number in (NEW_YORK, PERMANENT, TEMPORARY)
    )
    sent = store(to="+12125550188")
    counts = run_pass(TUESDAY_NOON, carrier if with_carrier else None)
    assert again(taken).status == Status.SENT
    assert (again(refused).status, again(retried).status) == (Status.FAILED, Status.SCHEDULED)
    assert carrier.numbers == ([sent.to] if with_carrier else [])
    expected = Counter({"sent": 1, "failed": 1, "retrying": 1})
    expected["sent" if with_carrier else "waiting for a carrier"] += 1
    assert +counts == expected


def test_testers_use_nothing_of_the_rate(run_pass, carrier, tester):
    store_many(30, key=tester)
    assert run_pass(TUESDAY_NOON, send_rate=1.0)["sent"] == 30
    store()
    assert run_pass(TUESDAY_NOON, send_rate=1.0)["sent"] == 1


def test_the_simulators_pause_is_its_own_and_so_is_the_carriers(run_pass, carrier, tester):
    store(key=tester, to=TOO_BUSY)
    store()
    assert run_pass(TUESDAY_NOON)["sent"] == 1
    assert CarrierState.get_by_id("fake").retry_at is None
    assert CarrierState.get_by_id(TESTERS).retry_at == TUESDAY_NOON + SECOND
    Message.delete().execute()
    carrier.answers[NEW_YORK] = CarrierError("no credit", account=True)
    refused, taken = store(), store(key=tester)
    run_pass(TUESDAY_NOON + 2 * SECOND)
    assert (again(refused).status, again(taken).status) == (Status.QUEUED, Status.SENT)


def test_the_state_of_the_testers_simulator_is_not_the_services(run_pass, carrier, tester):
    store(key=tester)
    run_pass(TUESDAY_NOON)
    assert CarrierState.latest().name == "fake"
    run_pass(TUESDAY_NOON + SECOND, carrier=None)
    assert CarrierState.latest().name == ""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["sends", "events"])
def test_a_wait_that_a_signal_makes_longer_ends(what, settings, carrier):
    """Python 3.11 has its SimpleQueue wait for ever; so do a small timeout and a busy core."""
    every, deliveries = Scheduler(settings, carrier), Deliveries(60, Message.note_notified)
    waiting = every if what == "sends" else deliveries
    handlings = []

    def handle(*_):
        handlings.append(time.monotonic())
        if len(handlings) == 1:
            time.sleep(0.2)
        else:  # too late: let the test fail instead of hang
            waiting.ended.put(None)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 5)
    try:
        assert not (every.ended.gather(0.1) if what == "sends" else deliveries.wait(0.1))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(handlings) == 1
