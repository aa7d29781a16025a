"""One pass over the messages: promote what is due, send what may be sent, print the counts.

Run it from cron, or with --every to repeat it. Any number may run at once.
"""

import argparse
import logging
import math
import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, NoReturn

import carriers
import database
import logs
import models
import outcomes
import receipts
import reports
import settings as environment
from carrier_state import CarrierState, Rate, Turn
from carriers import Carrier, CarrierError, OptOut
from deliveries import Deliveries
from do_not_call import DoNotCall
from events import Event
from keys import ApiKey
from models import Message, Status
from notices import Notices
from outcomes import Outcome, Rules, Step, is_too_late

MOVES = (
    *("promoted", "sent", "retrying", "failed", "blocked", "expired"),
    *("rescheduled", "taken over"),
)
WAITS = ("waiting for approval", "waiting for a carrier")

TICK = 0.2  # seconds, since a signal does not end a sleep
LONGEST_WAIT = 60  # seconds that a pass waits for carriers' pauses and sends nothing
PROMOTE_EVERY = 5  # seconds, in a pass that lasts longer
TESTERS = "testers"  # the name under which the state of their simulator is kept
COLLECT_EVERY = 1  # seconds until a STOP is recorded while sends are under way
RECORDED_AT_ONCE = 100  # receipts in one transaction: each holds one of the database's locks
STOPPED = "the scheduler was stopped before the carrier answered"
SILENCE, LONGEST_LISTENING = 3, 60  # seconds that a single pass listens for; to bind takes a while

log = logging.getLogger("scheduler")


class ClaimLost(Exception):
    """Say that a message was not sent, because another sender may hold it by now."""


class TooLate(Exception):
    """Say that a message was not sent, because it expired between its claim and the call."""


class QuietHours(Exception):
    """Say that a message was not sent, because quiet hours began between its claim and the call."""

    def __init__(self, until: datetime):
        self.until = until


class NotYet(Exception):
    """Say that a message was not sent, because we were told to stop before SEND_RATE let it go."""


class Send(NamedTuple):
    """A message that a thread asks the carrier about, or gives it."""

    message: Message
    begun_at: datetime
    asking: bool
    tried: bool  # it goes first after a pause


class Scheduler:
    """Make passes until `stopping` is set, which lets it begin no new send.

    It then waits for the carrier no longer than SHUTDOWN_TIMEOUT, or the host would kill it.
    What testers send goes to a simulator, by a scheduler of its own beside the sends of a pass.
    """

    def __init__(
        self, settings: environment.Settings, carrier: Carrier | None, for_testers: bool = False
    ):
        self.settings = settings
        self.carrier = carrier
        self.carrier_name = carrier.name if carrier else ""
        self.for_testers, self.testers = for_testers, None
        self.testing = None  # the future of what the testers' scheduler does
        if for_testers:
            self.carrier_name = TESTERS
        else:
            self.testers = Scheduler(settings, carriers.connect("simulator:"), for_testers=True)
        limited = settings.send_rate and not for_testers
        self.rate = Rate(settings.send_rate) if limited else None
        self.served_key = None  # it had the last turn
        self.key_names = {}  # by id, for the log
        self.rules = Rules.of(settings, bool(carrier and carrier.can_be_asked))
        self.claimant = uuid.uuid4()
        self.stop_by = math.inf  # once it is told to stop, by the monotonic clock
        self.stopping = False
        self.uncollected = []  # receipts, opt-outs and late answers
        self.counts = Counter()  # of the present pass
        self.left = 0  # messages that it may still claim
        self.state = None  # of the carrier, as read last
        self.under_way = {}  # by the future of its thread, each Send
        self.ended = SimpleQueue()  # the futures of those whose thread has ended
        self.unrecorded = []  # each Send that has ended, with its future

    @property
    def stopping(self) -> bool:
        return self._stopping

    @stopping.setter
    def stopping(self, stopping: bool) -> None:
        self._stopping = stopping
        if not stopping:
            self.stop_by = math.inf
        elif self.stop_by == math.inf:  # a second signal gives no more time
            self.stop_by = time.monotonic() + self.settings.shutdown_timeout
        if self.testers:
            self.testers.stopping = stopping

    @property
    def is_late(self) -> bool:
        """Whether it was told to stop so long ago that it waits for nobody any more."""
        return time.monotonic() >= self.stop_by

    def run_pass(self) -> Counter:
        """Do all that can be done now; return how often each thing happened, and what waits."""
        now, self.counts = models.clock(), Counter()
        state = CarrierState.passed(self.carrier_name, now, self.settings.claim_timeout)
        self.counts["taken over"] = self.take_over(state, now)
        scheduled_before = now - self.settings.expire_after
        self.promote()
        self.counts["expired"] += Message.expire(now, scheduled_before)
        receipts.forget(now)
        Event.give_up(now)
        Event.forget(now)
        self.serve_testers()
        if self.carrier:
            self.collect()
            self.send_queued()
            self.collect()
            self.tell_unmatched(now)
        self.await_testers()
        self.counts["waiting for approval"] = reports.awaiting_approval()
        self.counts["waiting for a carrier"] = reports.awaiting_carrier()
        database.db.close()
        return self.counts

    def take_over(self, state: CarrierState, now: datetime) -> int:
        """Queue the messages of dead senders, once the living have had the time to renew theirs."""
        dead = now - timedelta(seconds=self.settings.claim_timeout)
        if not reports.claimed_before(dead):
            return 0
        if state.settled_at and state.settled_at > now:
            database.db.close()
            self.sleep((state.settled_at - now).total_seconds())
        return Message.take_over(dead)

    def promote(self) -> int:
        """Queue what is due; return how many messages were queued."""
        now = models.clock()
        scheduled_before = now - self.settings.expire_after
        promoted = Message.promote(now, scheduled_before, self.settings.check_dnc)
        self.counts["promoted"] += promoted[Status.QUEUED]
        self.counts["blocked"] += promoted[Status.BLOCKED]
        self.counts["expired"] += promoted[Status.EXPIRED]
        return promoted[Status.QUEUED]

    # Testers

    def serve_testers(self) -> None:
        """Begin to send what testers have queued, unless that is under way."""
        if self.testing and self.testing.done():
            self.await_testers()
        if not self.testing and reports.awaiting_carrier(testers=True):
            self.testing = beside(self.testers.serve)

    def await_testers(self) -> None:
        """Wait until what testers had queued is sent, and count it."""
        if self.testing:
            testing, self.testing = self.testing, None
            self.counts += testing.result()

    def serve(self) -> Counter:
        """Send what is queued, and nothing else of a pass."""
        self.counts = Counter()
        try:
            CarrierState.prepare(self.carrier_name)
            self.send_queued()
        finally:
            database.db.close()
        return self.counts

    # Sending

    def send_queued(self) -> None:
        """Send until nothing may be sent, the carrier pauses for long, or we are stopping.

        Each turn: 1. record what came back, 2. renew claims, 3. claim as many as may be sent, and
        judge them, 4. put back those for which SEND_RATE is used up, 5. begin to send, 6. wait for
        an answer; where we are stopping, no longer than SHUTDOWN_TIMEOUT.

        The threads talk to the carrier and do nothing else. What they bring back is recorded
        before more is claimed, so a scheduler that dies leaves no more messages in doubt than it
        had sends under way.
        """
        # Or a pass might never end while messages arrive
        self.left = reports.awaiting_carrier(self.for_testers)
        if self.served_key is None:
            self.served_key = CarrierState.get_by_id(self.carrier_name).served_key or 0
        before = self.served_key
        sent = self.counts["sent"]
        patience = self.settings.claim_timeout / 4
        longest_wait = 0 if self.for_testers else LONGEST_WAIT  # or the others' pass would wait
        renew_at, wait_until = time.monotonic() + patience, time.monotonic() + longest_wait
        promote_at = time.monotonic() + PROMOTE_EVERY
        pool = ThreadPoolExecutor(self.settings.send_concurrency)
        try:
            while True:
                again = self.record()
                renewing = time.monotonic() >= renew_at
                if renewing:
                    renew_at = time.monotonic() + patience
                if self.testers and time.monotonic() >= promote_at and not self.stopping:
                    promote_at = time.monotonic() + PROMOTE_EVERY
                    self.left += self.insist(self.promote)
                    self.insist(self.serve_testers)
                turn, pause = self.insist(self.turn)
                room = self.room(turn, len(again))
                claimed, ready = self.insist(self.claim, min(self.left, room), again, renewing)
                self.left -= len(claimed)
                ready = self.insist(self.within_rate, ready)
                for message in ready:
                    self.begin(pool, message, tried=turn is Turn.FIRST)
                if turn is Turn.FIRST and not ready:
                    self.insist(CarrierState.give_up_turn, self.carrier_name)
                if self.counts["sent"] > sent:
                    sent, wait_until = self.counts["sent"], time.monotonic() + longest_wait
                waits = bool(self.left and pause) and time.monotonic() + pause <= wait_until
                if not (self.under_way or claimed or waits):
                    break
                # Or a signal to stop would not be noticed
                soon = min(patience, COLLECT_EVERY, max(0, self.stop_by - time.monotonic()))
                if not self.under_way:
                    soon = min(soon, TICK, pause)
                elif self.rate and self.left and pause:
                    soon = min(soon, pause)
                self.unrecorded = [
                    (self.under_way.pop(future), future) for future in gather(self.ended, soon)
                ]
                if self.is_late:
                    self.abandon()
                self.insist(self.collect)
        finally:
            pool.shutdown(wait=not self.is_late)
        if self.served_key != before:
            CarrierState.served(self.carrier_name, self.served_key)

    def turn(self) -> tuple[Turn, float]:
        """Return who may send now, and the seconds until that may be different.

        After an outage the carrier is asked first whether it serves, without a text that could be
        left in doubt.
        """
        now = models.clock()
        self.state = state = CarrierState.get_by_id(self.carrier_name)
        if self.stopping:
            return Turn.NOBODY, 0
        if self.rate and (pause := self.rate.wait(state.rate_used_until, now)):
            return Turn.NOBODY, pause
        turn = (
            Turn.NOBODY
            if self.under_way and state.retry_at
            else state.turn(now, self.settings.claim_timeout)
        )
        if turn is not Turn.FIRST or not state.trouble:
            left = (state.retry_at - now).total_seconds() if state.retry_at else 0
            # Another's text goes first: its answer may come at any time
            pause = 0 if state.trouble or turn is Turn.ALL else max(left, TICK)
            return turn, pause
        return (turn if self.serves() else Turn.NOBODY), 0

    def serves(self) -> bool:
        """Ask the carrier, without sending, whether it takes texts again; True if it cannot say."""
        begun_at = models.clock()
        asked = beside(self.carrier.check)
        while not (asked.done() or self.is_late):
            wait([asked], TICK)
        if not asked.done():
            CarrierState.give_up_turn(self.carrier_name)
            return False
        try:
            asked.result()
        except NotImplementedError:
            return True
        except CarrierError as error:
            self.note_carrier(error, begun_at)
            CarrierState.give_up_turn(self.carrier_name)
            return False
        return True

    def room(self, turn: Turn, again: int) -> int:
        """Return how many more texts may be claimed."""
        if turn is Turn.ALL:
            room = max(0, self.settings.send_concurrency - len(self.under_way) - again)
            return min(room, self.rate.most()) if self.rate else room
        return int(turn is Turn.FIRST and not again)

    def begin(self, pool: ThreadPoolExecutor, message: Message, tried: bool) -> None:
        """Have a thread ask the carrier about a message in doubt, or give it the text."""
        asking = self.is_asked_about(message)
        send = Send(message, models.clock(), asking, tried)
        if asking:
            doubtful = message.to, message.message, message.in_doubt_since
            future = pool.submit(self.carrier.find, *doubtful)
        else:
            future = pool.submit(self.send, message)
        self.under_way[future] = send
        future.add_done_callback(self.ended.put)

    def abandon(self) -> None:
        """Take sends under way for unanswered: the carrier may have taken the texts."""
        unanswered = Future()
        unanswered.set_exception(CarrierError(STOPPED, in_doubt=True))
        self.unrecorded += [(send, unanswered) for send in self.under_way.values()]
        self.under_way.clear()

    def is_asked_about(self, message: Message) -> bool:
        """Say whether the carrier is asked about a message, and not given it."""
        return bool(message.in_doubt) and self.rules.askable

    def within_rate(self, ready: list[Message]) -> list[Message]:
        """Return what SEND_RATE lets go now; put the rest back into its place in the queue."""
        texts = [message for message in ready if not self.is_asked_about(message)]
        if not (self.rate and texts):
            return ready
        used_until = self.state.rate_used_until
        parts = [message.count_parts() for message in texts]
        going, until, delay = self.rate.take(used_until, parts, models.clock())
        if going and not CarrierState.use_rate(self.carrier_name, used_until, until):
            going = 0  # another scheduler was faster
        if waiting := texts[going:]:
            Message.put_back(self.claimant, waiting)
            self.left += len(waiting)
            self.served_key = waiting[0].key_id - 1  # its turn comes first
        if delay and going:
            texts[0].not_before = time.monotonic() + delay
        return [message for message in ready if message not in waiting]

    def send(self, message: Message) -> str | None:
        """Give the carrier a text and return its reference, unless it may not go any more.

        This process, or the database, may have stood still since the message was claimed.
        """
        while (early := message.not_before - time.monotonic()) > 0:
            if self.stopping:
                raise NotYet
            time.sleep(min(TICK, early))
        now = models.clock()
        if time.monotonic() > message.held_until:
            raise ClaimLost
        if is_too_late(message, self.rules, now):
            raise TooLate
        if until := outcomes.quiet_until(message, self.rules, now):
            raise QuietHours(until)
        left = message.scheduled_first_at + self.rules.expire_after - now
        return self.carrier.send(
            message.to,
            message.message,
            message_id=str(message.id),
            valid_for=max(1, round(left.total_seconds())),
        )

    def insist(self, action: Callable, *arguments: Any) -> Any:
        """Call something that needs the database; while it is away, again; return the result.

        While messages are in hand, wait for a database that is away: giving up would send them
        twice. Once told to stop, wait no longer than SHUTDOWN_TIMEOUT.
        """
        while True:
            try:
                return action(*arguments)
            except database.ERRORS as error:
                if not database.is_outage(error):
                    raise
                database.disconnect()
                in_hand = self.under_way or self.unrecorded
                if not in_hand or self.is_late:
                    raise
                log.error("the database failed, trying again: %s", database.reason(error))
                time.sleep(1)

    def claim(
        self, free: int, again: list[Message], renewing: bool
    ) -> tuple[list[Message], list[Message]]:
        """Renew our claims and take more messages; return these, and those to be sent now.

        Among the latter are those that are sent `again`, as far as they still may be.
        """
        now, held_until = models.clock(), time.monotonic() + self.settings.claim_timeout / 2
        held = [send.message for send in self.under_way.values()] if renewing else []
        with database.db.atomic():
            renewed = Message.renew(self.claimant, held, now)
            claimed = Message.claim(self.claimant, free, now, self.served_key, self.for_testers)
            if unknown := {message.key_id for message in claimed} - self.key_names.keys():
                self.key_names |= ApiKey.names(unknown)
            ready, moves = self.judge([*again, *claimed], now)
        for message in (*claimed, *(each for each in held if each.id in renewed)):
            message.held_until = held_until
        for message in claimed:
            message.not_before = 0
            self.served_key = message.key_id
        for message, outcome in moves:
            self.note(message, outcome.move, outcome.reason)
        return claimed, ready

    def judge(
        self, claimed: list[Message], now: datetime
    ) -> tuple[list[Message], list[tuple[Message, Outcome]]]:
        """Hold back what may not be sent after all; return the rest, and what became of the others.

        A message that cannot be judged is set aside, so that it does not hold up its neighbours.
        """
        ready, moves = [], []
        always = self.settings.check_dnc
        listed = DoNotCall.listed({m.to for m in claimed if always or m.check_dnc})
        for message in claimed:
            if message.in_doubt and message.id in receipts.look_again(message.to):
                moves.append((message, Outcome(Status.SENT)))
                continue
            try:
                step = outcomes.judge(message, self.rules, message.to in listed, now)
            except Exception as error:
                kind = type(error).__name__  # its words may hold the number
                words = "message %s cannot be judged: %s"
                log.error(words, message.id, kind, extra=self.about(message))
                step = outcomes.cannot_be_judged(message, error, self.rules, now)
            if isinstance(step, Step):
                ready.append(message)
            elif message.apply(step, now):
                moves.append((message, step))
        return ready, moves

    # What the carrier answers

    def record(self) -> list[Message]:
        """Write down what became of sends; return those that a carrier, asked, does not have.

        Each step waits for a database that is away by itself, so that none happens twice.
        """
        now, again = models.clock(), []
        ended = [(send, future.exception(), future) for send, future in self.unrecorded]
        yes = {s.message.id: f.result() for s, error, f in ended if not (error or s.asking)}
        self.insist(receipts.sent, yes, now)
        for send, error, future in ended:
            if error:
                self.insist(self.record_no, send, error, now)
            elif not send.asking:
                self.note(send.message, "sent")
            elif self.insist(self.record_found, send, future.result(), now):
                again.append(send.message)
        self.insist(self.note_answers, ended)
        self.unrecorded = []
        while self.stopping and again:  # the carrier is asked about them once more
            self.insist(again.pop().apply, Outcome(Status.QUEUED, send_at=now), now)
        return again

    def record_found(self, send: Send, references: list[str], now: datetime) -> bool:
        """Record what the carrier said of a text in doubt; say whether to judge it again.

        Where an equal text is being sent, a reference may be that one's: the carrier is asked again
        later.
        """
        message = send.message
        others = [each.message for each, _ in self.unrecorded]
        others += [each.message for each in self.under_way.values() if each.asking]
        if references and Message.with_twins([message], others):
            outcome = outcomes.equal_text_under_way(now)
        elif receipts.found(message.id, references, now):
            self.note(message, "sent")
            return False
        elif not (outcome := outcomes.not_taken(message)):
            return message.settle_doubt()
        if message.apply(outcome, now):
            self.note(message, outcome.move, outcome.reason)
        return False

    def record_no(self, send: Send, error: BaseException, now: datetime) -> None:
        """Record what becomes of a text that the carrier did not say yes to."""
        message = send.message
        if isinstance(error, NotYet):
            Message.put_back(self.claimant, [message])
            return
        if isinstance(error, ClaimLost):
            outcome = Outcome(Status.QUEUED, send_at=now)  # if it is still ours
        elif isinstance(error, TooLate):
            outcome = Outcome(Status.EXPIRED)
        elif isinstance(error, QuietHours):
            outcome = Outcome(Status.SCHEDULED, send_at=error.until)
        else:
            error = self.known(error, message)
            self.left += error.too_fast  # it goes when the pause ends
            if error.opted_out:
                said = OptOut(message.to, stop=True, source="carrier")
                self.counts["blocked"] += receipts.record_opt_out(said, now, self.rules.check_dnc)
            if send.asking:
                outcome = outcomes.after_asking_in_vain(message, error, self.rules, now)
            else:
                outcome = outcomes.after_no(message, error, self.rules, send.tried, now)
        if message.apply(outcome, now) and outcome.status != Status.QUEUED:
            self.note(message, outcome.move, outcome.reason)
        if outcome.doubt:
            receipts.look_again(message.to)

    def known(self, error: BaseException, message: Message) -> CarrierError:
        """Return an error of a carrier; one of ours leaves the text in doubt."""
        if isinstance(error, CarrierError):
            return error
        kind, words = type(error).__name__, "unexpected %s while sending message %s"
        log.error(words, kind, message.id, extra=self.about(message))
        return CarrierError(f"unexpected {kind}", in_doubt=True)

    def note_answers(self, ended: list[tuple[Send, BaseException | None, Future]]) -> None:
        """Let all schedulers know what these answers tell of the carrier itself."""
        untried = ClaimLost | NotYet | QuietHours | TooLate
        answers = [(s, error) for s, error, _ in ended if not isinstance(error, untried)]
        for send, error in answers:
            if isinstance(error, CarrierError):
                self.note_carrier(error, send.begun_at)
        if any(send.tried for send, _, _ in ended):  # whatever it told, the next may go first
            CarrierState.give_up_turn(self.carrier_name)
        own = [s.begun_at for s, error in answers if not error or _is_own_answer(error)]
        if not own or not (self.state.silences or self.state.retry_at):  # as read a turn ago
            return
        if CarrierState.answered(self.carrier_name, max(own)):
            log.info("carrier %s takes texts again", self.carrier_name)

    def note_carrier(self, error: CarrierError, begun_at: datetime) -> None:
        """Begin a pause, where an error is about the account, the speed or the carrier itself."""
        name, now = self.carrier_name, models.clock()
        if error.account:
            pause = {"trouble": str(error)}
        elif error.too_fast:
            pause = {"asked_for": error.retry_after}
        elif error.unreached or (error.silent and CarrierState.silent(name)):
            pause = {"trouble": str(error), "is_down": True}
        else:
            return
        if not CarrierState.begin_pause(name, begun_at, now, **pause):
            return
        if error.account:
            words = "carrier %s refuses the account, nothing is sent until that is mended: %s"
            log.error(words, name, error)
        elif error.too_fast:
            log.warning("carrier %s says too fast: all schedulers pause", name)
        else:
            log.error("carrier %s is down, and is tried one text at a time: %s", name, error)

    def note(self, message: Message, move: str, reason: str | None = None) -> None:
        """Count what happened to a message, and leave a line in the log."""
        self.counts[move] += 1
        level = logging.WARNING if move in ("retrying", "failed", "expired") else logging.INFO
        why = f": {reason}" if reason else ""
        log.log(level, "message %s %s%s", message.id, move, why, extra=self.about(message))

    def about(self, message: Message) -> dict:
        """Return the fields of a line about a message that was claimed."""
        return {"message_id": str(message.id), "key": self.key_names.get(message.key_id)}

    # What carriers and recipients say later

    def collect(self) -> bool:
        """Record what came over the carrier's session; return whether anything did.

        Calling `received` acknowledges the previous batch, so record it first.
        """
        if not self.uncollected:
            self.uncollected = self.carrier.received()
        heard, now = bool(self.uncollected), models.clock()
        while self.uncollected:
            receipts.record(self.uncollected[:RECORDED_AT_ONCE], now, self.settings.check_dnc)
            del self.uncollected[:RECORDED_AT_ONCE]
        return heard

    def tell_unmatched(self, now: datetime) -> None:
        """Warn, once an hour over all schedulers, of receipts that match no message."""
        unmatched = receipts.unmatched(now - timedelta(hours=1), now)
        if unmatched and CarrierState.may_tell_unmatched(self.carrier_name, now):
            log.warning("receipts of the last hour that match no message: %s", unmatched)

    def listen(self, seconds: float | None) -> None:
        """Hear for so many seconds; after a single pass, while the carrier has much to say."""
        if not (self.carrier and self.carrier.listens):
            self.sleep(seconds or 0)
            return
        longest, silence = (seconds, seconds) if seconds else (LONGEST_LISTENING, SILENCE)
        now = time.monotonic()
        end, quiet_at = now + longest, now + silence
        while not self.stopping and time.monotonic() < min(end, quiet_at):
            if self.collect():
                database.db.close()
                quiet_at = time.monotonic() + silence
            time.sleep(min(TICK, silence))

    def sleep(self, seconds: float) -> None:
        """Do nothing for so many seconds, or until we are told to stop."""
        wake_at = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < wake_at:
            time.sleep(min(TICK, seconds))

    def close(self) -> None:
        """Close the carrier; record what it said before and meanwhile.

        Where the database fails at first, do not: what was not acknowledged comes again. A carrier
        that still owes answers when time is up is left as it is.
        """
        if self.carrier:
            self.collect()
            if not self.is_late:
                self.carrier.close()
                self.collect()


def beside(action: Callable) -> Future:
    """Call something in a thread of its own."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(action)
    pool.shutdown(wait=False)
    return future


def gather(ended: SimpleQueue, seconds: float) -> list[Future]:
    """Return the sends that have ended; wait so many seconds where none has."""
    try:
        done = [ended.get(timeout=seconds)]
    except Empty:
        return []
    while not ended.empty():
        done.append(ended.get())
    return done


def _is_own_answer(error):
    """Say whether a no is the carrier's own, and neither about speed nor about the account."""
    return isinstance(error, CarrierError) and not (
        error.silent or error.too_fast or error.account or error.in_doubt
    )


def line(counts: Counter) -> str:
    """Write the counts of a pass in one line."""
    return ", ".join(f"{counts[name]} {name}" for name in (*MOVES, *WAITS))


def main() -> int:
    """Run one pass, or one every so often until SIGTERM or SIGINT; return the exit status."""
    parser = argparse.ArgumentParser(description="Promote due messages and send queued ones.")
    parser.add_argument(
        "--every", type=seconds, metavar="SECONDS", help="repeat until SIGTERM or SIGINT"
    )
    lines = parser.add_mutually_exclusive_group()
    lines.add_argument("--quiet", action="store_true", help="only warnings and errors, for cron")
    lines.add_argument("--verbose", action="store_true", help="log like LOG_LEVEL=DEBUG")
    options = parser.parse_args()
    every = options.every
    settings = environment.load_or_exit()
    level = "DEBUG" if options.verbose else settings.log_level
    if options.quiet and level in ("DEBUG", "INFO"):
        level = "WARNING"
    logs.start(level, settings.log_format)
    environment.warn_of_misspelt()
    carrier = None
    try:
        if url := settings.carrier_url:
            limits = settings.send_concurrency, settings.carrier_timeout
            carrier = carriers.connect(url, *limits, settings.public_url)
    except ValueError as problem:
        environment.exit_with(f"CARRIER_URL: {problem}")
    try:
        notices = Notices(settings)
    except ValueError as problem:
        environment.exit_with(f"NOTIFY_URL: {problem}")
    if every or options.verbose:  # a single pass prints its counts, and no more if all is well
        introduce(carrier)
    show = log.info if settings.log_format == "JSON" else show_counts
    database.connect(settings.database_url)
    scheduler = Scheduler(settings, carrier)
    deliveries = Deliveries(settings.claim_timeout, once=every is None)
    deliveries.start()
    notices.start()

    def stop(signum, frame):
        scheduler.stopping = True
        deliveries.stop(settings.shutdown_timeout)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    shown = None
    while True:
        status = 0
        try:
            counts = line(scheduler.run_pass())
            if counts != shown and not options.quiet:
                show(counts)
                shown = counts
            scheduler.listen(every)
        except database.ERRORS as error:
            database.disconnect()
            log.error("the pass failed: the database: %s", database.reason(error))
            status = 1
            scheduler.sleep(every or 0)
        if every is None or scheduler.stopping:
            try:
                scheduler.close()
            except database.ERRORS as error:
                log.error("receipts are lost: the database: %s", database.reason(error))
                status = 1
            deliveries.finish()
            notices.finish(not scheduler.stopping, scheduler.stop_by)
            return status if every is None else 0


def end(status: int) -> NoReturn:
    """End the process, and do not wait for threads: a carrier may keep them for a minute."""
    with suppress(OSError):  # nobody may be able to read it
        print(end="", flush=True)
    os._exit(status)


def show_counts(counts: str) -> None:
    """Print the counts of a pass; where nobody can read them, say so and go on."""
    try:
        print(counts, flush=True)
    except OSError as error:
        log.error("the counts cannot be printed: %s", error.strerror)


def introduce(carrier: Carrier | None) -> None:
    """Say where texts go, or that they go nowhere."""
    if carrier is None:
        log.warning("CARRIER_URL is not set: messages are promoted and wait")
        return
    log.info("texts go to %s", carrier.name)
    if carrier.warning:
        log.warning(carrier.warning)


def seconds(text: str) -> float:
    """Read the argument of --every."""
    value = float(text)
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError("must be more than 0 and at most 86400")
    return value


if __name__ == "__main__":
    end(main())
