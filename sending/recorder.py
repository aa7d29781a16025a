"""Record what carriers say: the answers to texts, and what they report of their own accord."""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from carriers import Carrier, CarrierError, OptOut, Reply, TooFast
from database import db
from models import Message, Status
from sending import claims, inbound, outcomes, receipts
from sending.attempts import Attempt, Result
from sending.inbound import ReplyRules
from sending.outcomes import Outcome, Terms
from sending.routes import Routes
from sending.sends import Answer, NotSent, Send, Sends
from sending.watch import CarrierWatch

RECORDED_AT_ONCE = 100  # receipts in one transaction: each holds one of the database's locks

log = logging.getLogger("scheduler")


class Recorder:
    """Record the answers to sends, and count what happens to messages in a pass.

    `retry(action, *arguments)` calls what needs the database until it is back.
    """

    def __init__(
        self,
        claimant: UUID,
        terms: Terms,
        watch: CarrierWatch,
        sends: Sends,
        retry: Callable,
        routes: Routes,
    ):
        self.claimant, self.terms, self.watch, self.sends = claimant, terms, watch, sends
        self.retry, self.routes = retry, routes
        self.way = routes.way(terms.carrier)
        self.counts = Counter()  # of the present pass
        self.progress_at = 0  # when it began or sent a text last, by the monotonic clock
        self.unrecorded = []  # answers

    def begin_pass(self) -> None:
        self.counts = Counter()
        self.progress_at = self.sends.clock.monotonic()

    def take_counts(self) -> Counter:
        """Return what has happened since the pass began, or since it was asked last."""
        counts, self.counts = self.counts, Counter()
        return counts

    def record(self) -> list[Send]:
        """Write down the answers; return the messages that a carrier, asked, does not have.

        Each step waits by itself for a database that is away: none happens twice.
        """
        now, again = self.sends.clock.now(), []
        self.unrecorded = [self.as_it_counts(answer, now) for answer in self.unrecorded]
        taken = [each for each in self.unrecorded if not (each.error or each.send.asking)]
        self.retry(self.record_yes, taken, now)
        for send, error, said in self.unrecorded:
            if error:
                self.retry(self.record_no, send, error, now)
            elif not send.asking:
                self.note(send, "sent")
            elif self.retry(self.record_found, send, said, now):
                again.append(send)
        self.retry(self.watch.note, self.unrecorded)
        self.unrecorded = []
        while self.sends.stop.is_requested and again:  # the next sender asks the carrier once more
            self.retry(again.pop().message.apply, Outcome(Status.QUEUED, send_at=now), now)
        return again

    def record_yes(self, taken: list[Answer], now: datetime) -> None:
        """Record the carrier's yes to texts."""
        said = {each.send.message.id: each.said for each in taken}
        numbers = {each.send.message.id: each.send.message.claim_number for each in taken}
        receipts.sent(said, now, False, self.way, numbers)

    def take_back(self, messages: list[Message]) -> None:
        """Give up the claims of messages that were given to nobody."""
        with db.atomic():
            claims.put_back(self.claimant, messages)
            Attempt.take_back(messages)

    def as_it_counts(self, answer: Answer, now: datetime) -> Answer:
        """Return an answer as it is to be understood.

        A no about the way alone tells nothing else if another way is left. One about the account is
        one for now if the text had it before, and the carrier has taken another since.
        """
        send, error = answer.send, answer.error
        if not isinstance(error, CarrierError):
            return answer
        if error.way and self.others(send):
            return answer._replace(error=error.of_way_alone())
        refused_at, taken_at = send.message.refused_at, self.watch.state.taken_at
        others_taken = refused_at and taken_at and refused_at < taken_at <= now
        if error.account and others_taken and not send.is_probe:
            return answer._replace(error=error.for_now())
        return answer

    def others(self, send: Send) -> list[str]:
        """Return the other carriers that may be used for a message, well or not."""
        route = self.routes.read(send.message.lane) if self.routes.are_several else None
        return [name for name in route.carriers if name != self.terms.carrier] if route else []

    def record_found(self, send: Send, references: list[str], now: datetime) -> bool:
        """Record what the carrier said of a text in doubt; say whether to judge it again.

        If an equal text is being sent, a reference may be that one's: the carrier is asked later.
        """
        message, left = send.message, self.terms.doubts_elsewhere(send.message)
        others = [each.send.message for each in self.unrecorded]
        others += [each.message for each in self.sends.under_way.values() if each.asking]
        has_twin = references and claims.has_twin(message, others)
        if has_twin:
            outcome = outcomes.equal_text_under_way(now)
        elif receipts.found(message.id, references, now, self.way):
            self.note(send, "sent")
            return False
        elif not (outcome := outcomes.not_taken(message, bool(left))):
            with db.atomic():
                settled = message.settle_doubt(left)
                Attempt.rule_out(message, self.way, now)
            if not settled or not self.routes.are_several:
                return settled
            outcome = Outcome(Status.QUEUED, elsewhere=True)  # another may be the first for it
        with db.atomic():
            is_moved = message.apply(outcome, now)
            if not has_twin:
                Attempt.rule_out(message, self.way, now)
        if is_moved and outcome.status != Status.QUEUED:
            self.note(send, outcome.move, outcome.why)
        return False

    def record_no(self, send: Send, error: CarrierError | NotSent, now: datetime) -> None:
        """Record what becomes of a text that the carrier did not say yes to."""
        message = send.message
        outcome = error.outcome if isinstance(error, NotSent) else self.after_no(send, error, now)
        if outcome is None:
            self.take_back([message])
            return
        more = {} if isinstance(error, NotSent) else self.changes(send, error, outcome, now)
        with db.atomic():
            is_moved = message.apply(outcome, now, **more)
            self.end_attempt(send, error, now)
        if is_moved and outcome.status != Status.QUEUED:
            self.note(send, outcome.move, outcome.why)
        if outcome.doubt:
            receipts.look_again(message.to, self.routes.ways)

    def end_attempt(self, send: Send, error: CarrierError | NotSent, now: datetime) -> None:
        """Note with the attempt that the carrier did not say yes; a question is none."""
        if isinstance(error, NotSent):
            Attempt.take_back([send.message])
        elif not send.asking:
            result = Result.UNCLEAR if error.in_doubt else Result.REFUSED
            Attempt.end(send.message, now, result, words=str(error))

    def changes(self, send: Send, error: CarrierError, outcome: Outcome, now: datetime) -> dict:
        """Return what else is noted with a no: the carrier, and through which the next try goes."""
        noted = {"carrier": self.terms.carrier}
        if error.account:
            noted["refused_at"] = now
        if self.others(send) and not (outcome.doubt or send.asking):
            route = self.routes.read(send.message.lane)
            if error.way or (outcome.counted and outcome.status == Status.SCHEDULED):
                route = route.after_no(self.terms.carrier, error.way)
            noted["lane"] = self.routes.lane(route)
        return noted

    def after_no(self, send: Send, error: CarrierError, now: datetime) -> Outcome:
        """Record what an error tells of the recipient; return what becomes of the text."""
        if error.opted_out:
            said = OptOut(send.message.to, stop=True, source="carrier")
            self.counts["blocked"] += receipts.record_opt_out(said, now, self.terms.key.check_dnc)
        if send.asking:
            return outcomes.after_asking_in_vain(send.message, error, send.terms, now)
        others = bool(self.others(send))
        return outcomes.after_no(send.message, error, send.terms, send.is_probe, now, others)

    def note(self, send: Send, move: str, reason: str | None = None) -> None:
        """Count what happened to a message, and leave a line in the log."""
        self.counts[move] += 1
        if move == "sent":
            self.progress_at = self.sends.clock.monotonic()
        level = logging.WARNING if move in ("retrying", "failed", "expired") else logging.INFO
        why = f": {reason}" if reason else ""
        log.log(level, "message %s %s%s", send.message.id, move, why, extra=send.log_fields)


class Inbox:
    """Record receipts, replies and late answers from a carrier's session."""

    def __init__(self, carrier: Carrier, rules: ReplyRules, watch: CarrierWatch):
        self.carrier, self.rules, self.watch = carrier, rules, watch
        self.unrecorded = []

    def collect(self) -> bool:
        """Record what came; return whether there was anything.

        Calling `received` acknowledges the last batch: that is recorded first. A reply is recorded
        alone, since nothing tells it from another with the same words.
        """
        if not self.unrecorded:
            self.unrecorded = self.carrier.received()
        heard, now = bool(self.unrecorded), self.watch.clock.now()
        if any(isinstance(event, TooFast) for event in self.unrecorded):
            self.watch.note_too_fast()
        while self.unrecorded:
            some = self.unrecorded[:RECORDED_AT_ONCE]
            at_once = next((n for n, each in enumerate(some) if isinstance(each, Reply)), len(some))
            inbound.record(self.unrecorded[: at_once or 1], now, self.rules)
            del self.unrecorded[: at_once or 1]
        return heard
