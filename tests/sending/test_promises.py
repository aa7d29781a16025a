"""The promises about a message, whatever happens in whatever order.

Hypothesis plays clients, operators, recipients, the carrier, the clock and two schedulers over the
real tables. A scheduler runs as a greenlet that stops before each use of the database, so the
machine decides who goes on, who stands still and who dies. Every run can be repeated.
"""

import dataclasses
import sys
from collections import Counter
from concurrent.futures import Future
from datetime import timedelta
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
from access.do_not_call import DoNotCall
from carriers import Carrier, CarrierError, OptOut, Receipt
from databases import on_sqlite
from models import FINISHED, TAKEN, Message, Status, first_id
from recipients.hours import BusinessHours
from samples import NEW_YORK, TUESDAY_NOON
from scheduler import Scheduler
from sending import claims, outcomes, receipts
from sending.outcomes import MAY_HAVE_TAKEN_IT
from sending.receipts import KEPT
from sending.runtime import Clock, Ended, Runtime
from sending.sender import Sender
from sending.sends import NotSent, Send
from stored_messages import create

NUMBERS = (NEW_YORK, "+12125550188")
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
CLAIM_TIMEOUT, EXPIRE_AFTER = 60, 3 * DAY
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
    "too fast": (False, {"too_fast": True}),
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


class FakeCarrier(Carrier):
    """Do with each text as the machine says."""

    name = "fake"

    def __init__(self, machine, askable):
        self.machine, self.can_be_asked = machine, askable
        self.fates = repeat(YES)

    def send(self, to, text, *, message_id, valid_for):
        return self.machine.given(to, text, message_id, valid_for, next(self.fates))

    def find(self, to, text, since):
        fate = next(self.fates)
        _, no = FATES[fate]
        if no is not None:
            raise CarrierError(fate, **no | {"in_doubt": False})
        return [c.reference for c in self.machine.copies if c.alike == (to, text) and c.at >= since]


def pause():
    """Let the machine decide what happens next."""
    getcurrent().parent.switch()


class MachineClock(Clock):
    """A clock that stands still until the machine moves it."""

    def __init__(self):
        self.instant = TUESDAY_NOON

    def now(self):
        return self.instant

    def monotonic(self):
        return self.instant.timestamp()

    def sleep(self, seconds):
        getcurrent().sender.waits = True
        pause()


class PausingSender(Sender):
    def retry_through_outage(self, action, *arguments):
        pause()
        return super().retry_through_outage(action, *arguments)


class PausingScheduler(Scheduler):
    """A scheduler that pauses before each use of the database, and while it waits."""

    process, waits = None, False

    def __init__(self, settings, carrier, clock):
        runtime = Runtime(clock, Pool, Calls)
        super().__init__(settings, carrier, runtime)
        self.sender = PausingSender(settings, carrier, self.stop, runtime=runtime)
        self.calls = []

    def go_on(self):
        """Run up to the next pause; begin a pass if none is under way."""
        if not self.process:
            if self.stop.is_requested:  # that process has ended
                self.__init__(self.settings, self.carrier, self.clock)
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
        self.sender.carrier.machine.judged(action, arguments)
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
    "count": st.integers(1, 2),
}


class Promises(RuleBasedStateMachine):
    """Everybody who has to do with messages, and what must be true of these meanwhile."""

    which, either = st.integers(0, 3), st.integers(0, 1)
    later = st.sampled_from(LATER)
    fates = st.lists(st.sampled_from([YES, YES, YES, LOST, LOST, *FATES]), min_size=1, max_size=2)

    def __init__(self, settings, clock, askable):
        super().__init__()
        for table in reversed(database.Table.__subclasses__()):
            table.delete().execute()
        self.clock, clock.instant = clock, TUESDAY_NOON
        self.settings, self.hours = settings, BusinessHours.from_settings(settings)
        self.carrier = FakeCarrier(self, askable)
        self.senders = [PausingScheduler(settings, self.carrier, clock) for _ in range(2)]
        self.orders, self.copies, self.serial = {}, [], count()
        self.budget = Counter()  # by number and text, how many the carrier may get
        self.named = {}  # by each reference that was ever recorded, its message
        self.said = {}  # by the reference, whether it arrived and when that was said

    @property
    def now(self):
        return self.clock.instant

    # Clients, operators, recipients

    @initialize(**ORDERS)
    def begin(self, **order):
        self.store(**order)

    @rule(**ORDERS)
    def create(self, **order):
        self.store(**order)

    def store(self, to, max_retries, check_dnc, manual_mode, send_in, count, text="Hello"):
        """A client asks for a text, or for two equal ones."""
        if check_dnc and DoNotCall.lists(to):
            return
        send_date = send_in and self.now + send_in * SECOND
        send_at = send_date or self.next_opening(to) or self.now
        for _ in range(count):
            id = UUID(int=first_id(self.now).int + next(self.serial))
            create(
                text, id=id, to=to, max_retries=max_retries, check_dnc=check_dnc,
                manual_mode=manual_mode, send_date=send_date, send_at=send_at,
                status=Status.SCHEDULED if send_at > self.now else Status.QUEUED,
            )  # fmt: skip
            self.orders[id] = Order(to, text, max_retries, send_at, not manual_mode)
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
            if message.retry(self.now):
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
        before = self.now - 3 * DAY
        old = (Message.finished_at < before) & Message.status.in_(FINISHED)
        may_go = {message.id for message in Message.select(Message.id).where(old)}
        change(before, self.now)
        gone = self.orders.keys() - {message.id for message in Message.select(Message.id)}
        assert gone <= may_go
        for id in gone:
            del self.orders[id]

    # Schedulers and the clock

    @rule(which=either, later=later, fates=fates)
    def make_pass(self, which, later, fates, until=END):
        """A scheduler makes a pass or ends one, or goes on up to a moment and stands still."""
        self.clock.instant += later * SECOND
        self.carrier.fates = chain(fates, repeat(fates[-1]))
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
            self.senders[which] = PausingScheduler(self.settings, self.carrier, self.clock)

    # The carrier

    def judged(self, action, arguments):
        """Check what a scheduler begins."""
        if action == self.carrier.find:
            return
        (send,) = arguments
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

    def given(self, to, text, message_id, valid_for, fate):
        """Check what a carrier is given; return its reference, or raise its no."""
        message = Message.get(Message.id == message_id)
        order = self.orders[message.id]
        assert (order.to, order.text) == (to, text)
        assert message.status == Status.SENDING
        assert self.now + (valid_for - 1) * SECOND < message.first_send_at + EXPIRE_AFTER
        order.sends += fate not in FREE
        assert order.sends <= order.max_retries + 1 + message.take_overs
        taken, no = FATES[fate]
        if taken:
            settled = self.carrier.can_be_asked  # its copy may have become an equal text's
            assert message.in_doubt or settled or not order.copies, (
                "a second copy only after a doubt"
            )
            order.copies += 1
            copy = Copy(message.id, (to, text), f"SM{len(self.copies)}", self.now)
            self.copies.append(copy)
        if no is not None:
            raise CarrierError(fate, **no)
        return copy.reference

    @precondition(lambda self: self.copies)
    @rule(which=which, words=st.lists(st.booleans(), min_size=1, max_size=2))
    def receipt(self, which, words):
        """Receipts of a copy whose answer is known or is not, the first time or again."""
        reference = self.copies[-1 - which % len(self.copies)].reference
        for delivered in words:
            receipts.record([Receipt(reference, delivered)], self.now, False)
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
        if not self.carrier.can_be_asked:
            return
        open = Counter(
            (order.to, order.text)
            for id, order in self.orders.items()
            if messages[id].status not in FINISHED
        )
        copies = Counter(copy.alike for copy in self.copies)
        unknown = Counter(copy.alike for copy in self.copies if copy.reference not in self.named)
        assert copies <= self.budget, "it never gets two copies"
        assert unknown <= open, "what it has taken is sent"

    def note_reference(self, id, reference):
        if reference not in self.named and reference in self.said:
            _, at = self.said[reference]
            if at and at < self.now - KEPT:
                self.said[reference] = None, None  # it may be forgotten
        assert self.named.setdefault(reference, id) == id, "one copy is one message's"

    def check(self, message, order):
        if message.status not in TAKEN:  # asking in doubt counts, too
            assert message.attempts <= order.max_retries + 1
        own = [copy for copy in self.copies if copy.reference == message.carrier_reference]
        if message.status in TAKEN:
            (copy,) = own
            assert copy.alike == (order.to, order.text)
            assert copy.id == message.id or self.carrier.can_be_asked  # equal texts are alike
            self.check_receipt(message)
        may_have = MAY_HAVE_TAKEN_IT in (message.last_error or "")
        if message.status == Status.FAILED:
            if self.carrier.can_be_asked:
                assert not may_have
            else:
                assert may_have or not order.copies
        if not self.carrier.can_be_asked:
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


often = hypothesis_settings(
    deadline=None,
    database=None,
    derandomize=True,
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

    def hold(askable, how):
        def machine():
            return Promises(settings, clock, askable)

        run_state_machine_as_test(machine, settings=how)

    return hold


@pytest.mark.parametrize("askable", [True, False])
def test_the_promises_hold_whatever_happens(hold_promises, askable):
    hold_promises(askable, often)


@pytest.mark.soak
@pytest.mark.parametrize("askable", [True, False])
def test_the_promises_hold_for_long(hold_promises, askable):
    hold_promises(askable, hypothesis_settings(often, max_examples=1000, derandomize=False))


# Does it find anything? Each of these breaks a rule.

judge, take_over, claim = outcomes.judge, claims.take_over, claims.claim


def judge_without_asking(message, rules, *rest):
    return judge(message, rules._replace(askable=False), *rest)


def judge_without_quiet_hours(message, rules, *rest):
    hours = rules.hours._replace(quiet=None)
    return judge(message, rules._replace(hours=hours), *rest)


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


ANY = dict.fromkeys([Status.DELIVERED, Status.UNDELIVERED], models.has_status(*TAKEN))
FOR_EVER = property(lambda _: float("inf"), lambda *_: None)
BUGS = {  # whether the carrier can be asked; and the code that is replaced, by something wrong
    "it never asks": (True, outcomes, "judge", judge_without_asking),
    "a dead sender leaves no doubt": (True, claims, "take_over", take_over_without_doubt),
    "it takes the reference of another": (True, receipts, "known", lambda _: set()),
    "it looks for no approval": (False, claims, "claim", claim_without_approval),
    "it does not look at the list": (False, DoNotCall, "listed", lambda _: set()),
    "it sends at any hour": (False, outcomes, "_opening", lambda *_: None),
    "it knows no quiet hours": (False, outcomes, "judge", judge_without_quiet_hours),
    "it sends after a long pause": (False, Send, "held_until", FOR_EVER),
    "it sends what is cancelled": (False, outcomes, "judge", judge_without_cancelling),
    "the last receipt counts": (False, receipts, "_MAY_BECOME", ANY),
    "an early receipt is lost": (False, receipts, "_keep", lambda _: None),
    "nothing is taken over": (False, claims, "take_over", lambda _: 0),
}
seeking = hypothesis_settings(often, max_examples=500, phases=[Phase.generate])


@pytest.mark.soak
@on_sqlite
@pytest.mark.parametrize("bug", BUGS)
def test_a_rule_that_is_broken_is_found(hold_promises, monkeypatch, bug):
    askable, *code = BUGS[bug]
    monkeypatch.setattr(*code, raising=False)
    with pytest.raises(AssertionError):
        hold_promises(askable, seeking)
