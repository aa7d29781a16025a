"""python scheduler.py as real processes: many at once, killed, told to stop, without a database."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta

import psycopg
import pytest

import database
from access.do_not_call import DoNotCall
from carrier_servers import HANG, HANG_UP, Answer, TwilioServer, refusal
from database import clock
from databases import on_sqlite
from models import Message, Status
from running import ALWAYS, ROOT, free_port, wait_until
from samples import NEW_YORK
from scheduler import read_options
from sending.carrier_state import CarrierState
from sending.heartbeats import WATCHED
from settings import VERSION
from stored_messages import again, statuses, store, store_many

NOTHING = "0 promoted, 0 sent, 0 retrying, 0 failed, 0 blocked, 0 expired, 0 rescheduled, "
SECRETS = (TwilioServer.sid, "a token", "a%20token", "s3cret", "1212555", "attack", "tms_")


def counted(name, output):
    """How many of something a scheduler's lines of counts tell of together."""
    return sum(map(int, re.findall(rf"(\d+) {name}", output)))


def assert_tells_no_secret(output):
    assert not [secret for secret in SECRETS if secret in output], output


# Many at once


def test_four_schedulers_at_once_deliver_each_of_200_texts_once(schedule, twilio):
    twilio.delay = 0.05
    schedulers = [schedule("--every", "0.1", CARRIER_URL=twilio.url) for _ in range(4)]
    wait_until(lambda: all(NOTHING in s.output for s in schedulers))
    numbers = store_many(200)
    wait_until(lambda: statuses() == {Status.SENT: 200})
    assert [s.terminate() for s in schedulers] == [0, 0, 0, 0]
    assert sorted(twilio.numbers) == numbers
    assert all(counted("sent", s.output) for s in schedulers), "some had nothing to do"
    assert all(message.carrier_reference for message in Message.select())


def test_a_sender_that_is_only_slow_is_never_taken_over(schedule, twilio):
    """Its sends last longer than CLAIM_TIMEOUT, beside a scheduler that looks for the dead."""
    twilio.wait()
    numbers = store_many(8)
    slow = schedule(CARRIER_URL=twilio.url, CLAIM_TIMEOUT="4")
    wait_until(lambda: len(twilio.texts) == 8)
    watched = clock.now() + timedelta(seconds=4 + WATCHED)
    other = schedule("--every", "0.1", CARRIER_URL=twilio.url, CLAIM_TIMEOUT="4")
    wait_until(lambda: NOTHING in other.output)
    wait_until(lambda: clock.now() > watched)
    twilio.go_on.set()
    assert slow.wait() == 0
    assert statuses() == {Status.SENT: 8}
    assert sorted(twilio.numbers) == numbers
    assert not counted("taken over", other.output)


def test_what_a_killed_scheduler_held_is_sent_by_later_passes(schedule, twilio):
    """At most what was under way is sent twice, and nothing is lost."""
    twilio.delay = 0.3
    numbers = store_many(50)
    killed = schedule(CARRIER_URL=twilio.url)
    wait_until(lambda: len(twilio.texts) >= 20)
    killed.kill()
    twilio.delay = 0
    schedule("--every", "0.1", CARRIER_URL=twilio.url, CLAIM_TIMEOUT="2")
    wait_until(lambda: statuses() == {Status.SENT: 50})
    assert sorted(set(twilio.numbers)) == numbers
    twice = [n for n, times in Counter(twilio.numbers).items() if times > 1]
    assert len(twice) <= 8
    assert len(twilio.numbers) <= 58


# What it prints


def test_cron_gets_no_mail_while_nothing_is_wrong_and_one_where_something_is(schedule):
    (crontab,) = re.findall(r"```crontab\n(.*?)```", (ROOT / "docs/deploying.md").read_text(), re.S)
    options = crontab.partition("scheduler.py")[2].split()
    environ = {"CARRIER_URL": "simulator:"}
    process = schedule(*options, **environ)
    assert (process.wait(), process.output) == (0, "")
    store_many(3)
    process = schedule(*options, **environ)
    assert (process.wait(), process.output) == (0, "")
    assert statuses() == {Status.SENT: 3}
    process = schedule(*options, DATABASE_URL="sqlite:////nowhere/messages.db")
    assert process.wait() == 1
    assert "ERROR scheduler - the pass failed: the database: unable to open" in process.output


def test_a_pass_prints_its_counts_and_more_where_asked(schedule):
    process = schedule()
    assert process.wait() == 0
    assert process.output.startswith(NOTHING)
    store_many(1)
    process = schedule("--verbose", CARRIER_URL="simulator:", LOG_LEVEL="ERROR")
    assert process.wait() == 0
    assert re.search(r"INFO scheduler - message \S+ sent\n", process.output)
    assert re.match(
        rf"\S+ INFO scheduler - Text Message Sending Service {VERSION}\n", process.output
    )
    assert "INFO scheduler - texts go to simulator" in process.output
    process = schedule("--quiet", "--verbose")
    assert process.wait() == 2
    assert "not allowed with" in process.output


# Told to stop


@on_sqlite
@pytest.mark.parametrize(
    ("words", "name"), [(["--every=0.1"], "SIGTERM"), (["--every=0.1"], "SIGINT"), ([], "SIGTERM")]
)
def test_a_signal_lets_sends_end_and_none_begin(schedule, twilio, words, name):
    twilio.wait()
    store_many(20)
    scheduler = schedule(*words, CARRIER_URL=twilio.url, SEND_CONCURRENCY="4")
    wait_until(lambda: len(twilio.texts) == 4)
    for _ in range(2):  # impatience changes nothing
        scheduler.popen.send_signal(signal.Signals[name])
        time.sleep(0.2)
    assert scheduler.popen.poll() is None
    twilio.go_on.set()
    assert scheduler.wait() == 0
    assert len(twilio.texts) == 4
    assert statuses() == {Status.SENT: 4, Status.QUEUED: 16}
    assert "Traceback" not in scheduler.output


STOPPED = "the scheduler was stopped before the carrier answered"


@pytest.mark.timed
@pytest.mark.parametrize("words", [["--every=0.1"], []])
def test_a_scheduler_that_is_stopped_leaves_what_the_carrier_does_not_answer_in_doubt(
    schedule, twilio, words
):
    """The carrier that can be asked is asked next: the text is not sent again."""
    twilio.wait()
    message = store()
    scheduler = schedule(*words, CARRIER_URL=twilio.url, SHUTDOWN_TIMEOUT="2", RETRY_DELAY="1")
    wait_until(lambda: twilio.texts)
    began = time.monotonic()
    for _ in range(2):  # impatience gives it no more time, and no less
        scheduler.popen.terminate()
        time.sleep(0.5)
    assert scheduler.wait(10) == 0
    assert 2 <= time.monotonic() - began < 5
    assert "Traceback" not in scheduler.output
    stopped = again(message)
    assert (stopped.status, stopped.in_doubt, stopped.attempts) == (Status.SCHEDULED, 1, 1)
    assert stopped.last_error == STOPPED
    assert CarrierState.get().trouble is None, "the carrier is not to blame"
    twilio.go_on.set()
    schedule("--every", "0.1", CARRIER_URL=twilio.url)
    wait_until(lambda: again(message).status == Status.SENT)
    assert len(twilio.texts) == 1


@on_sqlite
def test_a_carrier_that_cannot_be_asked_gets_a_text_again_once_after_a_stop(
    schedule, webhook_server
):
    webhook_server.answer = HANG
    message = store()
    environ = {"CARRIER_URL": webhook_server.url, "SHUTDOWN_TIMEOUT": "1", "RETRY_DELAY": "1"}
    for _ in range(2):
        count = len(webhook_server.requests)
        scheduler = schedule("--every", "0.1", **environ)
        wait_until(lambda count=count: len(webhook_server.requests) > count)
        assert scheduler.terminate(10) == 0
    failed = again(message)
    assert (failed.status, failed.in_doubt) == (Status.FAILED, 2)
    assert failed.last_error == f"{STOPPED}; the carrier may have taken it"
    assert len(webhook_server.requests) == 2


@on_sqlite
def test_a_stopped_scheduler_does_not_wait_until_the_carrier_says_whether_it_serves(
    schedule, twilio
):
    message, an_hour_ago = store(), clock.now() - timedelta(hours=1)
    CarrierState.prepare("twilio")
    CarrierState.begin_pause("twilio", an_hour_ago, trouble="down", is_down=True)
    twilio.wait()
    scheduler = schedule("--every", "0.1", CARRIER_URL=twilio.url, SHUTDOWN_TIMEOUT="1")
    wait_until(lambda: twilio.asked)
    assert scheduler.terminate(10) == 0
    assert again(message).status == Status.QUEUED
    assert not twilio.texts


@on_sqlite
def test_an_idle_scheduler_stops_at_once(schedule):
    scheduler = schedule("--every", "3600")
    wait_until(lambda: NOTHING in scheduler.output)
    assert scheduler.terminate() == 0


@on_sqlite
@pytest.mark.parametrize("console", [False, True])
def test_counts_that_nobody_can_read_stop_nothing(database_url, twilio, tmp_path, console):
    url = "console:" if console else twilio.url
    with open("/dev/full", "w") as full, open(tmp_path / "log", "w+") as log:
        environ = os.environ | {"DATABASE_URL": database_url, "CARRIER_URL": url} | ALWAYS
        words = [sys.executable, ROOT / "scheduler.py", "--every", "0.1"]
        scheduler = subprocess.Popen(words, env=environ, cwd=tmp_path, stdout=full, stderr=log)
        try:
            wait_until(lambda: "cannot be printed" in (tmp_path / "log").read_text())
            message = store()
            if console:
                wait_until(lambda: again(message).last_error)
                assert again(message).status == Status.SCHEDULED, "nobody could read it"
            else:
                wait_until(lambda: twilio.texts)
        finally:
            scheduler.terminate()
        assert scheduler.wait(30) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("seconds", ["0", "soon", "86401"])
def test_every_takes_seconds(seconds, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["scheduler.py", f"--every={seconds}"])
    with pytest.raises(SystemExit, match="2"):
        read_options()
    assert "--every" in capsys.readouterr().err.splitlines()[-1]


# The database


@on_sqlite
def test_one_pass_says_what_it_did_in_one_line(schedule, twilio):
    store()
    store(to="+12125550188", status=Status.SCHEDULED, check_dnc=True)
    DoNotCall.add(["+12125550188"], clock.now(), "operator")
    scheduler = schedule(CARRIER_URL=twilio.url, LOG_LEVEL="WARNING")
    assert scheduler.wait() == 0
    assert scheduler.output == (
        "0 promoted, 1 sent, 0 retrying, 0 failed, 1 blocked, 0 expired, 0 rescheduled, "
        "0 taken over, 0 waiting for approval, 0 waiting for a carrier\n"
    )


def unusable_databases(tmp_path):
    yield "no server", f"postgresql://someone:s3cret@127.0.0.1:{free_port()}/messages"
    yield "no host", "postgresql://someone:s3cret@no-such-host.invalid/messages"
    yield "no tables", f"sqlite:///{tmp_path}/empty.db"


def test_a_pass_without_a_database_ends_with_status_1_and_one_clear_line(start, tmp_path):
    started = {
        why: start("scheduler.py", DATABASE_URL=url) for why, url in unusable_databases(tmp_path)
    }
    for why, scheduler in started.items():
        assert scheduler.wait() == 1, why
        (line,) = scheduler.output.splitlines()
        assert "the pass failed: the database: " in line
        assert "s3cret" not in line


def test_a_pass_waits_for_another_process_that_writes_to_sqlite(start, tmp_path):
    url = f"sqlite:///{tmp_path}/messages.db"
    database.connect(url)
    database.upgrade()
    database.disconnect()
    writer = sqlite3.connect(tmp_path / "messages.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    scheduler = start("scheduler.py", DATABASE_URL=url)
    time.sleep(3)
    assert scheduler.popen.poll() is None
    writer.execute("ROLLBACK")
    writer.close()
    assert scheduler.wait() == 0


def test_every_goes_on_once_the_tables_are_there(start, empty_database_url, twilio):
    scheduler = start(
        "scheduler.py",
        *("--every", "0.1"),
        **ALWAYS | {"DATABASE_URL": empty_database_url, "CARRIER_URL": twilio.url},
    )
    wait_until(lambda: scheduler.output.count("the pass failed") > 2)
    database.connect(empty_database_url)
    database.upgrade()
    message = store()
    wait_until(lambda: again(message).status == Status.SENT)
    database.disconnect()
    assert scheduler.terminate() == 0


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.soak), "kill"])
def test_every_survives_a_postgres_that_goes_away_and_doubles_nothing(
    start, stoppable_postgres, twilio, how
):
    """It goes for longer than CLAIM_TIMEOUT; one scheduler has texts under way, another nothing."""
    url = stoppable_postgres.url
    database.connect(url)
    database.upgrade()
    twilio.wait()
    environ = ALWAYS | {"DATABASE_URL": url, "CARRIER_URL": twilio.url, "CLAIM_TIMEOUT": "2"}
    numbers = store_many(5, send_date=clock.now())
    busy = start("scheduler.py", "--every", "0.1", **environ)
    wait_until(lambda: len(twilio.texts) == 5)
    idle = start("scheduler.py", "--every", "0.1", **environ)
    wait_until(lambda: NOTHING in idle.output)
    database.disconnect()
    getattr(stoppable_postgres, how)()
    twilio.go_on.set()
    time.sleep(3)
    stoppable_postgres.start()
    wait_until(lambda: statuses() == {Status.SENT: 5})
    message = store(to="+12125559999")
    wait_until(lambda: again(message).status == Status.SENT)
    assert sorted(twilio.numbers) == [*numbers, "+12125559999"]
    with psycopg.connect(url) as connection:
        query = "SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        connected = connection.execute(query).fetchone()[0]
    assert connected <= 2 * 4 + 2  # four a process, as docs/deploying.md says; this test twice
    database.disconnect()
    assert [s.terminate() for s in (busy, idle)] == [0, 0]


# The carrier


@on_sqlite
def test_without_a_carrier_it_says_how_many_wait(schedule):
    for status in (Status.QUEUED, Status.SCHEDULED):
        store(status=status)
    scheduler = schedule()
    assert scheduler.wait() == 0
    assert scheduler.output.endswith("0 waiting for approval, 2 waiting for a carrier\n")
    assert statuses() == {Status.QUEUED: 2}


IMPATIENT = """
import sys, carriers
carriers.CONNECT_TIMEOUT = 0.5
import scheduler
sys.exit(scheduler.main())
"""


@pytest.fixture
def one_pass(start, database_url):
    """Run a pass that gives carriers half a second; its output, where it ends well."""

    def run(carrier_url, **environ):
        environ = {"DATABASE_URL": database_url, "CARRIER_URL": carrier_url} | environ
        environ = {"CARRIER_TIMEOUT": "1"} | environ
        scheduler = start("python", "-c", IMPATIENT, **ALWAYS | environ)
        assert scheduler.wait() == 0, scheduler.output
        assert "Traceback" not in scheduler.output
        return scheduler.output

    return run


GARBAGE = Answer(200, b"\xff\xfe{]<html>" * 100)
TWILIO_SAYS = {
    "yes": (None, Status.SENT),
    "201 and garbage": (Answer(201, b"\0\xff{"), Status.SENT),
    "201 and an unstorable SID": (Answer(201, {"sid": "SM\0\ud800"}), Status.SENT),
    "garbage": (GARBAGE, Status.SCHEDULED),
    "the number is not valid": (refusal(21211), Status.FAILED),
    "400 without a code": (Answer(400, {"message": "+12125550123"}), Status.SCHEDULED),
    "opted out": (refusal(21610), Status.FAILED),
    "too fast": (refusal(20429, 429, {"Retry-After": "90"}), Status.QUEUED),
    "500": (Answer(500, b"oops"), Status.SCHEDULED),
    "hangs": (HANG, Status.SCHEDULED),
    "hangs up": (HANG_UP, Status.SCHEDULED),
}
WEBHOOK_SAYS = {
    "yes": (None, Status.SENT),
    "garbage": (GARBAGE, Status.SENT),  # that anything came is all a webhook says
    "400": (Answer(400), Status.FAILED),
    "429": (Answer(429, b"", {"Retry-After": "90"}), Status.QUEUED),
    "500": (Answer(500, b"oops"), Status.SCHEDULED),
    "hangs": (HANG, Status.SCHEDULED),
    "hangs up": (HANG_UP, Status.SCHEDULED),
}


@pytest.mark.parametrize("name", ["twilio_server", "webhook_server"])
def test_every_answer_of_a_carrier_moves_the_message_as_documented_and_leaves_no_secret_in_the_log(
    one_pass, request, name
):
    server = request.getfixturevalue(name)
    says = TWILIO_SAYS if name == "twilio_server" else WEBHOOK_SAYS
    stored = {}
    for n, (kind, (answer, _)) in enumerate(says.items()):
        number = f"+1212555{n:04}"
        stored[kind] = store(to=number, message="attack at dawn", check_dnc=True)
        if answer:
            server.answers[number] = answer
    output = one_pass(server.url, LOG_LEVEL="DEBUG", SEND_CONCURRENCY=str(len(says)))
    assert {kind: again(m).status for kind, m in stored.items()} == {
        kind: status for kind, (_, status) in says.items()
    }
    for kind, message in stored.items():
        too_fast = kind in ("too fast", "429")
        assert (f"message {message.id} " in output) != too_fast, kind
        assert again(message).attempts == (not too_fast), kind
        assert bool(again(message).last_error) == (says[kind][1] != Status.SENT), kind
        assert_tells_no_secret(str(again(message).last_error))
    assert_tells_no_secret(output)
    if name == "twilio_server":
        assert [row.number for row in DoNotCall.select()] == [stored["opted out"].to]
    pause = (CarrierState.latest().retry_at - clock.now()).total_seconds()
    assert 60 < pause <= 90


@pytest.mark.parametrize("name", ["twilio", "webhook"])
def test_a_carrier_that_is_down_is_tried_again_later(one_pass, name):
    numbers = store_many(10, message="attack at dawn")
    address = f"127.0.0.1:{free_port()}"
    url = {
        "twilio": f"twilio://AC1:s3cret@+15005550006?base_url=http://{address}",
        "webhook": f"json://user:s3cret@{address}/?:to={{to}}",
    }[name]
    output = one_pass(url, LOG_LEVEL="DEBUG")
    assert_tells_no_secret(output)
    assert f"carrier {url.partition(':')[0]} is down" in output
    under_way = statuses()[Status.SCHEDULED]
    assert under_way <= 8
    assert statuses() == {Status.SCHEDULED: under_way, Status.QUEUED: len(numbers) - under_way}
    assert Message.select().where(Message.attempts == 1).count() == under_way


@on_sqlite
def test_a_slow_carrier_holds_up_a_pass_and_nothing_else(one_pass, twilio_server):
    twilio_server.delay = 0.3
    store_many(20)
    began = time.monotonic()
    assert "20 sent" in one_pass(twilio_server.url, SEND_CONCURRENCY="10")
    assert time.monotonic() - began > 0.6


@on_sqlite
def test_the_console_carrier_prints_the_text_and_the_log_does_not(schedule):
    store(message="attack\nat dawn")
    scheduler = schedule(CARRIER_URL="console:", LOG_LEVEL="DEBUG")
    assert scheduler.wait() == 0
    lines = [line for line in scheduler.output.splitlines() if "attack" in line or NEW_YORK in line]
    assert lines == [f"{NEW_YORK} 'attack\\nat dawn'"]


# What it is made of

FOOTPRINT = r"""
import json, pathlib, re, sys
sys.argv = ["scheduler.py"]
import scheduler
status = scheduler.main()
told = pathlib.Path("/proc/self/status").read_text()  # getrusage knows the parent's peak, too
peak = int(re.search(r"VmHWM:\s*(\d+)", told)[1]) // 1024
print(json.dumps({"status": status, "peak": peak, "modules": sorted(sys.modules)}))
"""


@on_sqlite
def test_the_scheduler_imports_no_web_and_no_names_of_places_and_stays_small(start, database_url):
    store()
    environ = ALWAYS | {"DATABASE_URL": database_url, "CARRIER_URL": "console:"}
    scheduler = start("python", "-c", FOOTPRINT, **environ)
    assert scheduler.wait() == 0, scheduler.output
    told = json.loads(scheduler.output.splitlines()[-1])
    assert told["status"] == 0
    unwanted = {"flask", "werkzeug", "marshmallow", "babel", "click", "gunicorn", "apprise"}
    unwanted |= {"phonenumbers.geocoder", "phonenumbers.geodata", "holidays"}
    unwanted |= {"app", "cli", "schemas"}
    loaded = {m for m in told["modules"] if m in unwanted or m.partition(".")[0] in unwanted}
    assert loaded == set()
    print(f"peak memory of a scheduler that sends: {told['peak']} MB")
    assert told["peak"] < 75
