"""Schedulers that die with a text: not the text's fault, up to a bound of its own."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from access.do_not_call import DoNotCall
from carriers import CarrierError
from fake_carrier import DyingPool
from models import Status
from samples import DAY, HOUR, MINUTE, NEW_YORK, TUESDAY_NOON
from sending.outcomes import MAY_HAVE_TAKEN_IT, MOST_DEATHS
from sending.runtime import Runtime
from stored_messages import again, held, store


@pytest.fixture
def deaths(run_pass):
    """Have schedulers die with a message until it has ended; return how many that were."""

    def count(message, carrier, since=TUESDAY_NOON, most=20):
        living, run_pass.runtime = run_pass.runtime, Runtime(make_pool=DyingPool)
        died = 0
        while again(message).finished_at is None and died < most:
            try:
                run_pass(since + died * 10 * MINUTE, carrier)
            except SystemExit:
                died += 1
        run_pass.runtime = living
        return died

    return count


def test_without_retries_the_death_of_a_scheduler_fails_no_text_that_the_carrier_has_not(
    run_pass, askable
):
    message = held(Status.SENDING, claimed_at=TUESDAY_NOON - HOUR, max_retries=0)
    assert +run_pass(TUESDAY_NOON, askable) == Counter({"taken over": 1, "sent": 1})
    assert (again(message).status, len(askable.texts)) == (Status.SENT, 1)


def test_without_retries_it_goes_once_more_to_a_carrier_that_cannot_be_asked(run_pass, carrier):
    message = held(Status.SENDING, claimed_at=TUESDAY_NOON - HOUR, max_retries=0)
    assert run_pass(TUESDAY_NOON)["sent"] == 1
    assert again(message).status == Status.SENT


@pytest.mark.parametrize("max_retries", [0, 1, 10])
def test_a_text_with_which_every_scheduler_dies_is_given_up_in_the_end(
    deaths, askable, max_retries
):
    message = store(max_retries=max_retries)
    assert deaths(message, askable) == MOST_DEATHS
    assert again(message).status == Status.FAILED
    assert again(message).last_error == f"{MOST_DEATHS} schedulers died with it"


def test_a_text_that_an_operator_retries_may_see_as_many_deaths_again(deaths, run_pass, askable):
    message = store(max_retries=0)
    deaths(message, askable)
    assert again(message).retry(TUESDAY_NOON + DAY, 3 * DAY)
    assert deaths(message, askable, TUESDAY_NOON + DAY, most=MOST_DEATHS - 1) == MOST_DEATHS - 1
    assert again(message).finished_at is None
    assert run_pass(TUESDAY_NOON + DAY + HOUR, askable)["sent"] == 1


# What ends while in doubt

LISTED, LATE = {"check_dnc": True}, {"first_send_at": TUESDAY_NOON - 3 * DAY}
ENDS = [
    (Status.CANCELLED, {}),
    (Status.BLOCKED, LISTED),
    (Status.EXPIRED, LATE),
    (Status.FAILED, {"to": "+99912345678"}),
]


def end_in_doubt(run_pass, carrier, status, fields):
    """Let a message of which a carrier may have a copy end; return it."""
    since = TUESDAY_NOON - HOUR
    message = store(in_doubt=1, in_doubt_since=since, **fields)
    if status == Status.CANCELLED:
        assert message.cancel("shell", TUESDAY_NOON)
    if status == Status.BLOCKED:
        DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    run_pass(TUESDAY_NOON, carrier)
    assert carrier.texts == []
    assert again(message).status == status
    return again(message)


@pytest.mark.parametrize(("status", "fields"), ENDS)
def test_what_ends_in_doubt_says_that_the_carrier_may_have_taken_it(
    run_pass, carrier, status, fields
):
    message = end_in_doubt(run_pass, carrier, status, fields)
    assert MAY_HAVE_TAKEN_IT in message.last_error
    assert message.last_error_at == TUESDAY_NOON


@pytest.mark.parametrize(("status", "fields"), ENDS)
def test_what_ends_after_the_carrier_said_that_it_has_it_not_says_nothing_of_that(
    run_pass, askable, status, fields
):
    message = end_in_doubt(run_pass, askable, status, fields)
    assert askable.asked
    assert MAY_HAVE_TAKEN_IT not in (message.last_error or "")


def test_what_ends_without_a_doubt_says_nothing_of_one(run_pass, carrier):
    message = store(**LATE, status=Status.QUEUED)
    run_pass(TUESDAY_NOON)
    assert (again(message).status, again(message).last_error) == (Status.EXPIRED, None)


def test_what_expires_in_doubt_between_claim_and_send_says_so(run_pass, carrier, at):
    """The process stood still after it had judged the message."""
    lost = CarrierError("lost", in_doubt=True)
    message = store(first_send_at=TUESDAY_NOON - 3 * DAY + HOUR, send_at=TUESDAY_NOON)
    carrier.answers[NEW_YORK] = lost
    run_pass(TUESDAY_NOON)
    assert again(message).in_doubt == 1

    class LatePool(ThreadPoolExecutor):
        def submit(self, action, *arguments):
            at(TUESDAY_NOON + 2 * HOUR)
            return super().submit(action, *arguments)

    run_pass.runtime = Runtime(make_pool=LatePool)
    run_pass(TUESDAY_NOON + HOUR / 2)
    assert len(carrier.texts) == 1
    assert again(message).status == Status.EXPIRED
    assert MAY_HAVE_TAKEN_IT in again(message).last_error


# Withdrawn in doubt


def test_the_approval_of_a_text_that_is_withdrawn_in_doubt_is_refused(flask):
    message = store(in_doubt=1, in_doubt_since=TUESDAY_NOON)
    assert message.cancel("shell", TUESDAY_NOON)
    result = flask("messages", "approve", str(message.id))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"{message.id}: not approved: cancelled, unless the carrier has it already\n"
    )
    assert again(message).undo_cancel("shell", TUESDAY_NOON)
    assert "approved" in flask("messages", "approve", str(message.id)).stdout
