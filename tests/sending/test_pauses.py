"""A carrier that says too fast, is down or refuses the account: when it is tried, and till when."""

import logging
import uuid
from collections import Counter

import pytest

from databases import on_both, on_sqlite
from fake_carrier import ACCOUNT, FOR_GOOD, FOR_NOW, SLOWLY, TOO_FAST, AskableCarrier
from running import wait_until
from samples import HOUR, MILLISECOND, MINUTE, NEIGHBOUR, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from several_carriers import NamedCarrier
from stored_messages import SENDER, decide_on, statuses, store, store_many
from texting.carriers import CarrierError, Fault, TooFast
from texting.database import db, isoformat
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import Message, Status
from texting.monitoring import health
from texting.sending.carrier_state import CarrierState, Permission, state_of
from texting.sending.sends import Answer, Send

pytestmark = on_both

DOWN = CarrierError("nobody listens", unreached=True)
PAGE = CarrierError("a gateway's page", silent=True)
CANNOT_BE_ASKED = object()
CAUSES = {
    "too fast": (TOO_FAST, [0, 1, 3, 7, 15, 34, 74, 134, 194], None, "says too fast"),
    "down": (DOWN, [0, 5, 15, 35, 75, 135, 195], "has been down", "is down"),
    "account": (
        *(ACCOUNT, [0, 5, 15, 35, 75, 135, 195]),
        *("has refused the account", "refuses the account"),
    ),
}
"""An answer, when one text is tried (in seconds), what is told of it, and its line in the log."""
LOOKS = (*range(8), 14, 15, 16, 34, 35, 74, 75, 134, 135, 194, 195)


class Checked(AskableCarrier):
    """A carrier that answers the question whether it serves, and counts that."""

    def __init__(self):
        super().__init__()
        self.checks, self.health = 0, None

    @property
    def can_be_checked(self):
        return self.health is not CANNOT_BE_ASKED

    def check(self):
        self.checks += 1
        if self.health:
            raise self.health


@pytest.fixture
def checked():
    return Checked()


@pytest.fixture
def problems(settings):
    return lambda now: health.read(now, settings).problems()


def errors(caplog):
    return [each.message for each in caplog.records if each.levelno >= logging.ERROR]


# How long a pause is


@pytest.fixture
def tries(run_pass, carrier):
    """Answer all texts alike; return at which of the seconds of LOOKS one was tried."""

    def count(since, answer):
        numbers = store_many(40, since)
        carrier.answers = dict.fromkeys(numbers, answer)
        seconds = []
        for second in LOOKS:
            before = len(carrier.texts)
            run_pass(since + second * SECOND, send_concurrency=1)
            seconds += [second] * (len(carrier.texts) - before)
        carrier.answers = {}
        assert statuses()[Status.QUEUED] == 40, "no text loses a retry"
        return seconds

    return count


@on_sqlite
@pytest.mark.slow
@pytest.mark.parametrize("second", CAUSES)
@pytest.mark.parametrize("first", CAUSES)
def test_pauses_grow_to_a_minute_the_second_time_as_the_first(
    tries, run_pass, known_problems, caplog, first, second
):
    answer, seconds, _, _ = CAUSES[first]
    assert tries(TUESDAY_NOON, answer) == seconds
    run_pass(TUESDAY_NOON + 5 * MINUTE)
    assert known_problems(TUESDAY_NOON + 5 * MINUTE) == []
    caplog.clear()
    caplog.set_level("INFO", "scheduler")
    again_at = TUESDAY_NOON + 10 * MINUTE
    answer, seconds, told, line = CAUSES[second]
    assert tries(again_at, answer) == seconds
    began = [f"fake {told} since {isoformat(again_at)}: {answer}"] if told else []
    told_of = [each for each in known_problems(again_at + 20 * SECOND) if each.startswith("fake")]
    assert told_of == began
    assert caplog.text.count(line) == 1
    run_pass(again_at + 5 * MINUTE)
    assert known_problems(again_at + 5 * MINUTE) == []
    assert caplog.text.count("takes texts again") == len(began)


@pytest.mark.parametrize(
    ("first", "second", "since"),
    [
        ("too fast", "down", 5),
        ("too fast", "account", 5),
        ("down", "account", 0),
        ("account", "down", 0),
    ],
)
def test_another_trouble_within_a_pause_is_told_and_logged(
    run_pass, carrier, known_problems, caplog, first, second, since
):
    carrier.answers = dict.fromkeys(store_many(3), CAUSES[first][0])
    run_pass(TUESDAY_NOON, send_concurrency=1)
    answer, _, told, line = CAUSES[second]
    carrier.answers = dict.fromkeys(carrier.answers, answer)
    for seconds in (5, 15):
        run_pass(TUESDAY_NOON + seconds * SECOND, send_concurrency=1)
    assert len(carrier.texts) == 3
    (problem,) = known_problems(TUESDAY_NOON + 15 * SECOND)
    assert problem.startswith(f"fake {told} since {isoformat(TUESDAY_NOON + since * SECOND)}")
    assert caplog.text.count(line) == 1


@pytest.mark.parametrize("serves", [True, False], ids=["asked, it serves", "it cannot be asked"])
def test_too_fast_goes_on_though_nothing_waited_when_the_pause_was_over(run_pass, checked, serves):
    message = store()
    checked.answers[NEW_YORK] = TOO_FAST
    checked.health = None if serves else CANNOT_BE_ASKED
    run_pass(TUESDAY_NOON, checked)
    assert decide_on(message).cancel("shell", TUESDAY_NOON)
    for seconds in (1, 2, 60):
        run_pass(TUESDAY_NOON + seconds * SECOND, checked)
    then = TUESDAY_NOON + HOUR
    checked.answers = dict.fromkeys(store_many(20, then), TOO_FAST)
    run_pass(then, checked)
    assert len(checked.texts) == 2, "one goes first"
    checked.answers = {}
    run_pass(then + 2 * SECOND - MILLISECOND, checked)
    assert len(checked.texts) == 2, "the next pause is twice as long"
    assert run_pass(then + 2 * SECOND, checked)["sent"] == 20


def test_a_probe_that_was_claimed_by_a_clock_ahead_is_waited_for_as_any(run_pass, carrier):
    CarrierState.record_pass(TUESDAY_NOON + HOUR, {"fake": []})
    store()
    long_ago = TUESDAY_NOON - HOUR
    probed_at = TUESDAY_NOON + HOUR
    Heartbeat.create(sender=SENDER, beat_at=probed_at)
    CarrierState.update(
        retry_at=long_ago,
        paused_at=long_ago,
        probe_claimed_at=probed_at,
        probe_claimed_by=SENDER,
        pause=1,
    ).execute()
    run_pass(TUESDAY_NOON)
    assert run_pass(TUESDAY_NOON + 5 * MINUTE + SECOND)["sent"] == 1


# Who ends one


@pytest.mark.parametrize("answer", [None, TOO_FAST], ids=["a yes", "too fast"])
def test_a_text_that_did_not_know_of_a_pause_neither_ends_nor_doubles_it(run_pass, carrier, answer):
    first, second, *_ = store_many(20)
    no, pause = (TOO_FAST, SECOND) if answer else (SLOWLY, 30 * SECOND)

    def answer_late():
        wait_until(lambda: CarrierState.get_by_id("fake").retry_at)
        db.close()  # of this thread
        return answer

    carrier.answers = {first: no, second: answer_late}
    run_pass(TUESDAY_NOON, send_concurrency=2)
    run_pass(TUESDAY_NOON + pause - MILLISECOND)
    assert carrier.numbers == [first, second]
    carrier.answers = {}
    run_pass(TUESDAY_NOON + pause)
    assert statuses() == {Status.SENT: 20}


def test_a_pause_is_not_cut_short_by_a_later_shorter_one(run_pass, carrier):
    waits = iter([30, 2, 5, 1, 20, 3, 2, 1])
    carrier.answers = dict.fromkeys(
        store_many(8), lambda: CarrierError("slow", Fault.TOO_FAST, retry_after=next(waits))
    )
    run_pass(TUESDAY_NOON, send_concurrency=8)
    asked = len(carrier.texts)
    carrier.answers = {}
    run_pass(TUESDAY_NOON + 30 * SECOND - MILLISECOND)
    assert len(carrier.texts) == asked
    assert run_pass(TUESDAY_NOON + 30 * SECOND)["sent"] == 8


def test_a_pause_that_is_lengthened_is_not_ended_by_the_probe_under_way(run_pass, carrier):
    """By the answer to a text that another scheduler had under way."""
    numbers = store_many(10)
    carrier.answers = dict.fromkeys(numbers, TOO_FAST)
    run_pass(TUESDAY_NOON, send_concurrency=1)

    def lengthen():
        CarrierState.begin_pause("fake", TUESDAY_NOON + SECOND, asked_for=30)
        db.close()  # of this thread

    carrier.answers = dict.fromkeys(numbers, lengthen)
    run_pass(TUESDAY_NOON + SECOND, send_concurrency=4)
    assert len(carrier.texts) == 2, "the probe, and nothing after it"
    carrier.answers = {}
    run_pass(TUESDAY_NOON + 31 * SECOND - MILLISECOND)
    assert len(carrier.texts) == 2
    assert run_pass(TUESDAY_NOON + 31 * SECOND)["sent"] == 9


def test_the_late_answer_to_a_probe_lets_nobody_go_beside_that_of_the_next_pause(database_url):
    first, second, third = (uuid.UUID(int=n) for n in (1, 2, 3))
    for sender in (first, second):
        Heartbeat.create(sender=sender, beat_at=TUESDAY_NOON)
    CarrierState.prepare("fake")
    probes = []
    for sender, now in ((first, TUESDAY_NOON), (second, TUESDAY_NOON + MINUTE)):
        CarrierState.begin_pause("fake", now)
        assert CarrierState.claim_probe("fake", sender, now + MINUTE)
        probes.append(state_of("fake").probe_claimed_at)
    CarrierState.end_probe("fake", probes[0])
    later = TUESDAY_NOON + HOUR
    assert state_of("fake").permission(later, third) is Permission.NONE
    CarrierState.end_probe("fake", probes[1])
    assert state_of("fake").permission(later, third) is Permission.PROBE


def test_too_fast_between_the_parts_of_a_text_is_a_pause_for_all(run_pass, carrier):
    numbers = store_many(10)
    words = []
    carrier.received = lambda: [words.pop()] if words else []
    carrier.answers[numbers[0]] = lambda: words.append(TooFast("too many texts"))
    run_pass(TUESDAY_NOON, send_concurrency=1)
    sent = len(carrier.texts)
    assert sent <= 2
    run_pass(TUESDAY_NOON + SECOND - MILLISECOND)
    assert len(carrier.texts) == sent
    assert +run_pass(TUESDAY_NOON + SECOND) == Counter({"sent": 10 - sent})


def in_doubt(count):
    return store_many(count, in_doubt=1, in_doubt_with="fake", in_doubt_since=TUESDAY_NOON)


# When a trouble is over

NO_TEXT = "no text waits"
REFUSED = [(0, ACCOUNT, None, True)]
PAGES = [(0, PAGE, None, False)] * 4 + [(0, PAGE, None, True)]
TROUBLES = {
    "asked, it serves": (
        [(0, DOWN, DOWN, True), (4, NO_TEXT, None, True), (5, NO_TEXT, None, False)],
        1,
    ),
    **{
        f"asked, it says {no}": (
            [(0, DOWN, no, True), *((second, NO_TEXT, no, True) for second in LOOKS[1:])],
            6,  # after pauses that grow
        )
        for no in (DOWN, PAGE, CarrierError("busy"), ACCOUNT)
    },
    "it cannot be asked": (
        [
            (0, DOWN, CANNOT_BE_ASKED, True),
            (60, NO_TEXT, CANNOT_BE_ASKED, True),
            (60, None, CANNOT_BE_ASKED, False),
        ],
        0,
    ),
    "too fast says nothing of the account": ([*REFUSED, (5, TOO_FAST, None, True)], 1),
    **{
        f"{name}, and a text is answered with {own}": (
            [
                *began,
                *((second, NO_TEXT, None, True) for second in (5, 15, 60)),
                (61, own, None, False),
            ],
            1,  # nothing more is to be learnt from a question
        )
        for name, began in (("the account", REFUSED), ("pages", PAGES))
        for own in (None, FOR_NOW, FOR_GOOD)
    },
    "it is asked again after each text that was refused": (
        [
            *(*REFUSED, (5, NO_TEXT, None, True), (6, ACCOUNT, None, True)),
            *((60, NO_TEXT, None, True), (120, NO_TEXT, None, True)),
        ],
        2,
    ),
    "asked, it fails meanwhile": (
        [
            *(*REFUSED, (60, NO_TEXT, DOWN, True), (120, NO_TEXT, DOWN, True)),
            *((600, NO_TEXT, None, True), (600, None, None, False)),
        ],
        3,
    ),
    "an outage, and then texts are refused": (
        [
            *((0, DOWN, None, True), (60, ACCOUNT, None, True), (120, ACCOUNT, None, True)),
            (600, NO_TEXT, None, True),
        ],
        3,
    ),
    "texts are refused, and then an outage": (
        [
            *(*REFUSED, (60, None, None, False), (120, DOWN, None, True)),
            (240, NO_TEXT, None, False),
        ],
        2,
    ),
    "five silent texts once more": (
        [*PAGES, (5, None, None, False), *((10, *page[1:]) for page in PAGES)],
        1,
    ),
    "five silent texts after an outage": (
        [
            *(*PAGES[:4], (0, DOWN, None, True), (5, NO_TEXT, None, False)),
            *((10, *page[1:]) for page in PAGES),
        ],
        1,
    ),
}
"""By what happens: seconds, what a text and a question are answered, and whether that is a trouble.

And how often the carrier was asked whether it serves.
"""


@on_sqlite
@pytest.mark.parametrize("what", TROUBLES)
def test_a_question_ends_an_outage_and_a_text_ends_a_trouble_that_texts_began(
    problems, run_pass, checked, what
):
    steps, checks = TROUBLES[what]
    for second, said, served, is_trouble in steps:
        now = TUESDAY_NOON + second * SECOND
        message = store(now) if said != NO_TEXT else None
        checked.answers, checked.health = {NEW_YORK: said}, served
        run_pass(now, checked)
        assert bool(problems(now)) == is_trouble, second
        if message:
            decide_on(message).cancel("shell", now)
    assert checked.checks == checks


def test_too_fast_as_the_first_answer_ends_an_outage_and_begins_a_pause_of_a_second(
    problems, run_pass, carrier
):
    carrier.answers = dict.fromkeys(store_many(3), DOWN)
    for second in (0, 5, 15):
        run_pass(TUESDAY_NOON + second * SECOND, send_concurrency=1)
    carrier.answers = dict.fromkeys(carrier.answers, TOO_FAST)
    then = TUESDAY_NOON + 35 * SECOND
    run_pass(then)
    assert problems(then) == []
    carrier.answers = {}
    run_pass(then + SECOND - MILLISECOND)
    assert len(carrier.texts) == 4
    assert run_pass(then + SECOND)["sent"] == 2, "the other one is to be tried again"


@on_sqlite
@pytest.mark.parametrize("said", [[], ["SM1"], TOO_FAST], ids=["not taken", "taken", "too fast"])
@pytest.mark.parametrize("no", [ACCOUNT, PAGE], ids=["the account", "pages"])
def test_a_question_about_a_doubt_ends_no_trouble_that_texts_began(
    problems, run_pass, checked, no, said
):
    checked.answers = dict.fromkeys(store_many(5, max_retries=0), no)
    run_pass(TUESDAY_NOON, checked)
    Message.update(status=Status.CANCELLED, finished_at=TUESDAY_NOON).execute()
    store(to=NEIGHBOUR, in_doubt=1, in_doubt_with="fake", in_doubt_since=TUESDAY_NOON)
    checked.answers = {NEIGHBOUR: no}

    def find(*_):
        if isinstance(said, Exception):
            raise said
        return said

    checked.find = find
    run_pass(TUESDAY_NOON + 5 * SECOND, checked)
    assert problems(TUESDAY_NOON)


@on_sqlite
def test_silent_questions_begin_an_outage_that_a_question_ends(problems, run_pass, checked):
    in_doubt(5)
    checked.listing = PAGE
    run_pass(TUESDAY_NOON, checked)
    assert problems(TUESDAY_NOON)
    checked.listing = None
    Message.update(status=Status.CANCELLED, finished_at=TUESDAY_NOON).execute()
    run_pass(TUESDAY_NOON + MINUTE, checked)
    assert problems(TUESDAY_NOON) == []


# Silences in a row


@pytest.mark.parametrize(
    ("answers", "is_down"),
    [
        *(([*4 * [PAGE], own], False) for own in (None, FOR_GOOD, TOO_FAST)),
        ([*4 * [PAGE], None, *4 * [PAGE]], True),
    ],
)
def test_answers_of_its_own_within_a_batch_end_a_row_of_silences(
    settings, carrier, at, database_url, answers, is_down
):
    at(TUESDAY_NOON)
    CarrierState.prepare("fake")
    watch = Scheduler(settings, carrier).senders[0].watch
    for batch in (answers, [PAGE]):
        watch.permission(False)
        watch.record_answers(
            [Answer(Send(Message(), None, 0, None, (0, 0)), error) for error in batch]
        )
    assert CarrierState.get_by_id("fake").is_down == is_down


# With several carriers


@pytest.fixture
def refusing():
    """Two carriers; the first serves, asked, and refuses each text."""
    us, eu = NamedCarrier("us"), NamedCarrier("eu")
    us.health = None
    return us, eu


@pytest.mark.slow
@pytest.mark.parametrize("no", [ACCOUNT, PAGE], ids=["the account", "pages"])
def test_one_that_serves_when_it_is_asked_and_refuses_texts_has_one_trouble_until_it_takes_one(
    run_both, refusing, caplog, no
):
    us, eu = refusing
    us.answer = no
    store_many(8)
    run_both(TUESDAY_NOON, carriers=refusing)
    assert len(errors(caplog)) == 1
    for second in range(5, 90, 5):
        store(to=NEIGHBOUR)
        run_both(TUESDAY_NOON + second * SECOND, carriers=refusing)
    assert len(errors(caplog)) == 1
    assert not [each for each in caplog.records if "takes texts again" in each.message]
    assert len(us.texts) <= 8 + 5, "and one after each pause at most"
    assert len(eu.texts) >= 17
    lost = Message.select().where(Message.to == NEIGHBOUR, Message.attempts > 1)
    assert list(lost) == []
    us.answer, given = None, len(us.texts)
    for minutes in range(2, 30):
        store(to=NEIGHBOUR)
        run_both(TUESDAY_NOON + minutes * MINUTE, carriers=refusing)
        if len(us.texts) > given:
            break
    assert CarrierState.get_by_id("us").trouble is None
    eu.texts.clear()
    store(to=NEIGHBOUR)
    run_both(TUESDAY_NOON + 40 * MINUTE, carriers=refusing)
    assert eu.texts == []


def test_an_unexpected_error_of_a_question_is_told_and_it_is_asked_again(run_pass, checked, caplog):
    store(TUESDAY_NOON)
    checked.answers[NEW_YORK] = DOWN
    run_pass(TUESDAY_NOON, checked)
    checked.health, checked.answers = ImportError("s3cret"), {}
    run_pass(TUESDAY_NOON + 5 * SECOND, checked)
    assert CarrierState.get_by_id("fake").trouble == str(DOWN)
    assert "carrier fake hit an unexpected ImportError while being asked" in errors(caplog)
    assert "s3cret" not in caplog.text
    run_pass(TUESDAY_NOON + 6 * SECOND, checked)
    assert checked.checks == 1, "not before a longer pause is over"
    checked.health = None
    assert run_pass(TUESDAY_NOON + 5 * MINUTE, checked)["sent"] == 1
    assert checked.checks == 2
