"""What a carrier can take now: its pauses and probes, and SEND_RATE, over all schedulers."""

import logging
from concurrent.futures import wait
from datetime import datetime

from carriers import Carrier, CarrierError
from sending.carrier_state import CarrierState, Permission
from sending.rate import Rate, Share
from sending.runtime import TICK, Clock, Stop, in_own_thread
from sending.sends import Answer, NotSent

log = logging.getLogger("scheduler")


class CarrierWatch:
    """Say who may send through a carrier, and note what its answers tell of itself."""

    def __init__(
        self,
        name: str,
        carrier: Carrier,
        rate: Rate | None,
        claim_timeout: int,
        stop: Stop,
        clock: Clock,
    ):
        self.name, self.carrier, self.rate = name, carrier, rate
        self.claim_timeout, self.stop, self.clock = claim_timeout, stop, clock
        self.state = None  # as read last

    def permission(self, under_way: bool) -> tuple[Permission, float]:
        """Return who may send now, and the seconds until that may change.

        After an outage the carrier is asked first whether it serves, without a text that could be
        left in doubt.
        """
        now = self.clock.now()
        self.state = state = CarrierState.get_by_id(self.name)
        if self.stop.is_requested:
            return Permission.NONE, 0
        if self.rate and (pause := self.rate.wait(state.rate_used_until, now)):
            return Permission.NONE, pause
        if under_way and state.retry_at:
            permission = Permission.NONE
        else:
            permission = state.permission(now, self.claim_timeout)
        if permission is Permission.PROBE and state.trouble:
            return (permission if self.serves() else Permission.NONE), 0
        left = (state.retry_at - now).total_seconds() if state.retry_at else 0
        # Another's probe: its answer may come at any time
        return permission, 0 if state.trouble or permission is Permission.ALL else max(left, TICK)

    def serves(self) -> bool:
        """Ask the carrier, without sending, whether it takes texts again; True if it cannot say."""
        begun_at = self.clock.now()
        asked = in_own_thread(self.carrier.check)
        while not asked.done() and self.stop.seconds_left:
            wait([asked], TICK)
        try:
            if asked.done():
                asked.result()
                return True
        except NotImplementedError:
            return True
        except CarrierError as error:
            self.note_error(error, begun_at)
        CarrierState.end_probe(self.name)
        return False

    def take_rate(self, parts: list[int]) -> Share:
        """Take what SEND_RATE allows of these texts; nothing if another scheduler was faster."""
        used_until = self.state.rate_used_until
        share = self.rate.take(used_until, parts, self.clock.now())
        if share.texts and not CarrierState.use_rate(self.name, used_until, share.used_until):
            return Share(0, used_until, 0)
        return share

    def note(self, answers: list[Answer]) -> None:
        """Let all schedulers know what these answers tell of the carrier itself."""
        given = [each for each in answers if not isinstance(each.error, NotSent)]
        for send, error, _ in given:
            if error:
                self.note_error(error, send.begun_at)
        if any(each.send.is_probe for each in answers):  # the next may go first
            CarrierState.end_probe(self.name)
        own = [each.send.begun_at for each in given if _is_own(each.error)]
        if not own or not (self.state.silences or self.state.retry_at):  # as read a round ago
            return
        if CarrierState.answered(self.name, max(own)):
            log.info("carrier %s takes texts again", self.name)

    def note_error(self, error: CarrierError, begun_at: datetime) -> None:
        """Begin a pause if an error is about the account, the speed or the carrier itself."""
        name = self.name
        if error.account:
            cause = {"trouble": str(error)}
        elif error.too_fast:
            cause = {"asked_for": error.retry_after}
        elif error.unreached or (error.silent and CarrierState.count_silence(name)):
            cause = {"trouble": str(error), "is_down": True}
        else:
            return
        if not CarrierState.begin_pause(name, begun_at, self.clock.now(), **cause):
            return
        if error.account:
            words = "carrier %s refuses the account, nothing is sent until that is mended: %s"
            log.error(words, name, error)
        elif error.too_fast:
            log.warning("carrier %s says too fast: all schedulers pause", name)
        else:
            log.error("carrier %s is down, and is tried one text at a time: %s", name, error)


def _is_own(error):
    """Say whether an answer is the carrier's own, and neither about speed nor about the account."""
    return not (error and (error.silent or error.too_fast or error.account or error.in_doubt))
