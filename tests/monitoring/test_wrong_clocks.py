"""A clock that is wrong is told, and a scheduler's sends nothing at the wrong hour."""

import re
import socket
from datetime import timedelta

import pytest

from carrier_servers import HANG
from databases import on_both, on_postgres
from fake_carrier import SLOWLY
from faulty_database import FaultyDatabase
from running import ALWAYS, ROOT, send, wait_until
from samples import DAY, HOUR, LONDON, MINUTE, NEIGHBOUR, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import again, store
from texting.access.do_not_call import LastReply
from texting.carriers import configs
from texting.database import clock
from texting.database.dialects import PostgresDialect, SqliteDialect
from texting.messages.model import Message, Status
from texting.monitoring import clocks, notices
from texting.monitoring.clocks import ClockWatch, WrongClock
from texting.sending.carrier_state import CarrierState

HOST = socket.gethostname()


# Real processes, whose clocks are shifted


@pytest.fixture
def shift(tmp_path):
    """Shift the clock of processes that get `shift.environ`, by these seconds from now on."""
    path = tmp_path / "shifted-by"

    def by(seconds):
        path.with_suffix(".new").write_text(str(seconds))
        path.with_suffix(".new").replace(path)

    by(0)
    folder = ROOT / "tests" / "support" / "shifted_clock"
    by.environ = {"PYTHONPATH": f"{folder}:{ROOT}", "SHIFTED_BY": str(path)}
    return by


def passes(count):
    """Wait until a scheduler has run so many more times, and noted when by a right clock."""
    for _ in range(count):
        before = last_pass()
        wait_until(lambda before=before: last_pass() > before)
        assert abs(last_pass() - clock.now()) < HOUR


def last_pass():
    return CarrierState.get_by_id("simulator").last_pass_at


def kept():
    return {str(m.to): m.status for m in Message.select()}


@on_postgres
@pytest.mark.parametrize("hours", [16, -16])
def test_a_scheduler_whose_clock_is_wrong_gives_and_changes_nothing(
    schedule, shift, hours, clock_of_postgres, known_problems
):
    now = clock.now()
    store(now)
    store(now, to=NEIGHBOUR, status=Status.SCHEDULED, send_at=now + 10 * HOUR)
    store(now, to=LONDON, expires_at=now + HOUR, status=Status.SCHEDULED, send_at=now - HOUR)
    before = [*Message.select().order_by(Message.id).dicts()]
    shift(hours * 3600)
    scheduler = schedule("--every", "1", CARRIER_URL="simulator:", **shift.environ)
    wait_until(lambda: CarrierState.select().exists() and WrongClock.select().exists())
    passes(2)
    assert [*Message.select().order_by(Message.id).dicts()] == before
    direction = "ahead of" if hours > 0 else "behind"
    words = f"16 h {direction} the database's"
    problem = f"the clock of the scheduler on {HOST} is {words}, so it sends nothing"
    assert problem in known_problems(clock.now())
    assert not [each for each in known_problems(clock.now()) if "no scheduler" in each]
    line = f"the clock of this machine is {words}: nothing is sent until they agree"
    assert scheduler.output.count(line) == 1
    shift(0)
    wait_until(lambda: kept()[NEW_YORK] == Status.SENT and kept()[LONDON] == Status.SENT)
    assert kept()[NEIGHBOUR] == Status.SCHEDULED
    assert problem not in known_problems(clock.now())
    assert "the clock of this machine agrees with the database's again" in scheduler.output
    assert scheduler.terminate() == 0


@on_postgres
def test_a_clock_that_is_set_while_a_scheduler_runs_is_noticed_at_once(
    schedule, shift, clock_of_postgres
):
    scheduler = schedule("--every", "1", CARRIER_URL="simulator:", **shift.environ)
    wait_until(CarrierState.select().exists)
    for hours in (2, -2, 2):
        shift(hours * 3600)
        wait_until(WrongClock.select().exists)
        message = store(clock.now(), send_at=clock.now() + HOUR, status=Status.SCHEDULED)
        passes(2)
        assert again(message).status == Status.SCHEDULED
        shift(0)
        wait_until(lambda: not WrongClock.select().exists())
    due = store(clock.now())
    wait_until(lambda: again(due).status == Status.SENT)
    assert scheduler.terminate() == 0


@on_postgres
def test_a_scheduler_ends_though_its_clock_is_wrong_and_a_carrier_hangs(
    schedule, shift, smsgate_server, monkeypatch, clock_of_postgres
):
    monkeypatch.setattr(smsgate_server, "take", lambda _: HANG)
    told = {"PUBLIC_URL": "https://texts.example.com", "SHUTDOWN_TIMEOUT": "1"}
    scheduler = schedule("--every", "1", CARRIER_URL=smsgate_server.url, **told, **shift.environ)
    wait_until(lambda: smsgate_server.connections)
    shift(3600)
    wait_until(WrongClock.select().exists)
    assert scheduler.terminate() == 0


@on_postgres
@pytest.mark.parametrize(("seconds", "is_wrong"), [(100, False), (-100, False), (140, True)])
def test_two_minutes_are_let_pass(schedule, shift, clock_of_postgres, seconds, is_wrong):
    message = store(clock.now() - HOUR, expires_at=clock.now() + DAY)
    shift(seconds)
    scheduler = schedule(CARRIER_URL="simulator:", **shift.environ)
    assert scheduler.wait() == int(is_wrong)
    assert again(message).status == (Status.QUEUED if is_wrong else Status.SENT)
    assert ("of this machine is 140 s ahead" in scheduler.output) == is_wrong


@on_postgres
def test_a_web_process_whose_clock_is_wrong_accepts_and_is_told(
    serve, shift, key, database_url, clock_of_postgres, known_problems
):
    shift(3 * 86_400)
    web = serve(database_url, workers=2, **ALWAYS, **shift.environ)
    wait_until(lambda: len(WrongClock.select()) == 2)
    status, _ = send(web, key, {"to": NEW_YORK, "message": "Hello"})
    assert status == 201
    words = f"the clock of the web on {HOST} is 3 days ahead of the database's"
    assert known_problems(clock.now()).count(words) == 1, "of two workers"
    assert "the clock of this machine is 3 days ahead of the database's" in web.output


def test_where_the_machine_has_the_database_only_its_own_clock_counts(schedule, shift):
    message = store(clock.now())
    shift(-100)
    assert schedule(CARRIER_URL="simulator:", **shift.environ).wait() == 0
    shift(3600)
    assert schedule(CARRIER_URL="simulator:", **shift.environ).wait() == 0
    assert again(message).status == Status.SENT
    assert not WrongClock.select().exists()


@on_both
def test_what_a_carriers_answers_say_of_the_clock_is_told_and_stops_nothing(
    schedule, shift, twilio, kind, known_problems
):
    late = "Thu, 01 Jan 2026 00:00:00 GMT"
    twilio.dated = late
    message = store(clock.now())
    assert schedule(CARRIER_URL=twilio.url, **shift.environ).wait() == 0
    assert again(message).status == Status.SENT
    (problem,) = [each for each in known_problems(clock.now()) if "clock" in each]
    assert problem.startswith(f"the clock of the scheduler on {HOST} is ")
    assert problem.endswith(" days ahead of twilio's")


def test_a_pass_without_a_database_says_only_that(schedule):
    scheduler = schedule(CARRIER_URL="simulator:", DATABASE_URL="postgresql://u@127.0.0.1:1/d")
    assert scheduler.wait() == 1
    (line,) = [line for line in scheduler.output.splitlines() if "ERROR" in line]
    assert "the scheduler cannot work: the database: " in line


# The comparison


@pytest.fixture
def theirs(monkeypatch, at):
    """Have the database's clock show an instant, and ours too: `theirs(now, ahead=5)`."""

    def show(instant, ahead=0):
        for dialect in (SqliteDialect, PostgresDialect):
            monkeypatch.setattr(dialect, "read_clock", lambda self: instant.timestamp())
        at(instant + timedelta(seconds=ahead))

    return show


@on_both
@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        *((120, None), (-120, None), (121, "121 s ahead of"), (-121, "121 s behind")),
        *((7200, "2 h ahead of"), (-86_400, "24 h behind"), (86_400_000, "1000 days ahead of")),
    ],
)
def test_a_clock_is_wrong_by_more_than_two_minutes(
    database_url, theirs, settings, problems, ahead, words
):
    theirs(TUESDAY_NOON, ahead)
    ClockWatch("web").compare()
    clock_words = f"the clock of the web on {HOST} is {words} the database's"
    assert problems(TUESDAY_NOON) == ([clock_words] if words else [])


@on_both
def test_what_a_process_said_is_over_once_two_comparisons_are_missed(theirs, problems):
    theirs(TUESDAY_NOON, 3600)
    ClockWatch("scheduler", sends=True).compare()
    for seconds, lasts in ((0, True), (125, True), (149, True), (181, False)):
        now = TUESDAY_NOON + timedelta(seconds=seconds)
        theirs(now)
        assert any("clock" in each for each in problems(now)) == lasts


@on_both
def test_a_clock_that_is_right_again_is_told_no_more(theirs, problems):
    watch, other = ClockWatch("web"), ClockWatch("scheduler", sends=True)
    theirs(TUESDAY_NOON, -3600)
    for each in (watch, other):
        each.compare()
    assert len(problems(TUESDAY_NOON)) == 2
    theirs(TUESDAY_NOON)
    watch.compare()
    (left,) = problems(TUESDAY_NOON)
    assert left.startswith(f"the clock of the scheduler on {HOST} is 60 min behind")


def test_a_slow_answer_of_the_database_makes_no_clock_wrong(database_url, monkeypatch):
    monkeypatch.setattr(clocks.time, "monotonic", iter((0, 900)).__next__)
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now)
    theirs = now.timestamp() + 450
    monkeypatch.setattr(SqliteDialect, "read_clock", lambda self: theirs)
    assert clocks.against_database().ahead == 0


def test_the_web_tells_of_the_kind_and_the_desks_people_of_whose(app, theirs, settings):
    theirs(TUESDAY_NOON, 3600)
    ClockWatch("scheduler", sends=True).compare()
    client = app.test_client()
    assert client.get("/healthz").json["problems"] == ["clock"]
    assert client.get("/healthz?strict").status_code == 503


def test_health_is_judged_by_the_databases_clock(app, theirs, settings, carrier):
    """So a wrong clock is one problem, and not several more that are none."""
    theirs(TUESDAY_NOON)
    Scheduler(settings, carrier).run_pass()
    store(TUESDAY_NOON, status=Status.SCHEDULED, send_at=TUESDAY_NOON + HOUR)
    theirs(TUESDAY_NOON, 16 * 3600)
    told = app.test_client().get("/healthz").json
    assert told["problems"] == []
    assert (told["oldest_due_seconds"], told["last_pass_seconds"]) == (0, 0)


@on_both
def test_people_are_notified_when_it_begins_and_when_it_is_over(theirs, settings):
    watch = ClockWatch("scheduler", sends=True)
    for ahead, begins in (
        (-7200, "the clock of the"),
        (-7200, None),
        (0, "over: the clock of the"),
    ):
        theirs(TUESDAY_NOON, ahead)
        watch.compare()
        told = [*notices.pending(settings, clocks.now())]
        assert [each.title for each in told] == (
            [f"{begins} scheduler on {HOST} is wrong"] if begins else []
        )
        if ahead and told:
            assert "is 2 h behind the database's, so it sends nothing." in told[0].text
            assert re.search("Noticed at 2026-03-03T(16:59:59|17:00:00)", told[0].text)


@on_both
@pytest.mark.parametrize("is_same", [True, False])
def test_a_pause_by_a_wrong_clock_ends_once_a_right_one_looks(theirs, settings, carrier, is_same):
    """The carrier asked for half a minute, while the clock was set sixteen hours ahead."""
    theirs(TUESDAY_NOON)
    store(TUESDAY_NOON)

    def answer():
        theirs(TUESDAY_NOON, 16 * 3600)
        return SLOWLY

    carrier.answer = answer
    wrong = Scheduler(settings, carrier)
    wrong.run_pass()
    theirs(TUESDAY_NOON + MINUTE, 16 * 3600)
    wrong.run_pass()
    assert len(carrier.texts) == 1
    carrier.answer = None
    right = wrong if is_same else Scheduler(settings, carrier)
    for minutes in (2, 3, 4):
        theirs(TUESDAY_NOON + minutes * MINUTE)
        right.run_pass()
    assert len(carrier.texts) == 2


@on_both
def test_a_scheduler_that_begins_with_a_wrong_clock_sends_once_it_is_right(
    theirs, settings, carrier, monkeypatch
):
    """At once, between two rounds of chores: nothing is prepared or dated back before."""
    monkeypatch.setattr(clocks, "COMPARE_EVERY", 0)
    theirs(TUESDAY_NOON, 16 * 3600)
    store(TUESDAY_NOON)
    scheduler = Scheduler(settings, carrier)
    scheduler.round()
    assert carrier.texts == []
    theirs(TUESDAY_NOON)
    scheduler.round()
    wait_until(lambda: len(carrier.texts) == 1)  # a thread gives it
    assert CarrierState.get_by_id("fake").last_pass_at == TUESDAY_NOON


@pytest.mark.slow
@on_both
def test_a_clock_that_is_set_at_any_moment_of_a_pass_sends_nothing_at_night(
    theirs, settings, carrier, monkeypatch, without_waiting
):
    """It is 8 PM in New York, and our clock is set to 9 AM at each statement of a pass."""
    evening, faulty, moment = TUESDAY_NOON + 8 * HOUR, FaultyDatabase(monkeypatch), 0
    while faulty.statements >= moment:
        moment += 1
        theirs(evening)
        store(evening, expires_at=evening + 3 * DAY)

        def set_clock(number, moment=moment):
            if number == moment:
                theirs(evening, (-11 if moment % 2 else 13) * 3600)

        faulty.statements, faulty.fails = 0, set_clock
        Scheduler(settings, carrier).run_pass()
        faulty.fails = lambda number: False
        assert carrier.texts == [], f"set at statement {moment}"
        Message.delete().execute()
    assert moment > 20


@on_both
def test_what_a_wrong_clock_dated_is_dated_back_once_it_is_right(theirs, settings, carrier):
    """A START that comes then is no older than a STOP that came meanwhile."""
    theirs(TUESDAY_NOON, 16 * 3600)
    scheduler = Scheduler(settings, carrier)
    scheduler.run_pass()
    assert LastReply.note(NEW_YORK, None, clock.now())
    theirs(TUESDAY_NOON + MINUTE)
    scheduler.run_pass()
    theirs(TUESDAY_NOON + HOUR)
    assert LastReply.note(NEW_YORK, clock.now(), clock.now())


# Dates of carriers


@pytest.mark.parametrize(
    "date",
    [
        *("", "yesterday", "Thu, 99 Jan 2026 00:00:00 GMT", "Thu, 01 Jan 99999999 00:00:00 GMT"),
        *("0", "-1", "Thu, 01 Jan 2026 99:00:00 GMT", "Thu, 01 Jan 2026 00:00:00 +9999"),
        "x" * 10_000,
    ],
)
def test_a_date_that_is_none_says_nothing(settings, twilio, date, caplog):
    assert told_by(settings, twilio, date) == []
    assert caplog.records == []


def told_by(settings, twilio, date):
    """Check a carrier whose answer has this date; return whose clocks are told."""
    twilio.dated = date
    scheduler = of(settings, twilio)
    scheduler.senders[0].carrier.check()
    scheduler.clocks.compare()
    return [each.against for each in WrongClock.told()]


def of(settings, server, options=""):
    changed = settings._replace(carrier_url=f"{server.url}{options}")
    return Scheduler(changed, *configs.connect_all(changed.carrier_configs, 1, 5))


@pytest.mark.parametrize(
    ("ahead", "is_told"),
    [(-110 * SECOND, False), (110 * SECOND, False), (3 * MINUTE, True), (-3 * MINUTE, True)],
)
def test_a_carriers_date_is_told_where_it_is_two_minutes_off(settings, twilio, ahead, is_told):
    date = (clock.now() + ahead).strftime("%a, %d %b %Y %H:%M:%S GMT")
    assert told_by(settings, twilio, date) == ["twilio"] * is_told


def test_a_carriers_date_is_over_when_an_answer_has_the_right_one(settings, twilio):
    scheduler = of(settings, twilio)
    carrier = scheduler.senders[0].carrier
    for ahead in (DAY, -DAY, 0 * DAY):
        twilio.dated = (clock.now() + ahead).strftime("%a, %d %b %Y %H:%M:%S GMT")
        carrier.check()
        scheduler.clocks.compare()
        assert [each.against for each in WrongClock.told()] == ["twilio"] * bool(ahead)
        assert not scheduler.clocks.is_wrong


def test_a_date_from_before_our_clock_was_set_counts_no_more(settings, twilio, monkeypatch):
    scheduler = of(settings, twilio)
    twilio.dated = (clock.now() + DAY).strftime("%a, %d %b %Y %H:%M:%S GMT")
    scheduler.senders[0].carrier.check()
    real = clock.now
    monkeypatch.setattr(clock, "now", lambda: real() + DAY)
    scheduler.clocks.compare()
    assert not WrongClock.select().exists()


@pytest.mark.parametrize("name", ["twilio", "other"])
def test_what_a_pass_said_is_over_once_the_machines_clock_agrees(settings, twilio, name):
    """With that same carrier's; another may be right."""
    for ahead, options in ((HOUR, f"#name={name}"), (0 * HOUR, "")):
        twilio.dated = (clock.now() - ahead).strftime("%a, %d %b %Y %H:%M:%S GMT")
        scheduler = of(settings, twilio, options)
        scheduler.senders[0].carrier.check()
        scheduler.clocks.compare()
    assert [each.against for each in WrongClock.told()] == ["other"] * (name == "other")
