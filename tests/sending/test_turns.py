"""Who goes first: keys take turns, urgent ones first, SEND_RATE holds back, testers are apart."""

import itertools
import signal
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

import stored_messages
from databases import on_both
from fake_carrier import TOO_FAST
from own_threads import begin
from samples import ALWAYS_OPEN, DAY, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import SENDER, again, key_named, statuses, store, store_many
from texting.access.do_not_call import DoNotCall
from texting.access.keys import ApiKey, Role
from texting.carriers import CarrierError, Fault
from texting.carriers.lanes import TESTERS
from texting.database import clock, db
from texting.events.delivery import Deliveries
from texting.messages.attempts import Attempt
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import Message, Status
from texting.sending.carrier_state import CarrierState
from texting.sending.claims import claim_these
from texting.sending.runtime import Clock, Runtime

pytestmark = on_both

PERMANENT, TEMPORARY, TOO_BUSY = "+12125550101", "+12125550102", "+12125550103"


def key_of(name, role=Role.SENDER):
    """A key; those whose names begin with u, v or w are urgent."""
    key = key_named(name)
    ApiKey.update(urgent=name[0] in "uvw", role=role).where(ApiKey.id == key.id).execute()
    return ApiKey.get_by_id(key.id)


def claim(limit, of=None, **options):
    """Claim messages; return the names of their keys."""
    return keys_of(stored_messages.claim(limit, of, **options))


def keys_of(messages):
    names = dict(ApiKey.select(ApiKey.id, ApiKey.name).tuples())
    return "".join(names[message.key_id] for message in messages)


def are_in_turn(names, *parts):
    """Whether the keys of each part come round and round, in whichever order they began."""
    for part in parts:
        own, names = names[: len(part)], names[len(part) :]
        keys = len({*part})
        if sorted(own) != sorted(part) or any(
            a != b for a, b in zip(own, own[keys:], strict=False)
        ):
            return False
    return not names


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


def test_a_key_that_had_its_turn_goes_to_the_end_in_its_kind(database_url):
    for name in "abcuvw":
        store_many(4, key=key_of(name))
    turns = stored_messages.turns()
    claimed = "".join(claim(count, turns) for count in 4 * (1, 2, 3))
    assert are_in_turn(claimed, 4 * "uvw", 4 * "abc")


def test_what_is_put_back_is_the_next_in_turn_also_if_its_key_has_no_more(database_url):
    for name in "abcd":
        store(key=key_of(name))
    turns = stored_messages.turns()
    _, *waiting = stored_messages.claim(9, turns)
    Message.put_back(waiting)
    turns.put_back(waiting)
    assert claim(1, turns) == keys_of(waiting[:1])
    store(key=key_of("e"))
    turns.refresh(stored_messages.may_take)
    assert claim(2, turns) == keys_of(waiting[1:])
    assert claim(2, turns) == "e"


@pytest.mark.parametrize("count", [1, 30])
def test_several_schedulers_begin_with_any_key(database_url, count):
    """Or one that makes single passes would always try the same key's text after a pause."""
    for name in "abcdefgh":
        store_many(count, key=key_of(name))
    begun = set()
    for _ in range(40):
        (first,) = stored_messages.claim(1)
        Message.put_back([first])
        begun.add(first.key_id)
    assert len(begun) > 1


def test_the_one_text_after_a_pause_is_the_next_in_turn_urgent_or_not(database_url):
    for name in "abuv":
        store_many(2, key=key_of(name))
    turns = stored_messages.turns()
    with db.atomic():
        probes = [turns.claim(1, stored_messages.may_take, is_probe=True) for _ in range(8)]
    assert are_in_turn(keys_of(one for (one,) in probes), 2 * "abuv")


def test_what_was_found_nowhere_is_not_looked_for_until_the_next_look(database_url):
    store(key=key_of("a"))
    turns = stored_messages.turns()
    assert claim(2, turns) == "a"
    for name in "ab":
        store(key=key_of(name), lane="GB", country="GB")
    assert claim(2, turns) == ""
    turns.refresh(stored_messages.may_take)
    assert sorted(claim(2, turns)) == [*"ab"]


def test_a_key_that_was_paused_since_the_last_look_gets_nothing(database_url):
    for name in "abuv":
        store_many(2, key=key_of(name))
    turns = stored_messages.turns()
    ApiKey.update(paused_at=TUESDAY_NOON).where(ApiKey.name << ["a", "u"]).execute()
    assert claim(8, turns) == "vvbb"


def test_a_key_that_was_paused_since_its_text_was_found_gets_nothing(database_url):
    """Where a text breaks a claim, all of it are found first, and then claimed one by one."""
    paused, other = (store(key=key_of(name)) for name in "ab")
    ApiKey.update(paused_at=TUESDAY_NOON).where(ApiKey.name == "a").execute()
    assert claim_these([paused.id, other.id]) == [other]


def test_answers_to_replies_go_before_urgent_texts_in_turn(database_url):
    for name in "abu":
        store_many(2, key=key_of(name))
        store_many(2, key=key_of(name), lane="=fake")
    turns = stored_messages.turns()
    claimed = [stored_messages.claim(1, turns)[0] for _ in range(6)]
    assert {message.lane for message in claimed} == {"=fake"}
    assert are_in_turn(keys_of(claimed), 2 * "abu")
    assert claim(2, turns) == "uu"


def test_the_longest_due_goes_first_over_all_lanes(database_url):
    for seconds, lane in enumerate(["US", "GB", "FR", "US", "DE", "GB"]):
        store(key=key_of("a"), lane=lane, send_at=TUESDAY_NOON - seconds * SECOND)
    turns, due = stored_messages.turns(), []
    for count in (1, 3, 2):
        due += [message.send_at for message in stored_messages.claim(count, turns)]
    assert due == sorted(due)
    assert len(due) == 6


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
    locked, done, held = threading.Event(), threading.Event(), []

    def hold():
        with db.atomic():
            held.append(claim(1))
            locked.set()
            done.wait(30)

    with ThreadPoolExecutor(1) as pool:
        begin(pool, hold)
        locked.wait(30)
        claimed = [claim(1), claim(1)]
        assert sorted(claimed + held) == ["", "a", "b"]
        done.set()


@pytest.fixture
def lasting(run_on, carrier):
    """Make passes of one scheduler, a second after one another, with a rate of a text each."""
    seconds = itertools.count()

    def run_pass():
        run_on(TUESDAY_NOON + next(seconds) * SECOND, send_rate=5)
        return "".join(text for _, text in carrier.texts)

    return run_pass


def test_urgent_texts_in_between_change_no_turn_of_the_others(lasting):
    for name in "abc":
        for _ in range(2):
            store(key=key_of(name), message=name, parts=3)
    for _ in range(6):
        store(key=key_of("u"), message="u", parts=3)
        lasting()
        sent = lasting()
    assert sent[::2] == 6 * "u"
    assert are_in_turn(sent[1::2], "abcabc")


@pytest.mark.parametrize("names", ["abc", "uvw", "abuv"])
def test_what_the_rate_holds_back_is_the_next_in_turn(names, lasting):
    """Three texts are claimed at once, of which one may go."""
    for name in names:
        for _ in range(2):
            store(key=key_of(name), message=name, parts=3)
    for _ in range(2 * len(names)):
        sent = lasting()
    urgent = "".join(name for name in names if name in "uvw")
    others = names.replace(urgent, "")
    assert are_in_turn(sent, 2 * urgent, 2 * others)


class TurnedClock(Clock):
    """A clock that a test turns."""

    seconds = 0.0

    def now(self):
        return TUESDAY_NOON + self.seconds * SECOND

    def monotonic(self):
        return self.seconds


@pytest.mark.parametrize("after", [0.1, 0.5, 0.9, 1.3])
@pytest.mark.parametrize("what", ["a new key", "a new lane", "a key that is resumed"])
def test_what_is_new_is_seen_within_a_second_while_texts_are_under_way(
    settings, carrier, what, after
):
    """Their carrier does not answer; a step in between, for whatever reason, changes nothing."""
    turned, given = TurnedClock(), []

    def submit(_, send):
        given.append(send.message.key_id)
        return Future()

    one = Scheduler(settings._replace(**ALWAYS_OPEN), carrier, Runtime(turned, submit))
    first, other = key_of("a"), key_of("u")

    def turn(to, step=False):
        while turned.seconds < to:
            turned.seconds += 0.05
            one.round()
        if step:
            one.senders[0].step(may_claim=True)

    store(key=first)
    if what == "a key that is resumed":
        store(key=other)
        ApiKey.update(paused_at=TUESDAY_NOON).where(ApiKey.id == other.id).execute()
    turn(after, step=True)
    assert given == [first.id]
    if what == "a key that is resumed":
        ApiKey.update(paused_at=None).execute()
    else:
        key, lane = (first, "GB") if what == "a new lane" else (other, "US")
        store(turned.now(), key=key, lane=lane, country=lane)
    turn(turned.seconds + 0.4, step=True)
    turn(turned.seconds + 0.6)
    assert len(given) == 2


def test_what_rarely_changes_is_asked_once_a_second_while_texts_are_under_way(settings, carrier):
    """One text stays under way, and one after the other is answered beside it."""
    turned, futures, sent, asked = TurnedClock(), [], [], []
    carrier.keeps_ids = DAY

    def submit(_, send):
        futures.append(Future())
        sent.append(send.message.id)
        return futures[-1]

    settings = settings._replace(send_concurrency=2, **ALWAYS_OPEN)
    one = Scheduler(settings, carrier, Runtime(turned, submit))

    def answer_one(seconds):
        turned.seconds += seconds
        futures[-1].set_result(None)
        one.await_answers()
        one.step_at = 0
        one.round()

    key = key_of("a")
    numbers = store_many(8, key=key)
    one.round()
    db.query_hooks.append(lambda event: asked.append(event.sql))
    for _ in range(3):
        answer_one(0.05)
    db.query_hooks.clear()
    rare = "expire_after", "ask_at", 'SET "unanswered"', 'SELECT "t1"."name"'
    assert len(futures) == 5
    assert [sql for sql in asked for each in rare if each in sql] == []
    ApiKey.update(check_dnc="always").execute()
    DoNotCall.add(numbers, TUESDAY_NOON, "operator")
    in_doubt = {"in_doubt": 1, "in_doubt_with": carrier.name, "in_doubt_since": TUESDAY_NOON}
    doubtful = store(**in_doubt)
    answer_one(1)
    assert sent[5:] == [doubtful.id], "the new rule holds, and the doubt is asked about"


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
    carrier.answers[NEW_YORK] = CarrierError("no credit", Fault.ACCOUNT)
    refused, taken = store(), store(key=tester)
    run_pass(TUESDAY_NOON + 2 * SECOND)
    assert (again(refused).status, again(taken).status) == (Status.QUEUED, Status.SENT)


def test_the_state_of_the_testers_simulator_is_not_the_services(run_pass, carrier, tester):
    store(key=tester)
    run_pass(TUESDAY_NOON)
    assert CarrierState.of_latest_pass()[0].name == "fake"
    run_pass(TUESDAY_NOON + SECOND, carrier=None)
    assert CarrierState.of_latest_pass()[0].name == ""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["sends", "events"])
def test_a_wait_that_a_signal_makes_longer_ends(what, settings, carrier):
    """Python 3.11 has its SimpleQueue wait for ever; so do a small timeout and a busy core."""
    every, deliveries = Scheduler(settings, carrier), Deliveries(60, Message.record_notified)
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
