"""Record what carriers answer when they are given texts."""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime

from texting.carriers import CarrierError, Fault, OptOut
from texting.carriers.lanes import Lane, Routes
from texting.database import db, skip_broken, skip_on_error
from texting.messages import doubts, receipts
from texting.messages.attempts import Attempt, Result, was_refused
from texting.messages.model import Message, Status
from texting.messages.waiting import set_aside
from texting.replies import opt_outs
from texting.sending import outcomes
from texting.sending.outcomes import Outcome, Terms
from texting.sending.sends import Answer, Kind, NotSent, Send
from texting.sending.watch import CarrierWatch

UNRECORDED = "the carrier's answer cannot be recorded"

log = logging.getLogger("scheduler")


class Recorder:
    """Record the answers of one carrier, and count what happens to messages.

    `retry(action, *arguments)` calls what needs the database until it is back.
    """

    def __init__(
        self, terms: Terms, watch: CarrierWatch, routes: Routes, counts: Counter, retry: Callable
    ):
        self.terms, self.watch, self.counts, self.retry = terms, watch, counts, retry
        self.clock, self.routes, self.name = watch.clock, routes, watch.name
        self.unrecorded = []  # answers
        self.given_up = set()  # sends of which nothing can be recorded: they stay claimed

    def record(self) -> bool:
        """Record the answers that have come; return whether there were any.

        Each step waits by itself for a database that is away, so none happens twice.
        """
        if not self.unrecorded:
            return False
        now = self.clock.now()
        self.unrecorded = [self.interpreted(each, now) for each in self.unrecorded]
        taken = [each for each in self.unrecorded if not (each.error or each.send.asking)]
        self.record_unless_broken(self.record_accepted, taken, now)
        for each in self.unrecorded:
            if each.error or each.send.asking:
                self.record_unless_broken(self.record_other, [each], now)
        if self.terms.settles_doubts and not self.terms.keeps_ids:
            self.retry(self.release_equal, self.unrecorded, now)
        self.retry(self.watch.record_answers, self.unrecorded)
        self.unrecorded = []
        return True

    def release_equal(self, answers: list[Answer], now: datetime) -> None:
        """Let texts go that waited for these, if the carrier has said what became of these."""
        settled = (each.send.message for each in answers if each.settles)
        texts = {(each.to, each.message) for each in settled if each.to}
        doubts.release_equal(texts, now, outcomes.EQUAL_TEXT_DELAY)

    def record_unless_broken(
        self, action: Callable[[list[Answer], datetime], None], answers: list[Answer], now: datetime
    ) -> None:
        """Record answers by an action; skip those that break it."""

        def record(some):
            self.retry(action, some, now)

        def leave(answer):
            self.leave(answer, now)

        what = "the answer to message {0.send.message.id} is not recorded".format
        skip_broken(record, answers, log, what, leave)

    def leave(self, answer: Answer, now: datetime) -> None:
        """Let a message wait if its answer cannot be recorded: the carrier may have taken it.

        If even that breaks, it stays claimed, and is taken over once this scheduler has ended.
        """
        send = answer.send
        self.given_up.add(send)
        if isinstance(answer.error, NotSent):
            self.retry(self.set_aside, send.message, now)
        else:
            may_go_again = answer.error or self.terms.settles_doubts
            fault = Fault.TEMPORARY if may_go_again else Fault.PERMANENT
            unrecorded = CarrierError(UNRECORDED, fault, in_doubt=True)
            self.retry(self.record_not_accepted, send, unrecorded, now)
        self.given_up.discard(send)

    def set_aside(self, message: Message, now: datetime) -> None:
        """Give up the claim of a message that was not given to the carrier; it waits a while."""
        with db.atomic():
            take_back([message])
            set_aside(message.id, now)

    def record_other(self, answers: list[Answer], now: datetime) -> None:
        """Record that a text was not accepted."""
        ((send, error, _),) = answers
        if isinstance(error, NotSent):
            self.record_not_given(send, error.outcome, now)
        else:
            self.record_not_accepted(send, error, now)

    def interpreted(self, answer: Answer, now: datetime) -> Answer:
        """Return an answer with the error that counts, or unchanged if that cannot be told."""
        if not isinstance(answer.error, CarrierError):
            return answer
        with skip_on_error(log, f"the answer to message {answer.send.message.id} stays as it is"):
            return self.retry(self.interpret, answer, now)
        return answer

    def interpret(self, answer: Answer, now: datetime) -> Answer:
        """Return an answer with the error that counts.

        If a carrier cannot reach a country and another may be used, only that counts. A refusal of
        the account is temporary if this carrier has refused this text the same way before, and
        accepted another since.
        """
        send, error = answer.send, answer.error
        if error.no_route and self.others(send):
            return answer._replace(error=CarrierError(error.reason, no_route=True))
        accepted_at = self.watch.state.last_accepted_at
        is_usual = not send.is_probe and send.kind is not Kind.AGAIN
        others_accepted = error.fault is Fault.ACCOUNT and is_usual and accepted_at
        if others_accepted and was_refused(send.message, self.name, error.reason, accepted_at):
            return answer._replace(error=CarrierError(error.reason))
        return answer

    def others(self, send: Send) -> list[str]:
        """Return the other carriers that may be used for a message, including those in trouble."""
        order = self.routes.order(Lane.read(send.message.lane), send.key_name or "")
        return [name for name in order if name != self.name]

    # Answers to texts

    def record_accepted(self, taken: list[Answer], now: datetime) -> None:
        """Record that the carrier accepted texts."""
        said = {each.send.message.id: each.said for each in taken}
        claims = {each.send.message.id: each.send.message.claim_number for each in taken}
        receipts.record_accepted(said, now, self.name, claims)
        for each in taken:
            self.record_move(each.send, "sent")

    def record_not_given(self, send: Send, outcome: Outcome | None, now: datetime) -> None:
        """Record what becomes of a text not given to the carrier; it may keep its place."""
        with db.atomic():
            is_moved = outcome and send.message.apply(outcome, now)
            take_back([send.message])
        if is_moved:
            self.record_move(send, outcome.move, outcome.why)

    def record_not_accepted(self, send: Send, error: CarrierError, now: datetime) -> None:
        """Record what becomes of a text that the carrier did not accept."""
        message = send.message
        self.record_opt_out(message, error, now)
        with db.atomic():
            message.read_again()
            others = bool(self.others(send))
            outcome = outcomes.after_error(message, error, send.terms, send.is_probe, now, others)
            lane = self.lane_after_error(send, error, outcome)
            is_moved = message.apply(outcome, now, carrier=self.name, lane=str(lane))
            self.end_attempt(send, error, outcome, now)
        if is_moved and outcome.status != Status.QUEUED:
            self.record_move(send, outcome.move, outcome.why)
        if outcome.doubt:
            receipts.look_again(message.to, now)

    def record_opt_out(self, message: Message, error: CarrierError, now: datetime) -> None:
        """Record that a recipient told the carrier to stop, if that is why it did not accept."""
        if error.fault is Fault.OPTED_OUT:
            said = OptOut(message.to, stop=True, source="carrier")
            self.counts["blocked"] += opt_outs.record_opt_out(said, now, self.terms.key.check_dnc)

    def lane_after_error(self, send: Send, error: CarrierError, outcome: Outcome) -> Lane:
        """Return the lane of a text that the carrier did not accept."""
        lane = Lane.read(send.message.lane)
        if outcome.doubt:
            return lane._replace(refused_last=None)  # one more copy goes through the first
        is_for_now = outcome.counted and outcome.status == Status.SCHEDULED
        if (error.no_route or is_for_now) and self.others(send):
            return lane.after_refusal(self.name, error.no_route)
        return lane

    def end_attempt(self, send: Send, error: CarrierError, outcome: Outcome, now: datetime) -> None:
        """End the attempt of a text that the carrier did not accept.

        If its scheduler has been declared dead, a refusal settles the doubt, unless another may
        have given the same text again.
        """
        words, even_unclear = str(error), not self.terms.keeps_ids
        if error.in_doubt:
            at = outcome.send_at or now if self.terms.settles_doubts else None
            # What is unclear by a death keeps these words: it has not been counted
            Attempt.end(send.message, now, Result.UNCLEAR, False, words=words, ask_at=at)
            doubts.recount([send.message.id])
        elif Attempt.end(send.message, now, Result.REFUSED, even_unclear, words=words, ask_at=None):
            doubts.recount([send.message.id])

    def record_move(self, send: Send, move: str, reason: str | None = None) -> None:
        """Count and log what happened to a message."""
        self.counts[move] += 1
        level = logging.WARNING if move in ("retrying", "failed", "expired") else logging.INFO
        why = f": {reason}" if reason else ""
        log.log(level, "message %s %s%s", send.message.id, move, why, extra=send.log_fields)


def take_back(messages: list[Message]) -> None:
    """Give up the claims of messages that were not sent; they keep their places."""
    with db.atomic():
        Message.put_back(messages)
        Attempt.take_back(messages)
