"""What becomes of a message: every answer × doubt × tries × kind of carrier."""

import itertools
from datetime import timedelta

import pytest

from running import ROOT
from samples import DAY, HOUR, MILLISECOND, MINUTE, NEW_YORK, SUNDAY_NIGHT, TUESDAY_NOON, daily
from texting import recipients
from texting.access.rules import Rules
from texting.carriers import CarrierError, Fault
from texting.messages.model import Message, Status, new_id
from texting.recipients.quiet import QuietHours, QuietPlaces
from texting.sending import outcomes
from texting.sending.outcomes import MAY_HAVE_TAKEN_IT, Outcome, Terms, judge

HOURS = daily(540, 1020)
ASKABLE = Terms(True, False, 60, Rules(HOURS, QuietPlaces(), False, 3 * DAY))
UNASKABLE = ASKABLE._replace(settles_doubts=False)
OPENING = SUNDAY_NIGHT.replace(day=2, hour=14, minute=0, second=0)
TWICE = f"given to the carrier twice without an answer; {MAY_HAVE_TAKEN_IT}"
OPENS = "business hours from 9:00 AM, Monday, Mar 2"

ANSWERS = {
    "permanent": CarrierError("no", Fault.PERMANENT),
    "too fast": CarrierError("no", Fault.TOO_FAST),
    "the account": CarrierError("no", Fault.ACCOUNT),
    "no answer": CarrierError("no", in_doubt=True, silent=True),
    "not reached": CarrierError("no", unreached=True),
    "a gateway's page": CarrierError("no", silent=True),
    "temporary": CarrierError("no"),
}


def message(**fields):
    """Return a message to New York as a sender holds it, in memory alone."""
    usual = {"id": new_id(TUESDAY_NOON), "to": NEW_YORK, "message": "Hello", "attempts": 0}
    usual |= {"send_at": TUESDAY_NOON, "max_retries": 3}
    usual |= {"first_send_at": TUESDAY_NOON, "expires_at": TUESDAY_NOON + 3 * DAY}
    usual |= {"in_doubt": 0, "check_dnc": False, "status": Status.SENDING}
    return Message(**usual | fields)


def expected(answer, askable, doubts, last_try, is_probe):
    """Say in another way than the code what the contract asks for: status, retry used, doubt."""
    if answer in ("too fast", "the account"):
        return Status.QUEUED, False, False
    if answer == "permanent":
        return Status.FAILED, True, False
    if answer == "no answer":
        gives_up = not askable and (doubts or last_try)
        return Status.FAILED if gives_up else Status.SCHEDULED, gives_up or not is_probe, True
    if is_probe and answer in ("not reached", "a gateway's page"):
        return Status.QUEUED, False, False
    return Status.FAILED if last_try else Status.SCHEDULED, True, False


CASES = [*itertools.product(ANSWERS, (True, False), (0, 1), (False, True), (False, True))]


@pytest.mark.parametrize(("answer", "askable", "doubts", "last_try", "is_probe"), CASES)
def test_a_no_has_one_outcome_by_what_it_is_about(answer, askable, doubts, last_try, is_probe):
    rules = ASKABLE if askable else UNASKABLE
    held = message(in_doubt=doubts, attempts=3 if last_try else 1)
    outcome = outcomes.after_error(held, ANSWERS[answer], rules, is_probe, TUESDAY_NOON)
    wanted = expected(answer, askable, doubts, last_try, is_probe)
    assert (outcome.status, outcome.counted, outcome.doubt) == wanted
    if outcome.status == Status.SCHEDULED:
        minutes = 125 if last_try else 5
        delay = (outcome.send_at - TUESDAY_NOON) / timedelta(minutes=minutes)
        assert 0.9 <= delay <= 1.1
    if outcome.status == Status.FAILED:
        in_doubt = doubts or outcome.doubt
        assert outcome.reason == ("no" + f"; {MAY_HAVE_TAKEN_IT}" * bool(in_doubt))


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize(
    ("fields", "status"), [({}, Status.EXPIRED), ({"cancelled_by": "Ann"}, Status.CANCELLED)]
)
def test_a_text_stays_in_doubt_until_it_expires_among_several_carriers(several, fields, status):
    terms = ASKABLE._replace(are_several=several)
    held = message(in_doubt=1, **fields)
    assert outcomes.after_no_answer(held, terms, held.expires_at - MILLISECOND) is None
    outcome = outcomes.after_no_answer(held, terms, held.expires_at)
    assert (outcome and outcome.status) == (status if several else None)


@pytest.mark.parametrize(
    ("fields", "deaths", "status"),
    [
        ({"attempts": 3}, 0, None),
        ({"attempts": 4}, 0, Status.FAILED),
        ({}, 2, None),
        ({}, 3, Status.FAILED),
        ({"cancelled_by": "Ann"}, 0, Status.CANCELLED),
    ],
)
def test_what_the_carrier_does_not_have_goes_again_unless_that_is_enough(fields, deaths, status):
    outcome = outcomes.not_taken(message(**fields), deaths)
    assert (outcome and outcome.status) == status


@pytest.mark.parametrize(
    ("fields", "opted_out", "wanted"),
    [
        ({}, None, None),
        ({}, False, None),
        ({}, True, Outcome(Status.BLOCKED)),
        ({"check_dnc": True}, None, None),
        ({"check_dnc": True}, False, Outcome(Status.BLOCKED)),
        ({"check_dnc": True}, True, Outcome(Status.BLOCKED)),
        ({"cancelled_by": "Ann"}, None, Outcome(Status.CANCELLED)),
        ({"expires_at": TUESDAY_NOON}, None, Outcome(Status.EXPIRED)),
        ({"in_doubt": 1}, None, None),
        ({"in_doubt": 2}, None, Outcome(Status.FAILED, TWICE)),
    ],
)
def test_a_message_is_kept_back_by_the_first_rule_that_says_so(fields, opted_out, wanted):
    assert judge(message(**fields), UNASKABLE, opted_out, TUESDAY_NOON) == wanted


@pytest.mark.parametrize(
    ("send_date", "wanted"),
    [
        (None, Outcome(Status.SCHEDULED, send_at=OPENING, waits_for=OPENS)),
        (SUNDAY_NIGHT, None),
        (SUNDAY_NIGHT - HOUR, Outcome(Status.SCHEDULED, send_at=OPENING, waits_for=OPENS)),
    ],
)
def test_business_hours_are_looked_at_unless_a_send_date_still_holds(send_date, wanted):
    held = message(send_date=send_date, first_send_at=SUNDAY_NIGHT)
    assert judge(held, UNASKABLE, False, SUNDAY_NIGHT) == wanted


@pytest.mark.parametrize(
    ("send_date", "wanted"),
    [
        (None, (OPENING, OPENS)),
        (SUNDAY_NIGHT, (OPENING, OPENS)),
        (OPENING - 2 * HOUR, (OPENING, OPENS)),
        # At 8:00 it is still obeyed
        (OPENING - 2 * HOUR + MINUTE, (OPENING - HOUR, "quiet hours until 8:00 AM, Monday, Mar 2")),
    ],
)
def test_quiet_hours_hold_back_whoever_asked_for_it(send_date, wanted):
    now = max(SUNDAY_NIGHT, send_date or SUNDAY_NIGHT)
    quiet = QuietPlaces(QuietHours.of((1260, 480)))
    rules = UNASKABLE._replace(key=UNASKABLE.key._replace(quiet=quiet))
    held = message(send_date=send_date, first_send_at=SUNDAY_NIGHT)
    assert outcomes.judge_again(held, UNASKABLE, now) is None
    for judgement in (judge(held, rules, False, now), outcomes.judge_again(held, rules, now)):
        assert judgement == Outcome(Status.SCHEDULED, send_at=wanted[0], waits_for=wanted[1])


def test_a_number_that_is_valid_no_longer_fails():
    held = message(to="+12220550123")
    outcome = judge(held, UNASKABLE, False, TUESDAY_NOON)
    assert outcome == Outcome(Status.FAILED, "the number is not a valid phone number")
    with pytest.raises(recipients.InvalidNumber):
        recipients.find(held.to)


def test_the_page_for_operators_has_a_line_for_each_kind_of_answer():
    page = (ROOT / "docs" / "carriers.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    for answer in ANSWERS:
        assert any(line.startswith(f"| **{answer}**") for line in rows), answer
