"""The promises about a message, whatever happens in whatever order.

Hypothesis plays clients, testers, operators, recipients, the carrier, a clock that is set, and two
schedulers over the real tables. A scheduler runs as a greenlet that stops before each use of the
database, so the machine decides who goes on, who stands still and who dies. A run begins
within a scene, where a few steps decide. Every run can be repeated.
"""

import dataclasses
import math
import sys
from collections import Counter
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from itertools import chain, count, repeat
from uuid import UUID

import pytest
from greenlet import getcurrent, greenlet
from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import database
import models
import recipients
import reports
from access.do_not_call import DoNotCall
from access.keys import ApiKey, Role
from carriers import Carrier, CarrierError, OptOut, Receipt
from carriers.ways import Way
from databases import on_sqlite
from models import FINISHED, TAKEN, Message, Status, first_id
from recipients.hours import BusinessHours
from recipients.quiet import QuietPlaces
from samples import DAY, HOUR, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from sending import carrier_state, claims, outcomes, receipts
from sending.attempts import Attempt
from sending.carrier_state import SETTLING, CarrierState, Permission
from sending.outcomes import MAY_HAVE_TAKEN_IT
from sending.receipts import KEPT
from sending.runtime import Clock, Ended, Runtime, Stop
from sending.sender import TESTERS, Sender
from sending.sends import NotSent, Send
from sending.watch import CarrierWatch
from stored_messages import create

NUMBERS = (NEW_YORK, "+12125550188")
CLAIM_TIMEOUT, EXPIRE_AFTER = 60, 3 * DAY
PAUSE = 30  # seconds that the carrier asks for with its "too fast"
LATER = (0, 0, 0, 10, 20, 70, 70, 70, 400, 3600, 13 * 3600, 16 * 3600, 80 * 3600)  # seconds
BEGUN, GIVEN, HEARD, IDLE, END = "begun", "given", "heard", "idle", "end"
MOMENTS = (BEGUN, GIVEN, GIVEN, HEARD, IDLE, 1, 2, 5, 9)  # or so many steps

YES, LOST = "yes", "taken, and no answer"
FATES = {  # whether the carrier takes it, and the flags of its no
    YES: (True, None),
    LOST: (True, {"in_doubt": True, "silent": True}),
    "no answer": (False, {"in_doubt": True, "silent": True}),
    "for now": (False, {}),
    "for good": (False, {"permanent": True}),
    "too fast": (False, {"too_fast": True, "retry_after": PAUSE}),
    "account": (False, {"account": True}),
    "unreached": (False, {"unreached": True}),
}
# These cost no retry, or not always: a text that goes first after a pause may find silence
FREE = ("too fast", "account", "unreached", "no answer", "taken, and no answer")


@dataclasses.dataclass
class Order:
    """What was asked for, and what has happened since it was, or since somebody retried it."""

    to: str
    text: str
    max_retries: int
    not_before: object
    approved: bool
    is_testers: bool = False
    cancelled: bool = False
    sends: int = 0  # that cost a retry
    copies: int = 0  # that the carrier took


@dataclasses.dataclass
class Copy:
    """A text that the carrier took."""

    id: object
    alike: tuple
    reference: str
    at: object
    carrier: str


class FakeCarrier(Carrier):
    """Do with each text as the machine says; the simulator of testers takes them all."""

    def __init__(self, machine, askable, name="fake"):
        self.machine, self.can_be_asked, self.name = machine, askable, name
        self.fates, self.health = repeat(YES), YES

    def send(self, to, text, *, message_id, valid_for):
        return self.machine.given(self, to, text, message_id, valid_for, next(self.fates))

    def check(self):
        if self.health in ("unreached", "too fast"):
            _, no = FATES[self.health]
            raise CarrierError(self.health, **no)

    def find(self, to, text, since):
        fate = next(self.fates)
        _, no = FATES[fate]
        if no is not None:
            raise CarrierError(fate, **no | {"in_doubt": False})
        own = [copy for copy in self.machine.copies if copy.carrier == self.name]
        own.sort(key=lambda copy: copy.at)  # the oldest first, by a clock that may be set back
        return [copy.reference for copy in own if copy.alike == (to, text) and copy.at >= since]


def pause():
    """Let the machine decide what happens next."""
    getcurrent().parent.switch()


class MachineClock(Clock):
    """A clock that stands still until the machine moves it, or sets the wall clock."""

    def __init__(self):
        self.instant, self.ahead = TUESDAY_NOON, timedelta(0)

    def now(self):
        return self.instant + self.ahead

    def monotonic(self):
        return self.instant.timestamp()

    def sleep(self, seconds):
        getcurrent().sender.waits = True
        pause()


class PausingSender(Sender):
    looked = -1  # how many pauses there had been when it looked at the carrier's state last

    def retry_through_outage(self, action, *arguments):
        pause()
        before = CarrierState.get_or_none(CarrierState.name == self.name)
        result = super().retry_through_outage(action, *arguments)
        self.sends.carrier.machine.done(self, action, arguments, before)
        return result


class PausingScheduler(Scheduler):
    """A scheduler that pauses before each use of the database, and while it waits."""

    process, waits = None, False

    def __init__(self, settings, carrier, clock, others=()):
        runtime = Runtime(clock, Pool, Calls)
        super().__init__(settings, carrier, runtime, others)
        more = {"runtime": runtime, "routes": self.routes}
        both = [carrier, *others]
        self.senders = [PausingSender(settings, each, self.stop, **more) for each in both]
        simulator = FakeCarrier(carrier.machine, carrier.can_be_asked, "simulator")
        self.testers = PausingSender(settings, simulator, self.stop, True, runtime)
        self.calls, self.machine = [], carrier.machine

    def serve_testers(self):
        """Send them in the thread of the pass."""
        if reports.awaiting_carrier(testers=True):
            CarrierState.prepare(TESTERS)
            self.testers.send_queued()

    def send_side_by_side(self):
        """Send through one carrier and then the other, until both are done."""
        before = None
        while before != (before := [sender.moves for sender in self.senders]):
            for sender in self.senders:
                CarrierState.prepare(sender.name)
                self.count(sender.send_queued(partial(self.meanwhile, sender)))

    def go_on(self):
        """Run up to the next pause; begin a pass if none is under way."""
        if not self.process:
            if self.stop.is_requested:  # that process has ended
                self.__init__(self.settings, self.machine.carrier, self.clock, self.machine.others)
            self.process = greenlet(self.run_pass)
            self.process.sender = self
        self.waits = False
        self.process.switch()

    def moments(self):
        """Make a pass, or go on with one, to its end; yield whatever happens."""
        while True:
            if self.waits and self.calls:
                call = next((call for call in self.calls if not call.answer), self.calls[0])
                if not call.answer:
                    yield BEGUN
                    call.reach()
                    yield GIVEN
                self.calls.remove(call)
                call.end()
                yield HEARD
            elif self.waits:
                self.clock.instant += 10 * SECOND
            self.go_on()
            yield IDLE if self.waits else None
            if not self.process:
                return


class Call:
    """What a thread of a scheduler does: it begins when the machine says, and so it ends."""

    def __init__(self, action, arguments):
        self.action, self.arguments = action, arguments
        self.future, self.answer = Future(), None

    def reach(self):
        """Let the carrier have it; what it answers is not known yet."""
        try:
            self.answer = self.future.set_result, self.action(*self.arguments)
        except (CarrierError, NotSent) as error:
            self.answer = self.future.set_exception, error

    def end(self):
        tell, answer = self.answer
        tell(answer)


class Pool:
    """A pool whose threads are calls of the machine."""

    def __init__(self, size):
        self.sender = getcurrent().sender

    def shutdown(self, wait):
        pass

    def submit(self, action, *arguments):
        call = Call(action, arguments)
        self.sender.machine.judged(self.sender, action, arguments)
        self.sender.calls.append(call)
        return call.future


class Calls(Ended):
    """The calls that have ended."""

    def gather(self, seconds):
        """Return them, after the machine has decided what happens meanwhile."""
        getcurrent().sender.waits = self.empty()
        pause()
        return [self.get() for _ in range(self.qsize())]


ORDERS = {
    "to": st.sampled_from(NUMBERS),
    "max_retries": st.integers(0, 2),
    "check_dnc": st.booleans(),
    "manual_mode": st.sampled_from([False, False, False, True]),
    "send_in": st.sampled_from([None, None, None, 60, 13 * 3600]),
    "count": st.integers(1, 3),
    "tester": st.sampled_from([False, False, True]),
}


SCENES = (
    *("nothing_yet", "pause_is_lengthened", "doubt_is_settled_in_pause", "doubt_goes_first"),
    *("outage", "stop_while_settling", "death_beside_long_pass"),
)


class Promises(RuleBasedStateMachine):
    """Everybody who has to do with messages, and what must be true of these meanwhile."""

    which, either = st.integers(0, 3), st.integers(0, 1)
    later = st.sampled_from(LATER)
    fate = st.sampled_from([YES, YES, YES, LOST, LOST, "too fast", "too fast", *FATES])
    fates = st.lists(fate, min_size=1, max_size=2)

    def __init__(self, settings, clock, askable, *others_askable):
        super().__init__()
        for table in reversed(database.Table.__subclasses__()):
            table.delete().execute()
        self.clock, clock.instant, clock.ahead = clock, TUESDAY_NOON, timedelta(0)
        ApiKey.issue("tester", None, self.now, role=Role.TESTER)
        self.tester = ApiKey.named("tester").id
        self.settings, self.hours = settings, BusinessHours.from_settings(settings)
        self.carrier = FakeCarrier(self, askable)
        self.others = [FakeCarrier(self, each, "other") for each in others_askable]
        self.carriers = {each.name: each for each in (self.carrier, *self.others)}
        self.senders = [self.new_scheduler() for _ in range(2)]
        self.orders, self.copies, self.serial = {}, [], count()
        self.budget = Counter()  # by number and text, how many the carrier may get
        self.named = {}  # by each reference that was ever recorded, its message
        self.said = {}  # by the reference, whether it arrived and when that was said
        # The pause "too fast": how many there were, when it ends by the monotonic clock, and
        # whether one text goes first, which one, and since when
        self.pauses, self.paused_until, self.goes_first = 0, 0, False
        self.first, self.first_at = None, 0
        self.begun = {}  # texts, and how many pauses their schedulers knew of
        self.renewed_at, self.jumped_at = {}, 0  # by the monotonic clock

    @property
    def now(self):
        return self.clock.now()

    def new_scheduler(self):
        return PausingScheduler(self.settings, self.carrier, self.clock, self.others)

    # Clients, operators, recipients

    @initialize(scene=st.sampled_from(SCENES), fate=fate, **ORDERS)
    def begin(self, scene, fate, **order):
        """Begin within a scene that chance alone would seldom come to."""
        getattr(self, scene)(fate)
        self.store(**order)

    @rule(**ORDERS)
    def create(self, **order):
        self.store(**order)

    def store(self, to, max_retries, check_dnc, manual_mode, send_in, count, tester=False):
        """A client asks for a text, or for some equal ones."""
        if check_dnc and DoNotCall.lists(to):
            return
        text, key = ("Test", {"key": self.tester}) if tester else ("Hello", {})
        send_date = send_in and self.now + send_in * SECOND
        send_at = send_date or self.next_opening(to) or self.now
        for _ in range(count):
            id = UUID(int=first_id(self.now).int + next(self.serial))
            create(
                text, id=id, to=to, max_retries=max_retries, check_dnc=check_dnc,
                manual_mode=manual_mode, send_date=send_date, send_at=send_at,
                status=Status.SCHEDULED if send_at > self.now else Status.QUEUED, **key,
            )  # fmt: skip
            self.orders[id] = Order(to, text, max_retries, send_at, not manual_mode, tester)
            self.budget[to, text] += 1

    def next_opening(self, to):
        """Return when business hours begin; None where they have begun."""
        recipient = recipients.find(to)
        if self.hours.is_open(recipient.clocks, self.now):
            return None
        return self.hours.next_opening(recipient.clocks, self.now)

    @precondition(lambda self: self.orders)
    @rule(which=which, move=st.sampled_from(["approve", "refuse", "cancel", "cancel", "retry"]))
    def move(self, which, move):
        """An operator moves one of the latest messages."""
        id = [*self.orders][-1 - which % len(self.orders)]
        message, order = Message.get_by_id(id), self.orders[id]
        if move == "retry":
            if message.retry(self.now, 3 * DAY):
                order.cancelled, order.sends, order.copies = False, 0, 0
                order.not_before = max(self.now, message.send_date or self.now)
                self.budget[order.to, order.text] += message.status == Status.UNDELIVERED
        elif move == "cancel":
            order.cancelled |= message.cancel("shell", self.now)
        elif message.decide(move == "approve", "shell", self.now):
            order.approved |= move == "approve"
            order.cancelled |= move == "refuse"

    @rule(number=st.sampled_from(NUMBERS), stop=st.booleans())
    def reply(self, number, stop):
        entry = DoNotCall.entry(number)
        by_people = entry is not None and entry.source in ("operator", "import")
        receipts.record_opt_out(OptOut(number, stop, "reply"), self.now)
        assert DoNotCall.lists(number) == (stop or by_people)

    @rule(number=st.sampled_from(NUMBERS), add=st.booleans())
    def change_list(self, number, add):
        """An operator adds or removes a number; what waits for it is left to the schedulers."""
        change = DoNotCall.add if add else DoNotCall.remove
        change([number], self.now, "operator")

    @precondition(lambda self: self.now > TUESDAY_NOON + 3 * DAY)
    @rule(change=st.sampled_from([Message.purge, Message.redact]))
    def grow_old(self, change):
        if change == Message.purge and self.is_asking:
            return  # who stood still for days may yet take a purged text's copy for its own
        before = self.now - 3 * DAY
        old = (Message.finished_at < before) & Message.status.in_(FINISHED)
        may_go = {message.id for message in Message.select(Message.id).where(old)}
        change(before, self.now)
        gone = self.orders.keys() - {message.id for message in Message.select(Message.id)}
        assert gone <= may_go
        for id in gone:
            del self.orders[id]

    @property
    def is_asking(self):
        """Whether a scheduler has a question to a carrier under way."""
        senders = [each for one in self.senders for each in (*one.senders, one.testers)]
        return any(send.asking for each in senders for send in each.sends.under_way.values())

    # Schedulers and the clock

    @rule(ahead=st.sampled_from([-600, -90, 0, 0, 90, 600]))
    def set_clock(self, ahead):
        """Somebody sets the wall clock: what was due by the old one may still be sent."""
        seconds = ahead - self.clock.ahead // SECOND
        for order in self.orders.values():
            if order.not_before <= self.now:
                order.not_before += min(0, seconds) * SECOND
        self.clock.ahead += seconds * SECOND
        self.first = None
        if seconds > 0:  # pauses end early
            self.paused_until -= seconds
            self.jumped_at = self.clock.monotonic()

    @rule(which=either, later=later, fates=fates)
    def make_pass(self, which, later, fates, until=END):
        """A scheduler makes a pass or ends one, or goes on up to a moment and stands still."""
        self.clock.instant += later * SECOND
        self.carrier.fates = chain(fates, repeat(fates[-1]))
        self.carrier.health = fates[-1]
        for other in self.others:
            other.fates, other.health = chain(fates[::-1], repeat(fates[0])), fates[0]
        for number, moment in enumerate(self.senders[which].moments(), 1):
            if until in (moment, number):
                return

    @rule(which=either, later=later, fates=fates, until=st.sampled_from(MOMENTS))
    def stand_still(self, which, later, fates, until):
        self.make_pass(which, later, fates, until)

    @precondition(lambda self: any(sender.process for sender in self.senders))
    @rule(which=either, gently=st.booleans())
    def die(self, which, gently):
        """A scheduler is killed, or told to stop: it ends when nothing is under way."""
        if gently:
            self.senders[which].stop.request()
        else:
            self.senders[which] = self.new_scheduler()

    # Scenes to begin with: the first scheduler is 0, the second is 1

    def ask_for(self, count):
        self.store(NUMBERS[0], 2, False, False, None, count)

    def go_on(self, which, fate=YES, later=0):
        """A scheduler goes on until it waits; it hears one answer, if one is to come."""
        self.make_pass(which, later, [fate], IDLE)

    def nothing_yet(self, fate):
        pass

    def pause_is_lengthened(self, fate):
        """While a text goes first after a pause, an older one is found to have come too fast."""
        self.ask_for(1)
        self.make_pass(1, 0, ["too fast"], GIVEN)
        self.ask_for(6)
        self.go_on(0)
        for _ in range(9):
            if self.first is None:  # the text that goes first
                self.go_on(0, "too fast")
        self.go_on(1)
        for answer in (fate, YES):
            self.go_on(0, answer)

    def doubt_is_settled_in_pause(self, fate):
        """The carrier, asked, does not have a text; another has come too fast meanwhile."""
        self.ask_for(1)
        self.make_pass(0, 0, ["no answer"])
        self.clock.instant += 70 * SECOND
        self.ask_for(6)
        self.go_on(0)
        self.go_on(1)
        self.go_on(1, "too fast")
        for answer in (YES, fate):
            self.go_on(0, answer)

    def doubt_goes_first(self, fate):
        """After a pause a text goes first with which a scheduler died."""
        self.ask_for(1)
        self.make_pass(1, 0, ["no answer"], GIVEN)
        self.die(1, False)
        self.ask_for(6)
        self.make_pass(0, 0, ["too fast"])
        self.clock.instant += 70 * SECOND
        for answer in (YES, YES, YES, fate):
            self.go_on(0, answer)

    def outage(self, fate):
        """The carrier is not reached; it serves again while nothing waits, or while texts do."""
        CarrierState.prepare(self.carrier.name)
        for answer in ("too fast", YES):
            self.idle(answer)
        self.ask_for(2)
        self.make_pass(0, 0, ["unreached"])
        self.make_pass(0, 70, [fate, YES])

    def stop_while_settling(self, fate):
        """The clock jumps ahead beside a living scheduler; another begins a pass and is stopped."""
        self.ask_for(3)
        self.make_pass(0, 0, [fate], GIVEN)
        self.set_clock(90)
        self.go_on(1)
        self.die(1, True)
        self.senders[1].go_on()

    def death_beside_long_pass(self, fate):
        """A scheduler dies; another takes its texts over before its own long pass ends."""
        self.ask_for(12)
        self.make_pass(1, 0, [fate], GIVEN)
        dead = self.senders[1].senders[0].claimant
        self.die(1, False)
        self.go_on(0)
        for _ in range(5):
            self.go_on(0, YES, 20)
        assert self.senders[0].process, "its pass is a long one"
        assert not Message.select().where(Message.claimed_by == dead).exists(), "it is taken over"

    # The carrier

    def done(self, sender, action, arguments, before):
        """Keep account of pauses and claims, after a sender has used the database."""
        if action == sender.claim:
            mine = (Message.claimed_by == sender.claimant) & (Message.claimed_at == self.now)
            now = self.clock.monotonic()
            self.renewed_at |= {message.id: now for message in Message.select().where(mine)}
        elif sender.sends.carrier in self.others:
            return
        elif action == sender.watch.permission:
            sender.looked = self.pauses
            state = CarrierState.get_by_id(sender.name)
            self.goes_first &= sender.for_testers or not state.trouble
        elif action == sender.watch.note and not sender.for_testers:
            self.noted(*arguments, before)

    def noted(self, answers, before):
        """Keep account of the pauses that answers begin and end."""
        state = CarrierState.get_by_id(self.carrier.name)
        for send, error, _ in answers:
            if send is self.first:
                self.first = None
            if isinstance(error, CarrierError) and error.too_fast:
                self.pauses, self.goes_first, self.first = self.pauses + 1, True, None
                until = self.clock.monotonic() + PAUSE
                self.paused_until = max(self.paused_until, until)
            elif self.begun.get(send) == self.pauses and not isinstance(error, NotSent):
                self.goes_first &= bool(error and (error.silent or error.in_doubt))
        self.goes_first &= not state.trouble  # then another rule holds
        if len(answers) == 1 and send.is_probe and send.probe == before.tried_at:
            no = error if isinstance(error, CarrierError) else None
            none = no and (no.silent or no.in_doubt or no.unreached or no.account)
            is_own = not (none or isinstance(error, NotSent))
            may_last = send.asking and before.by_texts  # which a text has to end
            assert may_last or not (is_own and state.is_down), "an answer ends an outage"

    def begun_in_pause(self, scheduler, send):
        """Check that nothing goes in a pause, and one text first when it has ended."""
        now, known = self.clock.monotonic(), scheduler.senders[0].looked
        self.begun[send] = known
        if known < self.pauses:  # it looked before
            return
        assert now >= self.paused_until, "nothing goes in a pause"
        if self.goes_first:
            waits = self.first is not None and now - self.first_at <= CLAIM_TIMEOUT
            assert not waits, "one text goes first"
            self.first, self.first_at = send, now

    def take_over(self, take_over, before):
        """Take over what dead schedulers held; after a jump of the clock the living renew first."""
        dead = Message.select().where(Message.claimed_at < before)
        for message in dead:
            renewed_at = self.renewed_at[message.id]
            age = self.clock.monotonic() - renewed_at
            jumped = self.jumped_at >= renewed_at
            assert age >= (SETTLING if jumped else CLAIM_TIMEOUT), "it is taken over too soon"
        return take_over(before)

    def judged(self, scheduler, action, arguments):
        """Check what a scheduler begins."""
        if action not in [each.sends.give for each in (*scheduler.senders, scheduler.testers)]:
            return  # a question
        (send,) = arguments
        if action == scheduler.senders[0].sends.give:
            self.begun_in_pause(scheduler, send)
        if self.clock.monotonic() > send.held_until:
            return  # it stood still meanwhile, and the call will find that its claim is lost
        message = send.message
        order = self.orders[message.id]
        assert order.approved
        assert order.not_before <= self.now
        assert not order.cancelled
        assert not (message.check_dnc and DoNotCall.lists(order.to))
        if not (message.send_date and self.now < message.send_date + HOUR):
            assert not self.next_opening(order.to)
        assert not self.hours.quiet_until(recipients.find(order.to).clocks, self.now)

    def given(self, carrier, to, text, message_id, valid_for, fate):
        """Check what a carrier is given; return its reference, or raise its no."""
        message = Message.get(Message.id == message_id)
        order = self.orders[message.id]
        assert (carrier.name not in self.carriers) == order.is_testers
        asked = [name for name in message.doubts("fake") if self.can_be_asked(name)]
        assert order.is_testers or not asked, "a doubt stays with its carrier"
        assert (order.to, order.text) == (to, text)
        assert message.status == Status.SENDING
        assert self.now + (valid_for - 1) * SECOND < message.first_send_at + EXPIRE_AFTER
        order.sends += fate not in FREE
        assert order.sends <= order.max_retries + 1 + message.take_overs
        taken, no = FATES[fate]
        if taken:
            settled = self.is_any_asked  # its copy may have become an equal text's
            assert message.in_doubt or settled or not order.copies, (
                "a second copy only after a doubt"
            )
            order.copies += 1
            reference = f"SM{len(self.copies)}"
            copy = Copy(message.id, (to, text), reference, self.now, carrier.name)
            self.copies.append(copy)
        if no is not None:
            raise CarrierError(fate, **no)
        return copy.reference

    @precondition(lambda self: self.copies)
    @rule(which=which, words=st.lists(st.booleans(), min_size=1, max_size=2))
    def receipt(self, which, words):
        """Receipts of a copy whose answer is known or is not, the first time or again."""
        copy = self.copies[-1 - which % len(self.copies)]
        reference = copy.reference
        carrier = copy.carrier if copy.carrier in self.carriers else TESTERS
        for delivered in words:
            said = [Receipt(reference, delivered)]
            receipts.record(said, self.now, False, Way(carrier) if self.others else None)
            before, _ = self.said.get(reference, (None, None))
            if reference not in self.said or (delivered and not before):  # not a repeat
                self.said[reference] = delivered, self.now

    # The promises

    @invariant()
    def promises_hold(self):
        messages = {message.id: message for message in Message.select()}
        assert messages.keys() == self.orders.keys(), "none is lost"
        for id, message in messages.items():
            if message.carrier_reference:
                self.note_reference(id, message.carrier_reference)
            self.check(message, self.orders[id])
        self.check_attempts(messages)
        if not self.is_any_asked:
            return
        open = Counter(
            (order.to, order.text)
            for id, order in self.orders.items()
            if messages[id].status not in FINISHED
            or (self.others and MAY_HAVE_TAKEN_IT in (messages[id].last_error or ""))
        )
        found = [copy for copy in self.copies if self.can_be_asked(copy.carrier)]
        copies = Counter(copy.alike for copy in found)
        unknown = Counter(copy.alike for copy in found if copy.reference not in self.named)
        assert copies <= self.budget, "it never gets two copies"
        assert unknown <= open, "what it has taken is sent"

    def check_attempts(self, messages):
        """What a text went through agrees with where it stands, and tells who may have a copy."""
        attempts = [*Attempt.select()]
        by_result = Counter((each.message_id, each.result) for each in attempts)
        for id, message in messages.items():
            assert by_result[id, None] <= (message.status == Status.SENDING)
        taken = {(each.message_id, each.reference) for each in attempts if each.result == "taken"}
        references = {(id, each.carrier_reference) for id, each in messages.items()}
        assert {each for each in references if each[1]} <= taken
        if not self.is_any_asked:
            may_have = (each for each in attempts if each.result in (None, "unclear", "taken"))
            copies = Counter(copy.id for copy in self.copies if copy.id in messages)
            assert copies <= Counter(each.message_id for each in may_have)

    def can_be_asked(self, name):
        carrier = self.carriers.get(name)  # none is the simulator, which is like the first
        return (carrier or self.carrier).can_be_asked

    @property
    def is_any_asked(self):
        return any(map(self.can_be_asked, self.carriers))

    @property
    def are_all_asked(self):
        return all(map(self.can_be_asked, self.carriers))

    def note_reference(self, id, reference):
        if reference not in self.named and reference in self.said:
            _, at = self.said[reference]
            if at and at < self.now - KEPT + HOUR:  # by a clock that is set
                self.said[reference] = None, None  # it may be forgotten
        assert self.named.setdefault(reference, id) == id, "one copy is one message's"

    def check(self, message, order):
        if message.status not in TAKEN:  # asking in doubt counts, too
            assert message.attempts <= order.max_retries + 1
        own = [copy for copy in self.copies if copy.reference == message.carrier_reference]
        if message.status in TAKEN:
            (copy,) = own
            assert copy.alike == (order.to, order.text)
            assert copy.id == message.id or self.can_be_asked(copy.carrier)  # equals are alike
            assert order.is_testers or message.carrier == copy.carrier
            self.check_receipt(message)
        may_have = MAY_HAVE_TAKEN_IT in (message.last_error or "")
        if message.status == Status.FAILED:
            if self.are_all_asked:
                assert not may_have
            elif not self.is_any_asked:
                assert may_have or not order.copies
        if not self.is_any_asked:
            assert order.copies <= 2

    def check_receipt(self, message):
        delivered, at = self.said.get(message.carrier_reference, (None, self.now))
        if at:  # delivered is the last word, and else the first
            wanted = {None: Status.SENT, True: Status.DELIVERED, False: Status.UNDELIVERED}
            assert message.status == wanted[delivered]

    # In the end

    def teardown(self):
        """Once the carrier is well and time passes, everything ends, and what is new is sent."""
        if sys.exc_info()[0]:
            return
        self.clock.instant += (TUESDAY_NOON - self.now) % DAY
        self.store("+12125550177", 0, False, False, None, 1)
        new = [*self.orders][-1]
        for hours in (0, 0, 1, 10, 40, 40, 40):
            for which in (0, 1):
                self.make_pass(which, hours * 3600, [YES])
            self.promises_hold()
            if hours and all(message.status in FINISHED for message in Message.select()):
                break
        else:
            raise AssertionError("not everything ends")
        assert Message.get_by_id(new).status == Status.SENT
        self.idle()

    def idle(self, answer=YES):
        """While nothing waits, an outage ends as soon as the carrier answers."""
        CarrierState.begin_pause(self.carrier.name, self.now, trouble="down", is_down=True)
        for which in (0, 1):
            self.make_pass(which, 70, [answer])
        assert CarrierState.get_by_id(self.carrier.name).trouble is None, "the outage is over"


often = hypothesis_settings(
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    max_examples=5,
    stateful_step_count=25,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)


@pytest.fixture
def hold_promises(settings, monkeypatch):
    """Play with a carrier that can be asked, or cannot: `hold_promises(True, often)`."""
    clock = MachineClock()
    monkeypatch.setattr(database.clock, "now", clock.now)  # by which orders are stored
    settings = settings._replace(
        claim_timeout=CLAIM_TIMEOUT,
        expire_after=EXPIRE_AFTER,
        send_concurrency=2,
        quiet_hours=(21 * 60, 8 * 60),
    )

    def hold(askable, how, *others):
        take_over = claims.take_over

        def machine():
            promises = Promises(settings, clock, askable, *others)
            monkeypatch.setattr(claims, "take_over", partial(promises.take_over, take_over))
            return promises

        run_state_machine_as_test(machine, settings=how)

    return hold


@pytest.mark.slow
@pytest.mark.parametrize("askable", [True, False])
def test_the_promises_hold_whatever_happens(hold_promises, askable):
    hold_promises(askable, often)


BOTH = [(True, True), (True, False), (False, True), (False, False)]
"""Whether the first of two carriers can be asked, and the other."""


@pytest.mark.slow
@pytest.mark.parametrize(("askable", "other"), [(True, False), (False, True)])
def test_the_promises_hold_with_two_carriers(hold_promises, askable, other):
    hold_promises(askable, hypothesis_settings(often, max_examples=2), other)


@pytest.mark.soak
@pytest.mark.parametrize(("askable", "other"), BOTH)
def test_the_promises_hold_for_long_with_two_carriers(hold_promises, askable, other):
    hold_promises(askable, hypothesis_settings(often, max_examples=500, derandomize=False), other)


@pytest.mark.soak
@pytest.mark.parametrize("askable", [True, False])
def test_the_promises_hold_for_long(hold_promises, askable):
    hold_promises(askable, hypothesis_settings(often, max_examples=1000, derandomize=False))


# Does it find anything? Each of these breaks a rule.

judge, take_over, claim = outcomes.judge, claims.take_over, claims.claim


def judge_without_asking(message, rules, *rest):
    return judge(message, rules._replace(askable=False), *rest)


def judge_without_quiet_hours(message, terms, *rest):
    return judge(message, terms._replace(key=terms.key._replace(quiet=QuietPlaces())), *rest)


def judge_without_cancelling(message, *rest):
    message.cancelled_by = None
    return judge(message, *rest)


def take_over_without_doubt(before):
    dead = [message.id for message in Message.select().where(Message.claimed_at < before)]
    count = take_over(before)
    Message.update(in_doubt=0).where(Message.id.in_(dead)).execute()
    return count


def claim_without_approval(*arguments):
    Message.update(approved=True).execute()
    return claim(*arguments)


note_answer, end_pause = CarrierWatch.note_answer, CarrierState.end_pause
changes_for_pause, permission = carrier_state.changes_for_pause, CarrierState.permission
sleep = Stop.sleep


def end_any_pause(watch, send, error):
    note_answer(watch, send, error)
    if not error:
        CarrierState.update(retry_at=None, tried_at=None, pause=0).execute()


def end_pause_by_a_question(name, probe, only_outage=False, **more):
    return end_pause(name, probe, **more)


def end_pause_by_any_probe(name, probe, **more):
    CarrierState.update(tried_at=probe).execute()
    return end_pause(name, probe, **more)


def leave_probe(state, by_probe, *rest):
    changes = changes_for_pause(state, by_probe, *rest)
    return changes if by_probe else changes | {"tried_at": state.tried_at}


def leave_outage(state, by_probe, now, trouble, *rest):
    changes = changes_for_pause(state, by_probe, now, trouble, *rest)
    return changes if trouble else changes | {"trouble": state.trouble, "is_down": state.is_down}


def begin_all_the_same(sender, waiting):
    for send in waiting:
        send.asking = False
        sender.sends.begin(send, None)


def let_all_go_first(state, now, claim_timeout):
    may_send = permission(state, now, claim_timeout)
    return Permission.ALL if may_send is Permission.PROBE else may_send


def only_end_probe(watch):
    CarrierState.end_probe(watch.name, watch.probe)


def only_promote_meanwhile(scheduler, sender):
    return scheduler.promote(scheduler.clock.now())


def forget_the_stop(stop, seconds):
    sleep(stop, seconds)
    stop.by = math.inf  # and do what the wait was for


ANY = dict.fromkeys([Status.DELIVERED, Status.UNDELIVERED], models.has_status(*TAKEN))
FOR_EVER = property(lambda _: float("inf"), lambda *_: None)
BUGS = {  # whether the carrier can be asked; and the code that is replaced, by something wrong
    "it never asks": (True, outcomes, "judge", judge_without_asking),
    "a dead sender leaves no doubt": (True, claims, "take_over", take_over_without_doubt),
    "it takes the reference of another": (True, receipts, "known", lambda *_: set()),
    "it looks for no approval": (False, claims, "claim", claim_without_approval),
    "it does not look at the list": (False, DoNotCall, "listed", lambda _: set()),
    "it sends at any hour": (False, outcomes, "waits_until", lambda *_: None),
    "it knows no quiet hours": (False, outcomes, "judge", judge_without_quiet_hours),
    "it sends after a long pause": (False, Send, "held_until", FOR_EVER),
    "it sends what is cancelled": (False, outcomes, "judge", judge_without_cancelling),
    "the last receipt counts": (False, receipts, "_MAY_BECOME", ANY),
    "an early receipt is lost": (False, receipts, "_keep", lambda *_: None),
    "nothing is taken over": (False, claims, "take_over", lambda _: 0),
    "any yes ends a pause": (False, CarrierWatch, "note_answer", end_any_pause),
    "any probe ends a pause": (False, CarrierState, "end_pause", end_pause_by_any_probe),
    "a probe ends a lengthened pause": (False, carrier_state, "changes_for_pause", leave_probe),
    "what was asked about goes in a pause": (True, Sender, "put_back", begin_all_the_same),
    "an answered question ends a pause": (True, CarrierState, "end_pause", end_pause_by_a_question),
    "all go after a pause": (False, CarrierState, "permission", let_all_go_first),
    "an outage never ends": (False, CarrierWatch, "end_unused_probe", only_end_probe),
    "too fast ends no outage": (False, carrier_state, "changes_for_pause", leave_outage),
    "a long pass takes nothing over": (False, Scheduler, "meanwhile", only_promote_meanwhile),
    "the living have no time to renew": (False, carrier_state, "SETTLING", 0),
    "a stop ends the time to renew": (False, Stop, "sleep", forget_the_stop),
}
seeking = hypothesis_settings(often, max_examples=500, phases=[Phase.generate])


@pytest.mark.soak
@on_sqlite
@pytest.mark.parametrize("bug", BUGS)
def test_a_rule_that_is_broken_is_found(hold_promises, monkeypatch, bug):
    askable, owner, name, broken = BUGS[bug]
    assert hasattr(owner, name) or name in owner.__annotations__, "it has another name now"
    monkeypatch.setattr(owner, name, broken, raising=False)
    with pytest.raises(AssertionError):
        hold_promises(askable, seeking)
