"""Whether texts may go through a carrier now: its pauses, probes and SEND_RATE."""

import logging
from datetime import datetime
from typing import Any

from texting.carriers import CarrierError, Fault
from texting.database import db
from texting.sending.carrier_state import CarrierState, Permission, in_trouble, state_of
from texting.sending.rate import Rate, Share
from texting.sending.runtime import TICK
from texting.sending.sends import Answer, NotSent, Send, Sends

SHORT_PAUSE = 10  # seconds: a single pass waits for no longer pause of a carrier

log = logging.getLogger("scheduler")


class CarrierWatch:
    """Track whether a carrier is usable, from its answers."""

    def __init__(self, name: str, sends: Sends, rate: Rate | None, are_several: bool):
        self.name, self.sends, self.rate = name, sends, rate
        self.stop, self.clock = sends.stop, sends.clock
        self.are_several = are_several
        self.state = None  # the CarrierState, as last read
        self.probe = None  # when we claimed the right to send the first text after a pause
        self.asked = None  # the future of check(), which comes before that
        self.serves = False  # whether that succeeded
        self.rate_pause = 0  # seconds until SEND_RATE allows more
        self.short_pause = 0  # seconds left of a short pause that the carrier asked for

    def permission(self, under_way: bool) -> tuple[Permission, float]:
        """Return who may send now, and the seconds until that may change.

        After an outage, and if a stand-in takes the carrier's texts, check() comes first: it leaves
        no text in doubt. It may take a minute.
        """
        if self.asked:
            return self.answered()
        now, self.probe, self.serves = self.clock.now(), None, False
        self.rate_pause = self.short_pause = 0
        if self.stop.is_requested:
            return Permission.NONE, 0
        self.state = state = state_of(self.name)
        if self.rate:
            self.rate_pause = self.rate.wait(state.rate_used_until, now)
        if self.rate_pause:
            return Permission.NONE, self.rate_pause
        permission = state.permission(now, self.sends.pulse.sender)
        if permission is Permission.PROBE and (under_way or not self.claim_probe(now)):
            permission = Permission.NONE
        if permission is Permission.PROBE:
            self.probe = now
            if (state.trouble or self.has_stand_in) and not self.ask():
                return Permission.NONE, TICK
        left = (state.retry_at - now).total_seconds() if state.retry_at else 0
        if 0 < left <= SHORT_PAUSE and not state.trouble:
            self.short_pause = left
        # Another scheduler's probe may be answered at any time
        return permission, 0 if state.trouble or permission is Permission.ALL else max(left, TICK)

    def claim_probe(self, now: datetime) -> bool:
        """Claim the probe, while nobody can declare this scheduler dead."""
        pulse = self.sends.pulse
        with db.atomic():
            if not pulse.beat_in_transaction():
                return False
            return CarrierState.claim_probe(self.name, pulse.sender, now)

    @property
    def is_pause_over(self) -> bool:
        """Whether the carrier's pause is over, so that it is due to be tried."""
        retry_at = self.state and self.state.retry_at
        return retry_at is not None and retry_at <= self.clock.now()

    @property
    def has_stand_in(self) -> bool:
        """Whether a stand-in takes this carrier's texts for now."""
        return self.are_several and in_trouble(self.state)

    @property
    def is_risky(self) -> bool:
        """Whether a text goes first though check() has not succeeded, and there is a stand-in."""
        return self.probe is not None and self.has_stand_in and not self.serves

    def ask(self) -> bool:
        """Ask the carrier, without sending, whether it takes texts again.

        Return True if a text may go first now. If only a text can prove more, check() is called
        once after each pause; it is never called if the carrier has none.
        """
        self.serves = self.state.serves
        if self.serves or not self.sends.carrier.can_be_checked:
            return True
        try:
            self.asked = self.sends.submit(self.sends.carrier.check)
        except RuntimeError as error:  # no thread can be started
            log.error("carrier %s cannot be asked: %s", self.name, error)
            CarrierState.end_probe(self.name, self.probe)
        return False

    def answered(self) -> tuple[Permission, float]:
        """Return who may send, by the result of check().

        If that failed, it is called again after a longer pause.
        """
        if self.stop.is_requested:
            self.asked = None
            CarrierState.end_probe(self.name, self.probe)
            return Permission.NONE, 0
        if not self.asked.done():
            return Permission.NONE, TICK
        error, self.asked = self.asked.exception(), None
        if error is None:
            self.serves = True
            return Permission.PROBE, 0
        if not isinstance(error, CarrierError):
            kind = type(error).__name__  # its message may hold the URL
            log.error("carrier %s hit an unexpected %s while being asked", self.name, kind)
            error = CarrierError(f"unexpected {kind}", silent=True)
        if not self.record_error(error, self.probe, by_text=False):
            cause = {"trouble": self.state.trouble, "is_down": self.state.is_down}
            CarrierState.begin_pause(self.name, self.clock.now(), self.probe, **cause)
        return Permission.NONE, 0

    def end_unused_probe(self) -> None:
        """Let another text go first, since we have none.

        If check() has succeeded, the trouble ends: otherwise it would last until there is a text to
        send. A trouble that began with texts waits for that text.
        """
        if self.serves and not self.state.by_texts:
            self.end_pause(self.probe)
        CarrierState.end_probe(self.name, self.probe, self.serves)

    def end_pause(self, probe: datetime, **how: Any) -> None:
        """End the pause before a probe, as CarrierState.end_pause does, and log it."""
        if CarrierState.end_pause(self.name, probe, **how):
            log.info("carrier %s takes texts again", self.name)

    def claim_rate(self, parts: list[int]) -> Share:
        """Take as many of these texts as SEND_RATE allows; none if another scheduler was faster."""
        used_until = self.state.rate_used_until
        now = self.clock.now()
        share = self.rate.claim(used_until, parts, now)
        if share.texts and not CarrierState.use_rate(self.name, used_until, share.used_until):
            return Share(0, used_until, 0)
        self.state.rate_used_until = share.used_until
        return share

    def record_answers(self, answers: list[Answer]) -> None:
        """Update the carrier's shared state from these answers."""
        for send, error, _ in answers:
            if not isinstance(error, NotSent):
                self.record_answer(send, error)
            if send.is_probe:  # the next may go first
                CarrierState.end_probe(self.name, send.probe)

    def record_answer(self, send: Send, error: CarrierError | None) -> None:
        """Update the carrier's shared state from one answer.

        Only a text can prove that neither the speed nor the account is refused. The answer to a
        question about a doubt can only end an outage, and only one that began without a text.
        """
        if error:
            self.record_error(error, send.probe, by_text=send.gives)
        fault = error and error.fault
        if error and (error.silent or error.in_doubt) and fault is not Fault.TOO_FAST:
            return
        if self.state.unanswered:  # as this step or the one before has read, or counted
            CarrierState.reset_unanswered(self.name)
            self.state.unanswered = 0
        if send.is_probe and fault not in (Fault.TOO_FAST, Fault.ACCOUNT):
            accepted_at = None if error or send.asking else self.clock.now()
            is_question = not send.gives
            self.end_pause(send.probe, only_outage=is_question, accepted_at=accepted_at)

    def warn_hourly(self, what: str, problem: object) -> None:
        """Log a warning about the carrier, the same one once an hour over all schedulers."""
        if isinstance(problem, BaseException) and not isinstance(problem, CarrierError):
            problem = type(problem).__name__  # the message of a bug may hold a number or a secret
        if CarrierState.may_log(self.name, f"{what}: {problem}", self.clock.now()):
            log.warning("carrier %s %s: %s", self.name, what, problem)

    def record_too_fast(self) -> None:
        """Begin a pause: the carrier said "too fast" to a part of a text, which itself waits."""
        self.record_error(CarrierError("too fast", Fault.TOO_FAST), None, by_text=True)

    def record_error(self, error: CarrierError, probe: datetime | None, by_text: bool) -> bool:
        """Begin a pause if an error is about the account, the speed or the carrier itself.

        Return whether it is. The error answered a text, or a question.
        """
        name = self.name
        if error.silent:
            self.state.unanswered += 1
        if error.fault is Fault.ACCOUNT:
            cause = {"trouble": str(error)}
        elif error.fault is Fault.TOO_FAST:
            cause = {"asked_for": error.retry_after}
        elif error.unreached or (error.silent and CarrierState.count_unanswered(name)):
            cause = {"trouble": str(error), "is_down": True}
        else:
            return False
        cause["by_text"] = by_text and not error.unreached
        if not CarrierState.begin_pause(name, self.clock.now(), probe, **cause):
            return True
        instead = CarrierState.stand_in(name) if self.are_several else None
        why = f"{error}; {instead} takes its place" if instead else error
        if error.fault is Fault.ACCOUNT:
            log.error("carrier %s refuses the account, nothing is sent through it: %s", name, why)
        elif error.fault is Fault.TOO_FAST:
            log.warning("carrier %s says too fast: all schedulers pause", name)
        else:
            log.error("carrier %s is down, and is tried one text at a time: %s", name, why)
        return True
