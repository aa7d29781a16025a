"""Record what carriers say: their answers to texts and questions, and what they report."""

import logging
import math
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from texting.carriers import Carrier, CarrierError, IncomingText, News, OptOut, TooFast
from texting.carriers.lanes import Lane, Routes
from texting.database import all_but_broken, db, passed_over
from texting.messages import doubts, receipts
from texting.messages.attempts import DIED, Attempt, Result, was_refused
from texting.messages.model import WAITING, Message, Status
from texting.messages.waiting import SET_ASIDE, set_aside
from texting.replies import inbound, opt_outs
from texting.replies.inbound import ReplyRules
from texting.sending import outcomes
from texting.sending.carrier_state import CarrierState
from texting.sending.outcomes import Outcome, Terms
from texting.sending.sends import Answer, NotSent, Send
from texting.sending.watch import CarrierWatch

LISTED_EVERY = timedelta(minutes=5)  # the list of incoming texts is read
LATE_IN_LIST = timedelta(minutes=5)  # how late a text may be listed, by clocks that differ
CALLED_BACK_WITHIN = timedelta(seconds=30)  # how late the callback of an incoming text may arrive
LONGEST_UNHEARD = timedelta(days=3)
MOST_SHOWN = 64  # characters of an id
MOST_PARTS = 50  # of a list: a hundred thousand texts
LISTED_AGAIN_AFTER = REGISTERED_AGAIN_AFTER = 60  # seconds
UNRECORDED = "the carrier's answer cannot be recorded"
RECORDED_AT_ONCE = 20  # receipts in a transaction, as others wait; listed replies in a step

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
        if self.terms.askable and not self.terms.keeps_ids:
            self.retry(self.release_equal, self.unrecorded, now)
        self.retry(self.watch.note_answers, self.unrecorded)
        self.unrecorded = []
        return True

    def release_equal(self, answers: list[Answer], now: datetime) -> None:
        """Let texts go that waited for these, if the carrier has said what became of these."""
        settled = (each.send.message for each in answers if each.settles)
        texts = {(each.to, each.message) for each in settled if each.to}
        doubts.release_equal(texts, now, outcomes.PUT_OFF)

    def record_unless_broken(
        self, action: Callable[[list[Answer], datetime], None], answers: list[Answer], now: datetime
    ) -> None:
        """Record answers by an action; skip those that break it."""

        def record(some):
            self.retry(action, some, now)

        def leave(answer):
            self.leave(answer, now)

        what = "the answer to message {0.send.message.id} is not recorded".format
        all_but_broken(record, answers, log, what, leave)

    def leave(self, answer: Answer, now: datetime) -> None:
        """Let a message wait if its answer cannot be recorded: the carrier may have taken it.

        If even that breaks, it stays claimed, and is taken over once this scheduler has ended.
        """
        send = answer.send
        if send.asking:
            self.retry(doubts.ask_again_at, send.message.id, self.name, now + SET_ASIDE)
            return
        self.given_up.add(send)
        if isinstance(answer.error, NotSent):
            self.retry(self.set_aside, send.message, now)
        else:
            knows_no_more = not (answer.error or self.terms.askable)
            unrecorded = CarrierError(UNRECORDED, in_doubt=True, permanent=knows_no_more)
            self.retry(self.record_not_accepted, send, unrecorded, now)
        self.given_up.discard(send)

    def set_aside(self, message: Message, now: datetime) -> None:
        """Give up the claim of a message that was not given to the carrier; it waits a while."""
        with db.atomic():
            take_back([message])
            set_aside(message.id, now)

    def record_other(self, answers: list[Answer], now: datetime) -> None:
        """Record the answer to a question, or a refusal of a text."""
        ((send, error, said),) = answers
        if send.asking:
            self.record_question(send, error, said, now)
        elif isinstance(error, NotSent):
            self.record_not_given(send, error.outcome, now)
        else:
            self.record_not_accepted(send, error, now)

    def interpreted(self, answer: Answer, now: datetime) -> Answer:
        """Return an answer with the error that counts, or unchanged if that cannot be told."""
        with passed_over(log, f"the answer to message {answer.send.message.id} stays as it is"):
            return self.retry(self.interpret, answer, now)
        return answer

    def interpret(self, answer: Answer, now: datetime) -> Answer:
        """Return an answer with the error that counts.

        If a carrier cannot reach a country and another may be used, only that counts. A refusal of
        the account is temporary if this carrier has refused this text the same way before, and
        accepted another since.
        """
        send, error = answer.send, answer.error
        if not isinstance(error, CarrierError):
            return answer
        if error.no_route and self.others(send):
            return answer._replace(error=CarrierError(error.reason, no_route=True))
        accepted_at = self.watch.state.last_accepted_at
        others_accepted = error.account and not (send.is_probe or send.again) and accepted_at
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
            self.note_move(each.send, "sent")

    def record_not_given(self, send: Send, outcome: Outcome | None, now: datetime) -> None:
        """Record what becomes of a text not given to the carrier; it may keep its place."""
        with db.atomic():
            is_moved = outcome and send.message.apply(outcome, now)
            take_back([send.message])
        if is_moved:
            self.note_move(send, outcome.move, outcome.why)

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
            own = Attempt.under_way(send.sender).where(Attempt.message == message.id)
            if outcome.doubt and not is_moved and own.exists():  # a receipt has ended it
                message.note_doubt(self.name)
            self.end_attempt(send, error, outcome, now)
        if is_moved and outcome.status != Status.QUEUED:
            self.note_move(send, outcome.move, outcome.why)
        if outcome.doubt:
            receipts.look_again(message.to, now)

    def record_opt_out(self, message: Message, error: CarrierError, now: datetime) -> None:
        """Record that a recipient told the carrier to stop, if that is why it did not accept."""
        if error.opted_out:
            said = OptOut(message.to, stop=True, source="carrier")
            self.counts["blocked"] += opt_outs.record_opt_out(said, now, self.terms.key.check_dnc)

    def lane_after_error(self, send: Send, error: CarrierError, outcome: Outcome) -> Lane:
        """Return the lane of a text that the carrier did not accept."""
        lane = Lane.read(send.message.lane)
        if outcome.doubt:
            return lane.in_doubt(self.name)
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
            at = outcome.send_at or now
            # What is unclear by a death keeps these words: it has not been counted
            Attempt.end(send.message, now, Result.UNCLEAR, False, words=words, ask_at=at)
        elif Attempt.end(send.message, now, Result.REFUSED, even_unclear, words=words, ask_at=None):
            since_retry = send.message.claim_number > send.message.claims_before_retry
            send.message.settle_doubts(self.name, int(since_retry), once=True)

    # Answers to questions

    def record_question(
        self, send: Send, error: CarrierError | NotSent | None, said: list[str], now: datetime
    ) -> None:
        """Record the answer to a question about a text in doubt."""
        if isinstance(error, NotSent):
            doubts.ask_again_at(send.message.id, self.name, now)
        elif error and send.again and outcomes.is_refusal(error):
            self.record_refused(send, error, now)
        elif error:
            self.record_no_answer(send, error, now)
        else:
            self.record_found(send, said, now)

    def record_no_answer(self, send: Send, error: CarrierError, now: datetime) -> None:
        """Record that the carrier did not answer a question, and ask again later."""
        message = send.message
        at = now + outcomes.asked_again_after(message, error, send.terms, now - send.since)
        with db.atomic():
            message.read_again()
            outcome = outcomes.after_no_answer(message, send.terms, now)
            is_moved = outcome and message.settle(outcome, now)
            if not is_moved and not error.account:
                message.note_error(str(error), now)
            doubts.ask_again_at(message.id, self.name, at)
        if is_moved:
            self.note_move(send, outcome.move, outcome.why)

    def record_refused(self, send: Send, error: CarrierError, now: datetime) -> None:
        """Record that the carrier refused a text that it was given again.

        A refusal for good, or for want of a route, shows that it has not taken it. One for now
        shows nothing of what was before: it uses a retry, and the doubt stays.
        """
        self.record_opt_out(send.message, error, now)
        settles, is_moved = error.permanent or error.no_route, False
        copies = doubts.unclear_at(self.name, send.message.id)
        with db.atomic():
            send.message.read_again()
            if settles:
                refused = doubts.rule_out(send.message, self.name, now, Result.REFUSED, str(error))
                message = send.message.settle_doubts(self.name, refused)
            else:
                message = Message.get_or_none(Message.id == send.message.id)
            if copies and message and message.status in WAITING:
                send.message, others = message, bool(self.others(send))
                outcome = outcomes.after_error(
                    message, error, send.terms, send.is_probe, now, others
                )
                tries = min(message.attempts + outcome.counted, message.max_retries + 1)
                lane = message.lane
                if settles:  # the try was counted when its answer was lost, unless by a death
                    tries = message.attempts + any(each.words == DIED for each in copies)
                    lane = str(self.lane_after_error(send, error, outcome))
                is_moved = message.settle(outcome, now, attempts=tries, lane=lane)
                doubts.ask_again_at(message.id, self.name, outcome.send_at or now)
        if is_moved and outcome.status != Status.QUEUED:
            self.note_move(send, outcome.move, outcome.why)

    def record_found(self, send: Send, said: list[str] | str | None, now: datetime) -> None:
        """Record whether the carrier has a text in doubt.

        `said` are the references of all such texts, or that of the one that was given again.
        """
        message = send.message
        copies = doubts.unclear_at(self.name, message.id)
        if not send.again:
            found = [each for each in copies if receipts.found(each, said, now, self.name)]
        elif found := copies[:1]:
            receipts.record_accepted(
                {message.id: said}, now, self.name, {message.id: found[0].claim_number}
            )
        with db.atomic():
            message.read_again()
            ruled_out = doubts.rule_out(message, self.name, now)
            message = message.settle_doubts(self.name, ruled_out)
            if found or message is None or message.status not in WAITING:
                outcome = None
            elif outcome := outcomes.not_taken(message, doubts.deaths(message)):
                message.settle(outcome, now)
        if found:
            self.note_move(send, "sent")
        elif outcome:
            self.note_move(send, outcome.move, outcome.why)

    def note_move(self, send: Send, move: str, reason: str | None = None) -> None:
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


@dataclass
class Reading:
    """A carrier's list of incoming texts since an instant, as far as we have read it."""

    begun_at: datetime
    since: datetime
    until: datetime | None  # later ones are left to their callbacks
    parts: int = 0
    replies: list[IncomingText | OptOut] | None = None  # of the last part, those not recorded yet
    rest: str | None = None  # where the list goes on


class NewsRecorder:
    """Record receipts, replies and late answers from a carrier's session, and missed replies.

    First, have a carrier call back that must be told where to.
    """

    def __init__(self, carrier: Carrier, rules: ReplyRules, watch: CarrierWatch):
        self.carrier, self.rules, self.watch = carrier, rules, watch
        self.unrecorded = []
        self.reading = None
        self.asked = None  # the future of the next part of the list
        self.read_at = 0  # not before this, by the monotonic clock
        self.registering = None  # the future of register()
        self.register_at = 0 if carrier.registers else math.inf

    @property
    def is_waiting(self) -> bool:
        """Whether the carrier is asked for something here."""
        return bool(self.asked or self.registering)

    def register(self) -> None:
        """Have the carrier call back, beside texts; try again a minute after a failure."""
        clock = self.watch.clock
        if clock.monotonic() >= self.register_at and not self.registering:
            with suppress(RuntimeError):  # no thread can be started: the next step tries again
                self.registering = self.watch.sends.submit(self.carrier.register)
        if self.watch.stop.is_requested:
            self.registering = None
        if not (self.registering and self.registering.done()):
            return
        error, self.registering = self.registering.exception(), None
        self.register_at = clock.monotonic() + REGISTERED_AGAIN_AFTER if error else math.inf
        if error:  # the message of a bug may hold a secret
            problem = error if isinstance(error, CarrierError) else type(error).__name__
            self.watch.warn_hourly("is not told where to call back", problem)

    def read_list(self) -> None:
        """Begin to read the list of incoming texts, every few minutes: callbacks may get lost.

        A callback says more than the list, so the latest texts are left to theirs, unless no
        scheduler has run lately. Texts from before a scheduler first ran do not count.
        """
        clock = self.watch.clock
        if self.reading or not self.carrier.lists_incoming or clock.monotonic() < self.read_at:
            return
        state, now = CarrierState.get_or_none(CarrierState.name == self.watch.name), clock.now()
        if state is None or state.heard_until is None:
            CarrierState.prepare(self.watch.name)
            CarrierState.note_heard(self.watch.name, now)
        elif (was_paused := state.was_paused(now)) or state.heard_until <= now - LISTED_EVERY:
            since = max(state.heard_until, now - LONGEST_UNHEARD) - LATE_IN_LIST
            until = None if was_paused else now - CALLED_BACK_WITHIN
            self.reading = Reading(now, since, until)
            self.ask()

    def ask(self) -> None:
        """Ask the carrier for the next part of the list."""
        with suppress(RuntimeError):  # no thread can be started: the next step asks
            reading = self.reading
            self.asked = self.watch.sends.submit(self.carrier.incoming, reading.since, reading.rest)

    def take_missed(self) -> bool:
        """Go on with the list, and record some missed texts; return whether there is more.

        Only the end of the list is noted, so after a failure it is read again.
        """
        if self.watch.stop.is_requested:
            self.reading = self.asked = None
        reading = self.reading
        if reading is None or (self.asked and not self.asked.done()):
            return False
        if self.asked:
            self.take_part()
            return True
        if reading.replies:
            self.record_some()
            return True
        if reading.rest or not reading.parts:
            self.ask()
        else:
            CarrierState.note_heard(self.watch.name, reading.begun_at)
            self.reading = None
        return False

    def take_part(self) -> None:
        """Take a part of the list from the carrier, or give up until later."""
        reading, error, problem = self.reading, self.asked.exception(), None
        if error:  # the message of a bug may hold a number
            problem = error if isinstance(error, CarrierError) else type(error).__name__
        elif reading.parts == MOST_PARTS:
            problem = "there are too many, and the oldest are not read"
        else:
            reading.replies, reading.rest = self.asked.result()
            reading.parts += 1
        self.asked = None
        if problem:
            self.watch.warn_hourly("cannot list incoming texts", problem)
            self.read_at = self.watch.clock.monotonic() + LISTED_AGAIN_AFTER
            self.reading = None

    def record_some(self) -> None:
        """Record some texts of the list, except the latest."""
        replies, until = self.reading.replies, self.reading.until
        for reply in replies[:RECORDED_AT_ONCE]:
            if not (until and reply.at and reply.at > until):
                with passed_over(log, self.not_recorded(reply)):
                    inbound.record([reply], self.watch.clock.now(), self.rules)
        del replies[:RECORDED_AT_ONCE]

    def collect(self) -> bool:
        """Record some of what has come; return whether there was anything.

        Calling `received` acknowledges the last batch, so that is recorded first. Each reply has
        its own transaction, since nothing tells it from another with the same words.
        """
        if not self.unrecorded:
            self.unrecorded = self.carrier.received()
        now = self.watch.clock.now()
        if any(isinstance(event, TooFast) for event in self.unrecorded):
            self.watch.note_too_fast()
        some = self.unrecorded[:RECORDED_AT_ONCE]
        at_once = next(
            (n for n, each in enumerate(some) if isinstance(each, IncomingText)), len(some)
        )

        def record(events):
            inbound.record(events, now, self.rules)

        all_but_broken(record, some[: at_once or 1], log, self.not_recorded)
        del self.unrecorded[: at_once or 1]
        return bool(some)

    def not_recorded(self, event: News) -> str:
        """Describe an event that is not recorded by the carrier's ids, without number and text."""
        ids = getattr(event, "message_ids", None) or [getattr(event, "reference", None)]
        of_which = ", ".join(repr(id)[:MOST_SHOWN] for id in ids if id) or "without an id"
        kind, name = type(event).__name__, self.watch.name
        return f"carrier {name}: {kind} {of_which} is not recorded"
