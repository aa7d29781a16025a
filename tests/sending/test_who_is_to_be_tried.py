"""A carrier that recovered and cannot be asked gets the next text, though others could take it."""

from uuid import uuid4

import pytest

from databases import on_both
from own_threads import IN_ORDER
from samples import ALWAYS_OPEN, LONDON, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from several_carriers import LONG_PAUSE, UNREACHED, written
from stored_messages import statuses, store, store_many
from texting.carriers import CarrierError, Fault
from texting.carriers.configs import CarrierConfig
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import Status
from texting.sending.carrier_state import CarrierState

pytestmark = on_both

ANY = CarrierConfig("us"), CarrierConfig("eu")
REFUSED = CarrierError("it refuses the account", Fault.ACCOUNT)


@pytest.fixture
def lasting(settings, us, eu, at, without_waiting):
    """Make passes of a scheduler that lasts, so many seconds after noon."""

    def make(configs=ANY, carriers=(us, eu), **changes):
        url = " ".join(map(written, configs))
        changed = settings._replace(carrier_url=url, **ALWAYS_OPEN, **changes)
        first, *others = carriers
        one = Scheduler(changed, first, IN_ORDER, others)

        def run_pass(seconds):
            at(TUESDAY_NOON + seconds * SECOND)
            one.run_pass()

        return run_pass

    return make


def is_well(name="us"):
    return not CarrierState.in_trouble([name])


@pytest.mark.parametrize("comes", ["before", "between"])
@pytest.mark.parametrize("first", ["us", "eu"])
@pytest.mark.parametrize("answer", [UNREACHED, REFUSED, LONG_PAUSE])
def test_it_gets_the_first_text_that_comes_once_its_pause_is_over(
    lasting, us, eu, monkeypatch, answer, first, comes
):
    """Texts come singly, whichever carrier of the two does its step before the other.

    One that comes `between` is stored when the one in trouble has just found none.
    """
    down, other = (us, eu) if first == "us" else (eu, us)
    configs = [
        CarrierConfig("us", countries={"GB"} if first == "eu" else None),
        CarrierConfig("eu"),
    ]
    number = {"to": LONDON, "country": "GB"}
    run_pass = lasting(configs)
    us.answer = eu.answer = None
    if first == "eu":  # it is the second in the row, and the only one after a no
        number["lane"] = "GB>us"
    down.answer = answer
    store(**number)
    run_pass(0)
    assert (len(down.texts), len(other.texts)) == (1, 1)
    down.answer = None
    if comes == "between":
        run_pass(100)
        end_unused, senders = CarrierState.end_probe, []

        def end_probe(name, *more):
            end_unused(name, *more)
            if not senders:
                senders.append(name)
                store(TUESDAY_NOON + 120 * SECOND, **number)

        monkeypatch.setattr(CarrierState, "end_probe", end_probe)
    else:
        store(TUESDAY_NOON + 120 * SECOND, **number)
    run_pass(120)
    run_pass(121)
    assert (len(down.texts), len(other.texts)) == (2, 1)
    assert is_well(down.name)


def test_it_gets_the_first_of_texts_that_come_twenty_seconds_apart(lasting, us, eu):
    us.answer, run_pass = UNREACHED, lasting()
    for seconds in range(0, 200, 20):
        store(TUESDAY_NOON + seconds * SECOND)
        run_pass(seconds)
    assert len(us.texts) == 6, "whenever its pause is over: it grows to a minute"
    us.answer, before = None, len(eu.texts)
    for seconds in range(200, 400, 20):
        store(TUESDAY_NOON + seconds * SECOND)
        run_pass(seconds)
    assert is_well()
    assert len(eu.texts) - before <= 2, "those of the last pause"


def test_others_go_through_the_stand_in_while_one_is_tried(lasting, us, eu):
    us.answer, run_pass = UNREACHED, lasting()
    store()
    run_pass(0)
    run_pass(30)
    store_many(20)
    run_pass(31)
    assert statuses() == {Status.SENT: 21}
    assert (len(us.texts), len(eu.texts)) == (2, 21)


@pytest.mark.parametrize("why", ["in doubt", "no room", "used rate", "of a stopped scheduler"])
def test_what_it_cannot_be_tried_with_is_not_left_to_it(lasting, us, eu, why):
    us.answer = UNREACHED
    configs = [CarrierConfig("us", rate=0.1 if why == "used rate" else None), CarrierConfig("eu")]
    run_pass = lasting(configs)
    store()
    run_pass(0)
    run_pass(100)
    if why == "used rate":
        used_until = round((TUESDAY_NOON + 500 * SECOND).timestamp() * 1_000_000)
        CarrierState.update(rate_used_until=used_until).where(CarrierState.name == "us").execute()
    elif why == "of a stopped scheduler":
        run_pass = lasting([CarrierConfig("eu")], [eu])
    elif why == "no room":
        other = Heartbeat.create(sender=uuid4(), beat_at=TUESDAY_NOON + 100 * SECOND)
        another = {"probe_claimed_at": TUESDAY_NOON + 100 * SECOND, "probe_claimed_by": other}
        CarrierState.update(another).execute()
    doubt = {"in_doubt": 1, "in_doubt_with": "eu", "in_doubt_since": TUESDAY_NOON}
    store(TUESDAY_NOON + 101 * SECOND, **doubt if why == "in doubt" else {})
    run_pass(101)
    assert (len(us.texts), len(eu.texts)) == (1, 2)


def test_what_was_left_to_one_that_takes_none_goes_through_the_other_in_the_same_pass(
    lasting, us, eu
):
    """The one that is to be tried does its step behind the other."""
    eu.answer, run_pass = UNREACHED, lasting([CarrierConfig("us"), CarrierConfig("eu", rate=0.1)])
    store(lane="US>us")
    run_pass(0)
    used_until = round((TUESDAY_NOON + 500 * SECOND).timestamp() * 1_000_000)
    CarrierState.update(rate_used_until=used_until).where(CarrierState.name == "eu").execute()
    store(TUESDAY_NOON + 100 * SECOND, lane="US>us")
    run_pass(100)
    assert (len(us.texts), len(eu.texts)) == (2, 1)
