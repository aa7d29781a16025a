"""The web answered at PUBLIC_URL and does not any more: told by the scheduler, as a problem."""

import json

import pytest

from carrier_servers import HANG_UP, Answer, CarrierServer, playing
from databases import on_both
from running import wait_until
from samples import HOUR, MINUTE, SECOND, TUESDAY_NOON
from texting.monitoring import dead_web, notices
from texting.monitoring.dead_web import PublicAddress
from texting.sending.carrier_state import CarrierState

HEALTHY = Answer(200, json.dumps({"status": "ok", "version": "1"}).encode())
SILENCES = {
    "another service": Answer(200, b"{}"),
    "a gateway's page": Answer(502, b"<html>"),
    "no database": Answer(503, b'{"error": true}'),
    "no answer": HANG_UP,
}
TITLE = "PUBLIC_URL does not answer"


class Web(CarrierServer):
    """A web that answers with its health."""

    def told(self, request):
        return HEALTHY


@pytest.fixture
def web():
    yield from playing(Web)


@pytest.fixture
def public(settings, web, people):
    """The settings of a scheduler that asks this web and tells people."""
    return settings._replace(public_url=f"http://{web.address}", notify_url=people.url)


@pytest.fixture
def ask(public, at):
    """Ask as a single pass does, at an instant; return the titles that people are to be told."""

    def ask(now, settings=public):
        at(now)
        CarrierState.record_pass(now, {"fake": []})
        dead_web.look(settings)
        return [each.title for each in notices.pending(settings, now)]

    return ask


@on_both
@pytest.mark.parametrize("silence", SILENCES.values(), ids=SILENCES)
def test_a_web_that_answered_and_does_not_any_more_is_told_and_that_it_is_back(
    ask, web, public, problems, silence
):
    assert ask(TUESDAY_NOON) == []
    web.answer = silence
    assert ask(TUESDAY_NOON + 2 * MINUTE) == [TITLE]
    told = "PUBLIC_URL has not answered since 2026-03-03T17:00:00.000Z"
    assert problems(TUESDAY_NOON + 3 * MINUTE, public) == [told]
    assert ask(TUESDAY_NOON + 4 * MINUTE) == []
    web.answer = None
    assert ask(TUESDAY_NOON + 5 * MINUTE) == [f"over: {TITLE}"]
    assert {request.path for request in web.asked} == {"/healthz"}


def test_one_that_has_never_answered_from_here_is_not_told(ask, web):
    web.answer = SILENCES["no answer"]
    assert ask(TUESDAY_NOON) == ask(TUESDAY_NOON + HOUR) == []
    web.answer = None
    assert ask(TUESDAY_NOON + 2 * HOUR) == []


def test_one_that_answered_another_scheduler_within_the_last_minute_is_there(ask, web):
    ask(TUESDAY_NOON)
    web.answer = SILENCES["no answer"]
    assert ask(TUESDAY_NOON + MINUTE) == []
    assert ask(TUESDAY_NOON + MINUTE + 15 * SECOND) == [TITLE]


def test_another_address_begins_anew(ask, web, public):
    ask(TUESDAY_NOON)
    web.answer = SILENCES["no answer"]
    moved = public._replace(public_url=f"{public.public_url}/new")
    assert ask(TUESDAY_NOON + HOUR, moved) == []


def test_nobody_is_asked_without_somebody_to_tell(ask, web, public):
    ask(TUESDAY_NOON, public._replace(notify_url=None))
    assert web.asked == []


def test_without_a_scheduler_nobody_knows_and_the_problem_stays_as_it_was(ask, web, public, at):
    ask(TUESDAY_NOON)
    web.answer = SILENCES["no answer"]
    assert ask(TUESDAY_NOON + 2 * MINUTE) == [TITLE]
    (told,) = notices.pending(public, TUESDAY_NOON + HOUR)
    assert told.title == "no scheduler is running"


def test_a_web_that_restarts_is_asked_again_before_it_counts_as_dead(web, public, monkeypatch):
    waited = []

    def restart(seconds):
        waited.append(seconds)
        if len(waited) == 2:
            web.answer = None
        if len(waited) > 2:
            raise SystemExit

    monkeypatch.setattr(dead_web.time, "sleep", restart)
    PublicAddress.record_answer(public.public_url, TUESDAY_NOON)
    web.answer = SILENCES["no answer"]
    with pytest.raises(SystemExit):
        dead_web.ask_again(public.public_url)
    assert waited == [15, 15, 60]
    assert PublicAddress.silent(public.public_url) is None


@pytest.mark.parametrize("words", [[], ["--every", "5"]])
def test_a_scheduler_asks(schedule, web, people, words):
    scheduler = schedule(
        *words, PUBLIC_URL=f"http://{web.address}", NOTIFY_URL=people.url, CARRIER_URL="simulator:"
    )
    wait_until(lambda: PublicAddress.select().exists())
    assert (scheduler.terminate() if words else scheduler.wait()) == 0
    assert len(web.asked) == 1
