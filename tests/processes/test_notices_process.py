"""Notices of real schedulers."""

import contextlib
import time
from datetime import timedelta

import psutil
import pytest

from carrier_servers import HANG, Answer
from database import clock
from databases import on_sqlite
from models import Status
from monitoring import dead_scheduler
from running import wait_until
from sending.carrier_state import CarrierState
from stored_messages import again, create, key_named, store


def awaiting():
    now = clock.now()
    key = key_named("app").id
    create("Hello", key=key, status=Status.QUEUED, send_at=now, manual_mode=True)


@pytest.mark.slow
def test_several_schedulers_tell_each_thing_once(schedule, people):
    awaiting()
    running = [schedule("--every", "2", NOTIFY_URL=people.url) for _ in range(2)]
    wait_until(lambda: people.told)
    time.sleep(7)  # each has looked
    for each in running:
        each.popen.terminate()
    assert [each.wait() for each in running] == [0, 0]
    assert len(people.told) == 1
    assert people.told[0].startswith("1 text waits for approval, from app (1). ")


def test_single_passes_tell_within_the_pass_and_do_not_repeat_it(schedule, people):
    awaiting()
    for _ in range(2):
        one = schedule(NOTIFY_URL=people.url, CARRIER_URL="simulator:")
        assert one.wait() == 0, one.output
        assert one.output.startswith("0 promoted")
        assert one.output.count("\n") == 1
    assert len(people.told) == 1


def test_an_address_that_hangs_holds_up_no_text(schedule, people):
    awaiting()
    people.answer = HANG
    scheduler = schedule("--every", "0.2", NOTIFY_URL=people.url, CARRIER_URL="simulator:")
    wait_until(lambda: people.told)
    message = store(now=clock.now())
    wait_until(lambda: again(message).status == Status.SENT, seconds=3)
    scheduler.popen.terminate()
    assert scheduler.wait() == 0


def test_an_address_that_fails_is_logged_without_its_url(schedule, people):
    awaiting()
    people.answer = Answer(500)
    one = schedule(NOTIFY_URL=people.url)
    assert one.wait() == 0
    assert "address 1 of NOTIFY_URL (json://) did not take a notice" in one.output
    assert "s3cret" not in one.output


@on_sqlite
def test_a_bad_address_stops_the_scheduler_in_one_line_without_it(schedule):
    one = schedule(NOTIFY_URL="json://x nosuch://s3cret@host")
    assert one.wait() == 1
    assert one.output == "NOTIFY_URL: Apprise takes no address like number 2\n"


def looking(web):
    """The processes by which a web's workers tell what no scheduler does."""
    found = []
    for process in psutil.Process(web.popen.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended
            if process.cmdline()[-2:] == ["notify", "look"]:
                found.append(process.pid)
    return found


@pytest.mark.slow
def test_the_web_tells_once_that_no_scheduler_makes_a_pass(serve, schedule, people, database_url):
    """Of four workers, as if on two machines, one starts one process: Apprise takes much memory."""
    CarrierState.passed(clock.now() - timedelta(hours=1), {"": []})
    web, other = (serve(database_url, NOTIFY_URL=people.url) for _ in range(2))
    began = set()

    def has_told():
        began.update(looking(web) + looking(other))
        return people.told

    wait_until(has_told)
    end = time.monotonic() + dead_scheduler.LOOK_EVERY + 3  # each worker has looked again
    wait_until(lambda: has_told() and time.monotonic() > end)
    assert len(began) == 1
    (told,) = people.told
    assert told.startswith("The service has a problem: no scheduler makes a pass: the last one")
    schedule("--every", "0.2", NOTIFY_URL=people.url)
    wait_until(lambda: len(people.told) == 2)
    assert people.told[1] == "The service is well again."
    assert [web.terminate(), other.terminate()] == [0, 0]
    assert "Traceback" not in web.output
    assert " ERROR " not in web.output
