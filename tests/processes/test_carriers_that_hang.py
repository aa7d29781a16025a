"""A carrier that hangs when it is asked whether it serves holds up nothing but its own texts."""

import pytest

from carrier_servers import HANG, TwilioServer
from database import clock, db
from models import Message, Status
from running import wait_until
from samples import HOUR, SECOND
from sending.carrier_state import CarrierState
from stored_messages import again, held, store


@pytest.fixture
def hanging():
    """A Twilio that takes texts, and does not answer when it is asked for its account."""

    class Hanging(TwilioServer):
        def told(self, request):
            return HANG

    server = Hanging()
    yield server
    server.close()


@pytest.mark.parametrize("words", [("--every", "0.2"), ()])
def test_while_it_hangs_texts_are_promoted_taken_over_and_expire(schedule, hanging, words):
    now = clock.now()
    CarrierState.prepare("twilio")
    CarrierState.begin_pause("twilio", now - HOUR, trouble="no route", is_down=True)
    store(now, check_dnc=True)
    due = store(now + 4 * SECOND, status=Status.SCHEDULED)
    dead = held(Status.SENDING, claimed_at=now + 4 * SECOND)
    late = {"expires_at": now + 4 * SECOND}
    unapproved = store(now - HOUR, **late, manual_mode=True, approved=False)
    db.close()
    environ = {"CARRIER_TIMEOUT": "60", "CLAIM_TIMEOUT": "3"}
    running = schedule(*words, CARRIER_URL=hanging.url, **environ)
    wait_until(lambda: hanging.asked)

    def all_is_done():
        db.close()
        expired = again(unapproved).status == Status.EXPIRED
        return expired and {again(due).status, again(dead).status} == {Status.QUEUED}

    wait_until(all_is_done, 50)  # the carrier has not answered yet, nor given up on
    assert again(dead).in_doubt == 1
    assert running.popen.poll() is None
    assert (len(hanging.asked), hanging.texts) == (1, [])
    assert Message.select().where(Message.status == Status.SENDING).count() == 0
    assert running.terminate(10) == 0
