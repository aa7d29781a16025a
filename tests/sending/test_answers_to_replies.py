"""The texts that answer a STOP or HELP: one try, soon or not at all, beside list and hours."""

import pytest

from access.do_not_call import DoNotCall
from carriers import CarrierError
from carriers import Reply as Said
from carriers.ways import Way
from fake_carrier import FOR_GOOD, FOR_NOW, TOO_FAST, DyingPool, FakeCarrier
from models import Message, Status
from samples import DAY, HOUR, NEW_YORK, SECOND, TUESDAY_NOON
from sending import inbound
from sending.heartbeats import Heartbeat
from sending.inbound import ReplyRules
from sending.runtime import Runtime
from stored_messages import held, key_named, store_many

pytestmark = pytest.mark.usefixtures("database_url")

NIGHT = TUESDAY_NOON + 14 * HOUR  # two in the morning in New York
RULES = ReplyRules(Way("fake"), True, "You get no more texts.", "Ask us.")
ANSWERING = {"stop_reply": RULES.stop_reply, "help_reply": RULES.help_reply, "check_dnc": True}
UNREACHED = CarrierError("unreached", unreached=True)
REFUSED = CarrierError("wrong password", account=True)
IN_DOUBT = CarrierError("no answer", in_doubt=True, silent=True)


def hear(text="STOP", now=NIGHT, **fields):
    held(Status.SENT, finished_at=now - HOUR, created_at=now - HOUR)
    inbound.record([Said(NEW_YORK, text, **fields)], now, RULES)
    return the_answer()


def the_answer():
    return Message.get(Message.answers.is_null(False))


def test_it_is_sent_in_the_night_to_a_number_on_the_list(run_pass, carrier):
    hear()
    assert DoNotCall.lists(NEW_YORK)
    quiet = {"quiet_hours": (21 * 60, 8 * 60)}
    run_pass(NIGHT + SECOND, **ANSWERING, **quiet)
    assert carrier.texts == [(NEW_YORK, "You get no more texts.")]
    assert the_answer().status == Status.SENT


def test_a_second_stop_does_not_keep_it_back(run_pass, carrier):
    hear()
    inbound.record([Said(NEW_YORK, "STOP")], NIGHT, RULES)
    run_pass(NIGHT + SECOND, **ANSWERING)
    assert len(carrier.texts) == 1


@pytest.mark.parametrize(("seconds", "status"), [(119, Status.SENT), (120, Status.EXPIRED)])
def test_it_is_sent_within_two_minutes_of_the_reply_or_not_at_all(
    run_pass, carrier, seconds, status
):
    hear(at=NIGHT - 20 * SECOND)
    run_pass(NIGHT + (seconds - 20) * SECOND, **ANSWERING)
    assert the_answer().status == status
    assert len(carrier.texts) == (status == Status.SENT)


def test_the_carrier_is_told_until_when_it_may_be_delivered(run_pass):
    class Noting(FakeCarrier):
        def send(self, to, text, valid_for, **_):
            self.valid_for = valid_for

    hear()
    carrier = Noting()
    run_pass(NIGHT + 50 * SECOND, carrier, **ANSWERING)
    assert carrier.valid_for == 70


@pytest.mark.slow
@pytest.mark.parametrize("error", [FOR_NOW, FOR_GOOD, TOO_FAST, UNREACHED, REFUSED, IN_DOUBT])
def test_it_has_one_try_whatever_comes_of_it(run_pass, carrier, error):
    hear()
    carrier.answers[NEW_YORK] = error
    for n in range(10):
        run_pass(NIGHT + n * 10 * SECOND, **ANSWERING)
    assert len(carrier.texts) == 1
    assert (the_answer().status, the_answer().attempts) == (Status.FAILED, 1)
    assert not the_answer().retry(NIGHT + HOUR, 3 * DAY)


def test_a_text_whose_sender_died_is_not_sent_again(run_pass, carrier):
    hear()
    run_pass.runtime, living = Runtime(make_pool=DyingPool), run_pass.runtime
    with pytest.raises(SystemExit):
        run_pass(NIGHT, **ANSWERING)
    run_pass.runtime = living
    Heartbeat.update(beat_at=NIGHT - DAY).execute()
    run_pass(NIGHT + SECOND, **ANSWERING)
    assert not carrier.texts
    assert the_answer().status == Status.FAILED
    assert "may have taken it" in the_answer().last_error


class Asked(FakeCarrier):
    """A carrier that can be asked, and has the text or not."""

    can_be_asked = True

    def __init__(self, has_it):
        super().__init__()
        self.has_it = has_it

    def find(self, *_):
        return ["SM1"] if self.has_it else []


@pytest.mark.slow
@pytest.mark.parametrize("has_it", [True, False])
def test_a_carrier_that_can_be_asked_settles_the_doubt_and_gets_no_second_copy(run_pass, has_it):
    hear()
    carrier = Asked(has_it)
    carrier.answers[NEW_YORK] = IN_DOUBT
    for n in range(20):
        run_pass(NIGHT + n * 60 * SECOND, carrier, **ANSWERING)
    assert len(carrier.texts) == 1
    assert the_answer().status == (Status.SENT if has_it else Status.FAILED)


@pytest.mark.slow
def test_it_goes_before_all_that_waits(settings, run_pass, carrier):
    store_many(60, check_dnc=False)
    store_many(60, check_dnc=False, key=key_named("another"))
    key = key_named("app")
    held(Status.SENT, finished_at=TUESDAY_NOON, key=key, to="+12125559999")
    inbound.record([Said("+12125559999", "HELP")], TUESDAY_NOON, RULES)
    run_pass(TUESDAY_NOON + SECOND, send_concurrency=1, **ANSWERING)
    assert carrier.texts[0] == ("+12125559999", "Ask us.")
    assert len(carrier.texts) == 121


def test_what_joins_while_a_long_pass_sends_goes_next(settings, carrier, run_pass):
    numbers = store_many(30, check_dnc=False)
    held(Status.SENT, finished_at=TUESDAY_NOON, to="+12125559999")

    def hear_now():
        inbound.record([Said("+12125559999", "STOP")], TUESDAY_NOON, RULES)
        return "id"

    carrier.answers[numbers[3]] = hear_now
    run_pass(TUESDAY_NOON + SECOND, send_concurrency=1, **ANSWERING)
    assert "+12125559999" in carrier.numbers[4:8]
