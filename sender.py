"""Sending through one carrier: claim, judge, send, record answers and receipts.

The threads of a pool talk to the carrier and do nothing else. The thread that calls `send_queued`
uses the database. It records answers before it claims more: a scheduler that dies leaves no more
messages in doubt than it had sends under way.
"""

import logging
import math
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import datetime
from queue import Empty, Queue
from typing import Any, NamedTuple

import database
import models
import outcomes
import receipts
import reports
from carrier_state import CarrierState, Rate, Turn
from carriers import Carrier, CarrierError, OptOut
from do_not_call import DoNotCall
from keys import ApiKey
from models import Message, Status
from outcomes import Outcome, Rules, Step
from settings import Settings

TICK = 0.2  # seconds, since a signal does not end a sleep
LONGEST_WAIT = 60  # seconds that a pass waits for the carrier's pauses and sends nothing
TESTERS = "testers"  # the name under which the state of their simulator is kept
COLLECT_EVERY = 1  # seconds until a STOP is recorded while sends are under way
RECORDED_AT_ONCE = 100  # receipts in one transaction: each holds one of the database's locks
STOPPED = "the scheduler was stopped before the carrier answered"

log = logging.getLogger("scheduler")


class Stop:
    """The order to stop: no send begins after it, and those under way get `timeout` seconds.

    The host would kill a process that waits longer.
    """

    def __init__(self, timeout: float):
        self.timeout = timeout
        self.by = math.inf  # when to end at last, by the monotonic clock

    def tell(self) -> None:
        self.by = min(self.by, time.monotonic() + self.timeout)  # a second signal gives no more

    @property
    def is_told(self) -> bool:
        return self.by < math.inf

    @property
    def seconds_left(self) -> float:
        return max(0, self.by - time.monotonic())

    def sleep(self, seconds: float) -> None:
        """Do nothing for so many seconds, or until we are told to stop."""
        wake_at = time.monotonic() + seconds
        while not self.is_told and (left := wake_at - time.monotonic()) > 0:
            time.sleep(min(TICK, left))


class NotSent(Exception):
    """Say that the carrier was not given a text; without an outcome, it keeps its place."""

    def __init__(self, outcome: Outcome | None = None):
        self.outcome = outcome


class Send(NamedTuple):
    """A message that a thread asks the carrier about, or gives it."""

    message: Message
    begun_at: datetime
    asking: bool
    tried: bool  # it goes first after a pause


class Answer(NamedTuple):
    """The end of a send: why there was no yes, or what the carrier returned."""

    send: Send
    error: CarrierError | NotSent | None
    said: Any = None  # a reference, or all that were found


class Sender:
    """Send queued messages through a carrier, or those of testers through their simulator."""

    def __init__(self, settings: Settings, carrier: Carrier, stop: Stop, for_testers: bool = False):
        self.settings, self.carrier, self.stop = settings, carrier, stop
        self.for_testers = for_testers
        self.name = TESTERS if for_testers else carrier.name
        limited = settings.send_rate and not for_testers
        self.rate = Rate(settings.send_rate) if limited else None
        self.rules = Rules.of(settings, carrier.can_be_asked)
        self.patience = settings.claim_timeout / 4  # seconds until claims are renewed
        self.longest_wait = 0 if for_testers else LONGEST_WAIT  # the pass waits for testers
        self.claimant = uuid.uuid4()
        self.served_key = None  # it had the last turn
        self.key_names = {}  # by id, for the log
        self.uncollected = []  # receipts, opt-outs and late answers
        self.counts = Counter()  # of the present pass
        self.left = 0  # messages that it may still claim
        self.renew_at = self.wait_until = 0  # by the monotonic clock
        self.state = None  # of the carrier, as read last
        self.under_way = {}  # by the future of its thread, each Send
        self.ended = Queue()  # the futures of those whose thread has ended
        self.unrecorded = []  # their Answers

    def send_queued(self, meanwhile: Callable[[], int] = int) -> Counter:
        """Send until nothing may be sent, the carrier pauses for long, or we are told to stop.

        Return how often each thing happened. Each turn: 1. record answers, 2. call `meanwhile`,
        which returns how many messages it has queued, 3. renew claims, 4. claim as many as may be
        sent, and judge them, 5. put back those for which SEND_RATE is used up, 6. begin to send,
        7. wait for an answer.
        """
        self.counts = Counter()
        # Or a pass might never end while messages arrive
        self.left = reports.awaiting_carrier(self.for_testers)
        if self.served_key is None:
            self.served_key = CarrierState.get_by_id(self.name).served_key or 0
        before = self.served_key
        self.renew_at = time.monotonic() + self.patience
        self.wait_until = time.monotonic() + self.longest_wait
        pool = ThreadPoolExecutor(self.settings.send_concurrency)
        try:
            while (pause := self.begin_sends(pool, meanwhile)) is not None:
                self.await_answers(pause)
        finally:
            pool.shutdown(wait=self.stop.seconds_left > 0)
        if self.served_key != before:
            CarrierState.served(self.name, self.served_key)
        return self.counts

    def begin_sends(self, pool: ThreadPoolExecutor, meanwhile: Callable[[], int]) -> float | None:
        """Begin what may be sent now; return the seconds until more may go, None at the end."""
        again = self.record()
        self.left += meanwhile()
        turn, pause = self.insist(self.turn)
        claimed, ready = self.insist(self.claim, self.room(turn, len(again)), again)
        ready = self.insist(self.within_rate, ready)
        for message in ready:
            self.begin(pool, message, tried=turn is Turn.FIRST)
        if turn is Turn.FIRST and not ready:
            self.insist(CarrierState.give_up_turn, self.name)
        waits = self.left and pause and time.monotonic() + pause <= self.wait_until
        return pause if self.under_way or claimed or waits else None

    def await_answers(self, pause: float) -> None:
        """Wait for an answer, but no longer than until there is something else to do."""
        soon = min(self.patience, COLLECT_EVERY, self.stop.seconds_left)
        if not self.under_way:
            soon = min(soon, TICK, pause)
        elif self.rate and self.left and pause:
            soon = min(soon, pause)
        ended = gather(self.ended, soon)
        self.unrecorded = [self.answer(self.under_way.pop(future), future) for future in ended]
        if not self.stop.seconds_left:  # the carrier may have taken those without an answer
            lost = CarrierError(STOPPED, in_doubt=True)
            self.unrecorded += [Answer(send, lost) for send in self.under_way.values()]
            self.under_way.clear()
        self.insist(self.collect)

    def insist(self, action: Callable, *arguments: Any) -> Any:
        """Call something that needs the database; while it is away, again; return the result.

        With messages in hand we wait for the database, because giving up would send them twice. We
        wait no longer than SHUTDOWN_TIMEOUT once we are told to stop.
        """
        while True:
            try:
                return action(*arguments)
            except database.ERRORS as error:
                if not database.is_outage(error):
                    raise
                database.disconnect()
                in_hand = self.under_way or self.unrecorded
                if not in_hand or not self.stop.seconds_left:
                    raise
                log.error("the database failed, trying again: %s", database.reason(error))
                time.sleep(1)

    # Which may go

    def turn(self) -> tuple[Turn, float]:
        """Return who may send now, and the seconds until that may change.

        After an outage the carrier is asked first whether it serves, without a text that could be
        left in doubt.
        """
        now = models.clock()
        self.state = state = CarrierState.get_by_id(self.name)
        if self.stop.is_told:
            return Turn.NOBODY, 0
        if self.rate and (pause := self.rate.wait(state.rate_used_until, now)):
            return Turn.NOBODY, pause
        if self.under_way and state.retry_at:
            turn = Turn.NOBODY
        else:
            turn = state.turn(now, self.settings.claim_timeout)
        if turn is Turn.FIRST and state.trouble:
            return (turn if self.serves() else Turn.NOBODY), 0
        left = (state.retry_at - now).total_seconds() if state.retry_at else 0
        # Another's text goes first: its answer may come at any time
        return turn, 0 if state.trouble or turn is Turn.ALL else max(left, TICK)

    def serves(self) -> bool:
        """Ask the carrier, without sending, whether it takes texts again; True if it cannot say."""
        begun_at = models.clock()
        asked = beside(self.carrier.check)
        while not asked.done() and self.stop.seconds_left:
            wait([asked], TICK)
        try:
            if asked.done():
                asked.result()
                return True
        except NotImplementedError:
            return True
        except CarrierError as error:
            self.note_carrier(error, begun_at)
        CarrierState.give_up_turn(self.name)
        return False

    def room(self, turn: Turn, again: int) -> int:
        """Return how many more texts may be claimed."""
        if turn is Turn.ALL:
            room = max(0, self.settings.send_concurrency - len(self.under_way) - again)
            room = min(room, self.rate.most()) if self.rate else room
        else:
            room = int(turn is Turn.FIRST and not again)
        return min(self.left, room)

    def claim(self, room: int, again: list[Message]) -> tuple[list[Message], list[Message]]:
        """Renew our claims and take more messages; return these, and all that may be sent now.

        The messages in `again` are judged once more: they may be sent, too.
        """
        now, monotonic = models.clock(), time.monotonic()
        renewing = monotonic >= self.renew_at
        held = [send.message for send in self.under_way.values()] if renewing else []
        with database.db.atomic():
            renewed = Message.renew(self.claimant, held, now)
            claimed = Message.claim(self.claimant, room, now, self.served_key, self.for_testers)
            if unknown := {message.key_id for message in claimed} - self.key_names.keys():
                self.key_names |= ApiKey.names(unknown)
            ready, moves = self.judge([*again, *claimed], now)
        if renewing:
            self.renew_at = monotonic + self.patience
        self.left -= len(claimed)
        for message in (*claimed, *(each for each in held if each.id in renewed)):
            message.held_until = monotonic + self.settings.claim_timeout / 2
        for message in claimed:
            message.not_before = 0
            self.served_key = message.key_id
        for message, outcome in moves:
            self.note(message, outcome.move, outcome.reason)
        return claimed, ready

    def judge(
        self, claimed: list[Message], now: datetime
    ) -> tuple[list[Message], list[tuple[Message, Outcome]]]:
        """Return the messages that may be sent, and the others with what became of them.

        A message that cannot be judged is set aside: it must not hold up its neighbours.
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

    def within_rate(self, ready: list[Message]) -> list[Message]:
        """Return the messages that SEND_RATE lets go now; put the rest back into their places."""
        texts = [message for message in ready if not outcomes.must_ask(message, self.rules)]
        if not (self.rate and texts):
            return ready
        used_until = self.state.rate_used_until
        parts = [message.parts or 1 for message in texts]
        going, until, delay = self.rate.take(used_until, parts, models.clock())
        if going and not CarrierState.use_rate(self.name, used_until, until):
            going = 0  # another scheduler was faster
        if waiting := texts[going:]:
            Message.put_back(self.claimant, waiting)
            self.left += len(waiting)
            self.served_key = waiting[0].key_id - 1  # its turn comes first
        if delay and going:
            texts[0].not_before = time.monotonic() + delay
        return [message for message in ready if message not in waiting]

    # In threads

    def begin(self, pool: ThreadPoolExecutor, message: Message, tried: bool) -> None:
        """Have a thread ask the carrier about a message in doubt, or give it the text."""
        asking = outcomes.must_ask(message, self.rules)
        send = Send(message, models.clock(), asking, tried)
        if asking:
            doubtful = message.to, message.message, message.in_doubt_since
            future = pool.submit(self.carrier.find, *doubtful)
        else:
            future = pool.submit(self.send, message)
        self.under_way[future] = send
        future.add_done_callback(self.ended.put)

    def send(self, message: Message) -> str | None:
        """Give the carrier a text and return its reference; raise NotSent if it may not go.

        This process, or the database, may have stood still since the message was claimed.
        """
        if (early := message.not_before - time.monotonic()) > 0:
            self.stop.sleep(early)
            if self.stop.is_told:
                raise NotSent
        now = models.clock()
        if time.monotonic() > message.held_until:  # another sender may have it
            raise NotSent(Outcome(Status.QUEUED, send_at=now))
        if outcome := outcomes.judge_again(message, self.rules, now):
            raise NotSent(outcome)
        left = message.first_send_at + self.rules.expire_after - now
        return self.carrier.send(
            message.to,
            message.message,
            message_id=str(message.id),
            valid_for=max(1, round(left.total_seconds())),
        )

    # Answers

    def answer(self, send: Send, ended: Future) -> Answer:
        """Return how a send has ended; an error of ours leaves the text in doubt."""
        error = ended.exception()
        if error is None:
            return Answer(send, None, ended.result())
        if not isinstance(error, CarrierError | NotSent):
            kind, words = type(error).__name__, "unexpected %s while sending message %s"
            log.error(words, kind, send.message.id, extra=self.about(send.message))
            error = CarrierError(f"unexpected {kind}", in_doubt=True)
        return Answer(send, error)

    def record(self) -> list[Message]:
        """Write down the answers; return the messages that a carrier, asked, does not have.

        Each step waits by itself for a database that is away: none happens twice.
        """
        now, again = models.clock(), []
        taken = (each for each in self.unrecorded if not (each.error or each.send.asking))
        self.insist(receipts.sent, {each.send.message.id: each.said for each in taken}, now)
        for send, error, said in self.unrecorded:
            if error:
                self.insist(self.record_no, send, error, now)
            elif not send.asking:
                self.note(send.message, "sent")
            elif self.insist(self.record_found, send.message, said, now):
                again.append(send.message)
        self.insist(self.note_answers)
        self.unrecorded = []
        while self.stop.is_told and again:  # the next sender asks the carrier once more
            self.insist(again.pop().apply, Outcome(Status.QUEUED, send_at=now), now)
        return again

    def record_found(self, message: Message, references: list[str], now: datetime) -> bool:
        """Record what the carrier said of a text in doubt; say whether to judge it again.

        If an equal text is being sent, a reference may be that one's: the carrier is asked later.
        """
        others = [each.send.message for each in self.unrecorded]
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

    def record_no(self, send: Send, error: CarrierError | NotSent, now: datetime) -> None:
        """Record what becomes of a text that the carrier did not say yes to."""
        message = send.message
        outcome = error.outcome if isinstance(error, NotSent) else self.after_no(send, error, now)
        if outcome is None:
            Message.put_back(self.claimant, [message])
            return
        if message.apply(outcome, now) and outcome.status != Status.QUEUED:
            self.note(message, outcome.move, outcome.reason)
        if outcome.doubt:
            receipts.look_again(message.to)

    def after_no(self, send: Send, error: CarrierError, now: datetime) -> Outcome:
        """Record what an error tells of the recipient; return what becomes of the text."""
        self.left += error.too_fast  # it goes when the pause ends
        if error.opted_out:
            said = OptOut(send.message.to, stop=True, source="carrier")
            self.counts["blocked"] += receipts.record_opt_out(said, now, self.rules.check_dnc)
        if send.asking:
            return outcomes.after_asking_in_vain(send.message, error, self.rules, now)
        return outcomes.after_no(send.message, error, self.rules, send.tried, now)

    def note_answers(self) -> None:
        """Let all schedulers know what these answers tell of the carrier itself."""
        answers = [each for each in self.unrecorded if not isinstance(each.error, NotSent)]
        for send, error, _ in answers:
            if error:
                self.note_carrier(error, send.begun_at)
        if any(each.send.tried for each in self.unrecorded):  # the next may go first
            CarrierState.give_up_turn(self.name)
        own = [each.send.begun_at for each in answers if _is_own(each.error)]
        if not own or not (self.state.silences or self.state.retry_at):  # as read a turn ago
            return
        if CarrierState.answered(self.name, max(own)):
            log.info("carrier %s takes texts again", self.name)

    def note_carrier(self, error: CarrierError, begun_at: datetime) -> None:
        """Begin a pause if an error is about the account, the speed or the carrier itself."""
        name, now = self.name, models.clock()
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
        if move == "sent":
            self.wait_until = time.monotonic() + self.longest_wait
        level = logging.WARNING if move in ("retrying", "failed", "expired") else logging.INFO
        why = f": {reason}" if reason else ""
        log.log(level, "message %s %s%s", message.id, move, why, extra=self.about(message))

    def about(self, message: Message) -> dict:
        """Return the fields of a line about a message that was claimed."""
        return {"message_id": str(message.id), "key": self.key_names.get(message.key_id)}

    # Later

    def collect(self) -> bool:
        """Record receipts and replies from the carrier's session; return whether there were any.

        Calling `received` acknowledges the last batch: that is recorded first.
        """
        if not self.uncollected:
            self.uncollected = self.carrier.received()
        heard, now = bool(self.uncollected), models.clock()
        while self.uncollected:
            receipts.record(self.uncollected[:RECORDED_AT_ONCE], now, self.settings.check_dnc)
            del self.uncollected[:RECORDED_AT_ONCE]
        return heard


def beside(action: Callable) -> Future:
    """Call something in a thread of its own."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(action)
    pool.shutdown(wait=False)
    return future


def gather(ended: Queue, seconds: float) -> list[Future]:
    """Return the sends that have ended; wait so many seconds if none has.

    A SimpleQueue might wait for ever: Python 3.11 takes a timeout that is over for none.
    """
    try:
        done = [ended.get(timeout=seconds)]
    except Empty:
        return []
    while not ended.empty():
        done.append(ended.get())
    return done


def _is_own(error):
    """Say whether an answer is the carrier's own, and neither about speed nor about the account."""
    return not (error and (error.silent or error.too_fast or error.account or error.in_doubt))
