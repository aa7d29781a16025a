"""The promises about a message, whatever happens in whatever order.

Hypothesis plays clients, testers, operators, recipients, the carrier, a clock that is set, a
database that fails, and two schedulers over the real tables. Schedulers, their threads and people
run as greenlets, which stop before each statement or transaction and while they wait, so the
machine decides who goes on, who stands still and who dies. A run begins within a scene, where a few
steps decide. Every run can be repeated.
"""

import dataclasses
import logging
import math
import secrets
import sys
import uuid
from collections import Counter
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import chain, count, repeat
from random import Random
from uuid import UUID

import pytest
from greenlet import getcurrent, greenlet
from hypothesis import HealthCheck, Phase, assume
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
from playhouse.migrations import Runner
from psycopg.pq import TransactionStatus

import models
from databases import on_both, on_sqlite
from faulty_database import FaultyDatabase
from running import ROOT
from samples import DAY, HOUR, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import create, key_named
from texting import carriers, database, recipients
from texting.access import do_not_call
from texting.access.do_not_call import DoNotCall, OptedOut
from texting.access.keys import ApiKey, Role
from texting.carriers import Carrier, CarrierError, Fault, Outgoing, Receipt, key_of
from texting.carriers.lanes import TESTERS, Lane, Routes
from texting.messages import doubts, early_receipts, model, receipts, waiting
from texting.messages.attempts import IS_ORPHANED, Attempt
from texting.messages.decisions import UNDO_FOR_CERTAIN, Selection
from texting.messages.early_receipts import EarlyReceipt
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import ANSWER_WITHIN, FINISHED, TAKEN, Message, Status, first_id
from texting.recipients.hours import BusinessHours
from texting.recipients.quiet import QuietPlaces
from texting.replies import inbound
from texting.replies.inbound import ReplyRules
from texting.sending import carrier_state, heartbeats, outcomes, questions, retention
from texting.sending.carrier_state import CarrierState, Permission
from texting.sending.claims import Turns
from texting.sending.heartbeats import FRESH, WATCHED, Pulse
from texting.sending.outcomes import MAY_HAVE_TAKEN_IT
from texting.sending.questions import Questions
from texting.sending.runtime import Clock, Ended, Runtime
from texting.sending.sender import Sender
from texting.sending.sends import SHORTEST_VALIDITY, Kind, NotSent, Send, Sends
from texting.sending.watch import CarrierWatch

pytestmark = on_both

NUMBERS = (NEW_YORK, "+12125550188")
CLAIM_TIMEOUT, EXPIRE_AFTER = 60, 3 * DAY
PAUSE = 30  # seconds that the carrier asks for with its "too fast"
LATER = (0, 0, 0, 5, 10, 15, 30, 70, 70, 70, 400, 3600, 13 * 3600, 16 * 3600, 80 * 3600)  # seconds
WAITS = 5  # seconds that pass while a scheduler waits
SHOWN_AFTER = 9  # seconds after a text was taken, a carrier's list shows it
TAKES = 1  # seconds, a batch of many
LONGEST_PASS = 100_000  # steps
BEGUN, WAITING, GIVEN, HEARD, IDLE, END = "begun", "waiting", "given", "heard", "idle", "end"
KEPT = "kept"
MOMENTS = (BEGUN, WAITING, KEPT, GIVEN, GIVEN, HEARD, IDLE, 1, 2, 5, 9, 20, 45)  # or so many steps

KEEPS, TELLS = "keeps ids", "keeps ids, and tells of them"  # what a carrier can do about a doubt
YES, LOST = "yes", "taken, and no answer"
FATES = {  # whether the carrier takes it, and what its no says
    YES: (True, None),
    LOST: (True, {"in_doubt": True, "silent": True}),
    "no answer": (False, {"in_doubt": True, "silent": True}),
    "for now": (False, {}),
    "for good": (False, {"fault": Fault.PERMANENT}),
    "too fast": (False, {"fault": Fault.TOO_FAST, "retry_after": PAUSE}),
    "account": (False, {"fault": Fault.ACCOUNT}),
    "unreached": (False, {"unreached": True}),
}
# These cost no retry, or not always: a text that goes first after a pause may find silence
FREE = ("too fast", "account", "unreached", "no answer", "taken, and no answer")


MOVES = ["approve", "approve at the desk", "undo", "refuse", "cancel", "cancel", "bring back"]
MOVES += ["retry"]
PEOPLE = ("ann", "bob")


@dataclasses.dataclass
class Order:
    """What was asked for, and what has happened since it was, or since somebody retried it."""

    to: str
    text: str
    max_retries: int
    not_before: object
    approved: bool
    is_testers: bool = False
    answers_by: Carrier | None = None  # the only one that may be given it
    cancelled: bool = False
    sends: int = 0  # that cost a retry
    copies: int = 0  # that carriers took
    deaths: int = 0  # of schedulers that had it in hand, or gave it again
    first: object = None  # `not_before` as it was before the desk approved it


@dataclasses.dataclass
class Copy:
    """A text that the carrier took."""

    id: object
    key: str  # by which a carrier that keeps ids knows it
    alike: tuple
    reference: str
    at: object  # by the carrier's own clock, which nobody sets
    carrier: Carrier


class FakeCarrier(Carrier):
    """Do with each text as the machine says; the simulator of testers takes them all."""

    machine, can_look_up = None, False

    def __init__(self, askable, name, list_of=None):
        self.can_be_asked, self.name, self.list_of = askable is True, name, list_of
        self.keeps_ids = timedelta.max if askable in (KEEPS, TELLS) else None
        self.can_look_up = askable == TELLS
        self.fates, self.health = repeat(YES), YES
        self.burst = []  # receipts of others, which its session delivers
        self.connects_in = 0  # seconds

    @property
    def url(self):
        return f"fake://here#name={self.name}"

    def send(self, outgoing):
        to, text, message_id, key, valid_for = outgoing
        return self.machine.given(self, to, text, message_id, valid_for, next(self.fates), key)

    @contextmanager
    def session(self):
        seconds, self.connects_in = self.connects_in, 0  # it stays
        if seconds:
            getcurrent().actor.wait(seconds)
        yield

    def check(self):
        if self.health in ("unreached", "too fast"):
            _, no = FATES[self.health]
            raise CarrierError(self.health, **no)

    def look_up(self, key):
        self.answer()
        copy = self.machine.kept(self, key)
        return copy and copy.reference

    def answer(self):
        """Answer a question, or raise why not."""
        fate = next(self.fates)
        _, no = FATES[fate]
        if no is not None:
            raise CarrierError(fate, **no | {"in_doubt": False})

    def find(self, to, text, since):
        self.answer()
        shown = self.machine.clock.instant - SHOWN_AFTER * SECOND
        own = [copy for copy in self.machine.copies if copy.carrier.lists_with(self)]
        own = [copy for copy in own if copy.alike == (to, text) and since <= copy.at <= shown]
        return [copy.reference for copy in own]

    def received(self):
        some, self.burst = self.burst[:2], self.burst[2:]
        self.machine.clock.instant += bool(some) * TAKES * SECOND
        return some

    def lists_with(self, other):
        """Whether its texts are in the list of another."""
        return self is other or (self.list_of is not None and self.list_of == other.list_of)


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
        getcurrent().actor.wait(seconds)


class PausingDatabase(FaultyDatabase):
    """A database before which actors pause outside transactions, and which fails schedulers."""

    def open(self, cursor, *name):
        actor = getattr(getcurrent(), "actor", None)
        if actor is None or actor.is_aside:
            return cursor(*name)
        if not (actor.holds or is_in_transaction(database.db.connection())):
            pause()
            actor.resumed()
        return super().open(cursor, *name) if actor.may_fail else cursor(*name)

    def done(self):
        """Let time pass before a scheduler hears that something is kept."""
        actor = getcurrent().actor
        if actor.hears_late and not is_in_transaction(database.db.connection()):
            actor.waits_to_hear = True
            pause()
            actor.waits_to_hear = False


def is_in_transaction(connection):
    if database.db.product == "SQLite":
        return connection.in_transaction
    return connection.info.transaction_status != TransactionStatus.IDLE


class Actor:
    """Somebody who pauses before each use of the database."""

    is_aside = False  # while the machine itself looks
    holds = False  # no pause within what it does
    hears_late = False
    may_fail = False

    def resumed(self):
        """Go on after such a pause."""

    @contextmanager
    def aside(self):
        """Let the machine look into the database."""
        before, self.is_aside = self.is_aside, True
        yield
        self.is_aside = before


class Person(Actor):
    """Somebody who decides about a message."""

    def __init__(self, decide):
        self.decision = greenlet(decide)
        self.decision.actor = self

    def go_on(self):
        self.decision.switch()
        return not self.decision


class PausingScheduler(Actor, Scheduler):
    """A scheduler that pauses before each use of the database, and while it waits."""

    process, waits, waits_to_hear, has_passed, may_fail = None, False, False, False, True
    looked = -1  # how many pauses there had been when it looked at the carrier's state last
    pauses_seen = None  # the same since an action began

    def __init__(self, machine):
        self.machine, self.calls = machine, []
        runtime = Runtime(machine.clock, self.submit, Calls)
        first, *others = machine.carriers
        super().__init__(machine.settings, first, runtime, others)

    def submit(self, action, *arguments):
        """Let the machine call what a thread would."""
        if arguments and isinstance(arguments[0], Send):
            with self.aside():
                self.machine.judged(self, action, *arguments)
        self.calls.append(Call(self, action, arguments))
        return self.calls[-1].future

    def resumed(self):
        if self.pauses_seen is None:
            self.pauses_seen = self.machine.pauses

    def wait(self, seconds):
        self.waits = True
        pause()

    def retry(self, action, *arguments):
        def begin():
            pause()
            self.pauses_seen = None
            return action(*arguments)

        with self.aside():
            note = self.machine.watch(self, action, arguments)
        self.holds = action.__name__ in ("claim", "record_answers")
        self.hears_late = action.__name__ in ("claim", "tend")
        try:
            result = super().retry(begin)
        finally:
            self.holds = self.hears_late = False
        with self.aside():
            note()
            self.machine.note_beats()
        return result

    def promote(self, now):
        return self.taking(super().promote(now))

    def expire(self, now):
        return self.taking(super().expire(now))

    def taking(self, is_any):
        """Let a batch take time, while there are many."""
        self.clock.instant += is_any * self.machine.are_many * TAKES * SECOND
        return is_any

    def go_on_until(self, until):
        super().go_on_until(until)
        if self.machine.every:
            self.has_passed = True
            pause()

    def sender_of(self, carrier):
        return next(each for each in self.senders if each.carrier is carrier)

    def go_on(self):
        """Run up to the next pause; begin a pass if none is under way."""
        if not self.process:
            if self.process is not None:  # it has ended
                self.__init__(self.machine)
            self.process = greenlet(partial(self.run, self.machine.every, lambda counts: None))
            self.process.actor = self
        self.waits = self.has_passed = False
        self.process.switch()

    def moments(self):
        """Make a pass, or go on with one, to its end; yield whatever happens."""
        begun_at = self.clock.monotonic()
        for _ in range(LONGEST_PASS):
            now = self.clock.monotonic()
            ready = [call for call in self.calls if call.answer or call.goes_on_at <= now]
            if ready and (self.waits or now - ready[0].judged_at >= WAITS):
                call = next((call for call in ready if not call.answer), ready[0])
                if not call.answer:
                    yield BEGUN
                    if not call.answer:  # its thread has not gone on by itself
                        call.go_on()
                    yield GIVEN if call.answer else WAITING
                if call.answer:
                    self.calls.remove(call)
                    call.end()
                    yield HEARD
            elif self.waits:
                self.clock.instant += WAITS * SECOND
            self.go_on()
            self.machine.note_beats()
            if not self.process:
                return
            self.check_life(begun_at)
            yield KEPT if self.waits_to_hear else IDLE if self.waits else None
            if self.has_passed:
                self.check_hands()
                return
        raise AssertionError("a pass ends")

    def check_hands(self):
        """Check that what is open in its name is in its hands."""
        answered = chain.from_iterable(each.recorder.unrecorded for each in self.senders)
        sends = {each.send for each in answered} | {call.send for call in self.calls}
        unheard = [*self.ended.queue]  # of a call that ended while it did other things
        sends |= {each.sends.under_way.get(future) for each in self.senders for future in unheard}
        known = {each.message.id for each in sends if each}
        if self.clock.monotonic() - self.machine.failed_at > FRESH:
            open = {each.message_id for each in Attempt.under_way(self.pulse.sender)}
            assert open <= known, "what is open is in hand"

    def check_life(self, begun_at):
        """Check that it beats with texts in hand, and ends in time, while it is let run."""
        begun_at = max(begun_at, self.machine.failed_at)
        now = self.clock.monotonic()
        is_alive = now - max(begun_at, self.pulse.beaten_at) <= FRESH
        assert is_alive or not self.is_busy, "it beats"
        assert now - max(begun_at, self.stop.by) <= FRESH, "it ends in time"


class Call(Actor):
    """What a thread of a scheduler does: it begins when the machine says, and so it ends."""

    is_aside = True

    def __init__(self, scheduler, action, arguments):
        self.scheduler, self.clock = scheduler, scheduler.clock
        self.action, self.arguments = action, arguments
        self.send = next((each for each in arguments if isinstance(each, Send)), None)
        self.future, self.answer = Future(), None
        self.thread, self.goes_on_at = None, 0
        self.judged_at = self.clock.monotonic()

    def go_on(self):
        """Go on until it waits, or the carrier has it: what it answers is not known yet."""
        if self.thread is None:
            self.thread = greenlet(self.talk)
            self.thread.actor = self
        self.thread.switch()

    def reach(self):
        """Go on until the carrier has it."""
        while not self.answer:
            left = max(0, self.goes_on_at - self.clock.monotonic())
            self.clock.instant += left * SECOND
            self.go_on()

    def talk(self):
        try:
            self.answer = self.future.set_result, self.action(*self.arguments)
        except (CarrierError, NotSent, NotImplementedError) as error:
            self.answer = self.future.set_exception, error

    def wait(self, seconds):
        self.goes_on_at = self.clock.monotonic() + seconds
        pause()

    def end(self):
        tell, answer = self.answer
        tell(answer)


class Calls(Ended):
    """The calls that have ended."""

    def gather(self, seconds):
        """Return them, after the machine has decided what happens meanwhile."""
        getcurrent().actor.waits = self.empty() and seconds > 0
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
    "alike": st.booleans(),
}


SCENES = (
    *("nothing_yet", "pause_is_lengthened", "probe_is_heard_late", "doubt_is_settled_in_pause"),
    *("doubt_goes_first", "outage", "jump_beside_living", "death_beside_long_pass", "help"),
    *("doubt_beside_equal", "life_after_death", "late_no", "late_thread", "cancelled_in_doubt"),
    *("send_date_at_night", "early_receipt", "late_in_list", "fast_clock"),
    *("claim_unheard", "burst_of_receipts", "many_at_once", "rate", "second_thoughts"),
    *("slow_connection", "claim_heard_late", "judged_long_ago", "doubt_after_equal"),
    "doubts_are_retried",
)


LEFT_AT = TUESDAY_NOON - 10 * MINUTE
"""When the schedulers of 1.0.0 died."""

AT = Message.send_at.db_value(LEFT_AT)
DEAD, GONE = UUID(int=1), UUID(int=2)
"""One of them, and one of which not even the heartbeat is left."""

TRIES = {
    "refused": {"result": "refused"},
    "taken": {"result": "taken"},
    "delivered": {"result": "taken", "receipt": "delivered"},
    "undelivered": {"result": "taken", "receipt": "undelivered"},
    "unclear": {"result": "unclear", "ask_at": AT},
    "forgotten": {"result": "unclear"},
    "asking": {"result": "unclear", "ask_at": AT, "sender": DEAD},
    "asked": {"result": "unclear", "ask_at": AT, "sender": GONE},
    "giving": {"sender": DEAD},
    "given": {"sender": GONE},
}
MAY_BE_TAKEN = ("unclear", "forgotten", "asking", "asked", "giving", "given")
LEFT = (  # by 1.0.0: the status of a text, and its tries; "|" is a person's retry
    *("sent taken", "delivered refused delivered", "undelivered undelivered", "blocked", "expired"),
    *("failed refused refused refused", "cancelled", "scheduled", "queued", "scheduled refused"),
    *("sending giving", "sending refused given", "scheduled unclear", "scheduled refused unclear"),
    *("scheduled asking", "queued asked", "sending undelivered | giving"),
    *("queued undelivered | unclear", "queued undelivered |"),
)
LEFT_IN_DOUBT = (  # where a carrier cannot be asked
    *("sent taken giving", "failed unclear unclear", "scheduled forgotten"),
    *("sending unclear giving", "sending forgotten given", "scheduled unclear | unclear"),
)
COLUMNS = {  # what else is true of some of these
    "scheduled": {"approved": False},
    "scheduled refused unclear": {"cancelled_by": "ann"},
    "queued undelivered |": {"lane": "US?(forgotten)"},  # it was in doubt
    "failed unclear unclear": {"last_error": MAY_HAVE_TAKEN_IT},
}


def insert(table, **row):
    """Insert a row of a version whose columns are not those of the models."""
    row = {name: value.hex if isinstance(value, UUID) else value for name, value in row.items()}
    names, marks = ", ".join(f'"{name}"' for name in row), ", ".join([database.db.param] * len(row))
    database.db.execute_sql(f"INSERT INTO {table} ({names}) VALUES ({marks})", [*row.values()])


def is_kept_off(number, check_dnc):
    """Say whether the Do Not Call list keeps a text from a number: who opted out gets none."""
    return OptedOut.lists(number) or (check_dnc and DoNotCall.lists(number))


class Promises(RuleBasedStateMachine):
    """Everybody who has to do with messages, and what must be true of these meanwhile."""

    which, either = st.integers(0, 3), st.integers(0, 1)
    later = st.sampled_from(LATER)
    fate = st.sampled_from([YES, YES, YES, LOST, LOST, "too fast", "too fast", *FATES])
    fates = st.lists(fate, min_size=1, max_size=2)

    def __init__(self, settings, clock, faulty, simulator, askable, *others_askable, account=None):
        super().__init__()
        self.faulty, self.failed_at = faulty, -math.inf
        faulty.fail_at(0)
        for table in reversed(models.TABLES):
            table.delete().execute()
        self.clock, clock.instant, clock.ahead = clock, TUESDAY_NOON, timedelta(0)
        ApiKey.issue("tester", None, self.now, role=Role.TESTER)
        self.tester, self.key = ApiKey.named("tester").id, key_named("app").id
        self.common, self.hours = settings, BusinessHours.from_settings(settings)
        others = [FakeCarrier(each, "other", account) for each in others_askable]
        # In the order of preference
        self.carriers = [FakeCarrier(askable, "fake", account), *others]
        self.carrier, self.simulator = self.carriers[0], simulator
        for each in (*self.carriers, simulator):
            each.machine = self
        self.orders, self.copies, self.serial = {}, [], count()
        self.budget = Counter()  # by number and text, how many copies are asked for
        self.tries = Counter()  # by the same, how often, with retries
        self.named = {}  # by each reference that was ever recorded, its message
        self.said = {}  # by the reference, whether it arrived and when that was said
        # The pause "too fast": how many there were, when it ends by the monotonic clock, and
        # whether one text goes first, which one, and since when
        self.pauses, self.paused_until, self.goes_first = 0, 0, False
        self.first, self.first_at = None, 0
        self.begun = {}  # texts, and how many pauses their schedulers knew of
        self.beats = {}  # by the sender, how often it has beaten, and when last
        self.every = None  # seconds between passes; None for single ones
        self.are_many, self.people, self.set_at = False, {}, -math.inf
        self.scene = self.fate = None  # to begin with; None for any
        self.restart()

    def restart(self):
        """Begin with new schedulers; those before are killed."""
        self.senders = [PausingScheduler(self) for _ in range(2)]

    @property
    def now(self):
        return self.clock.now()

    @property
    def settings(self):
        return self.common._replace(carrier_url=" ".join(each.url for each in self.carriers))

    @property
    def others(self):
        return [each for each in self.carriers if each is not self.carrier]

    def at(self, name):
        """Return the carrier of a name."""
        if name == TESTERS:
            return self.simulator
        return next(each for each in self.carriers if name == each.name)

    def carriers_for(self, order):
        if order.answers_by:
            return [order.answers_by]
        return [self.simulator] if order.is_testers else self.carriers

    # Clients, operators, recipients

    @initialize(
        is_simplest=st.sampled_from([True, False, False, False]),
        scene=st.sampled_from(SCENES),
        fate=fate,
        every=st.sampled_from([None, 30]),
        **ORDERS,
    )
    def begin(self, is_simplest, scene, fate, every, **order):
        """Begin within a scene that chance alone would seldom come to.

        Hypothesis first tries the simplest run of all, which only restarts schedulers.
        """
        assume(not is_simplest)
        getattr(self, self.scene or scene)(self.fate or fate)
        self.every = self.every or every
        self.store(**order)

    @rule(**ORDERS)
    def create(self, **order):
        self.store(**order)

    def store(
        self, to, max_retries, check_dnc, manual_mode, send_in, count, tester=False, alike=False
    ):
        """A client asks for some texts, which may be equal to one another and to earlier ones."""
        key = self.tester if tester else self.key
        if is_kept_off(to, check_dnc) or ApiKey.get_by_id(key).paused_at:
            return
        word = "Test" if tester else "Hello"
        send_date = send_in and self.now + send_in * SECOND
        send_at = send_date or self.next_opening(to) or self.now
        for _ in range(count):
            number = next(self.serial)
            id = UUID(int=first_id(self.now).int + number)
            text = word if alike else f"{word} {number}"
            create(
                text, id=id, to=to, max_retries=max_retries, check_dnc=check_dnc,
                manual_mode=manual_mode, send_date=send_date, send_at=send_at,
                status=Status.SCHEDULED if send_at > self.now else Status.QUEUED, key=key,
            )  # fmt: skip
            self.orders[id] = Order(to, text, max_retries, send_at, not manual_mode, tester)
            self.budget[to, text] += 1
            self.tries[to, text] += 1

    def next_opening(self, to):
        """Return when business hours begin; None where they have begun."""
        recipient = recipients.find(to)
        if self.hours.is_open(recipient.clocks, self.now):
            return None
        return self.hours.next_opening(recipient.clocks, self.now)

    @precondition(lambda self: self.orders)
    @rule(who=either, which=which, move=st.sampled_from(MOVES), at_once=st.booleans())
    def move(self, which, move, who=0, at_once=True):
        """A person moves one of the latest messages, or hesitates meanwhile."""
        id = [*self.orders][-1 - which % len(self.orders)]
        name, pending = PEOPLE[who], self.people.pop(who, None)
        while pending and not pending.go_on():
            pass
        person = Person(partial(self.decide, id, move, name))
        while not person.go_on():
            if not at_once:
                self.people[who] = person
                return

    @precondition(lambda self: self.people)
    @rule(who=either)
    def go_on_deciding(self, who):
        """Somebody takes the next step of what was begun."""
        if who in self.people and self.people[who].go_on():
            del self.people[who]

    def decide(self, id, move, name):
        """Decide on a message, and note what must be true from now on."""
        these, order = Selection([id]), self.orders[id]
        if move == "retry":
            getcurrent().actor.holds = True
            before = Message.get_or_none(Message.id == id)
            if these.retry(self.now, 3 * DAY):
                order.cancelled, order.sends, order.copies, order.deaths = False, 0, 0, 0
                order.not_before = max(self.now, before.send_date or self.now)
                if before.status == Status.UNDELIVERED:
                    self.budget[order.to, order.text] += 1
                self.tries[order.to, order.text] += 1
        elif move == "cancel":
            order.cancelled |= bool(these.cancel(name, self.now))
        elif move == "bring back":
            order.cancelled &= not these.undo_cancel(name, self.now)
        elif move == "approve at the desk":
            not_before = self.now + UNDO_FOR_CERTAIN
            if these.decide(True, name, self.now, not_before):
                order.approved, order.first = True, order.not_before
                order.not_before = max(order.not_before, not_before)
        elif move == "undo":
            if these.undo_approval(name, self.now):
                order.approved, order.not_before = False, order.first or order.not_before
        elif these.decide(move == "approve", name, self.now):
            order.approved |= move == "approve"
            order.cancelled |= move == "refuse"

    @rule(of_tester=st.booleans(), on=st.sampled_from([True, False, False]))
    def pause_key(self, of_tester, on):
        """A key is paused or resumed."""
        key = ApiKey.get_by_id(self.tester if of_tester else self.key)
        if on:
            key.pause(self.now)
        else:
            key.resume(self.now)

    @rule(
        which=which,
        number=st.sampled_from(NUMBERS),
        word=st.sampled_from(["STOP", "START", "HELP"]),
    )
    def reply(self, which, number, word):
        """A recipient replies, and is answered if a text came from this carrier."""
        had_opted_out, was_entered = OptedOut.lists(number), DoNotCall.lists(number)
        carrier = self.carriers[which % len(self.carriers)]
        rules = ReplyRules.of(self.settings, carrier.name)
        inbound.record([carriers.IncomingText(number, word)], self.now, rules)
        has_opted_out = {"STOP": True, "START": False, "HELP": had_opted_out}
        assert OptedOut.lists(number) == has_opted_out[word]
        assert DoNotCall.lists(number) == was_entered
        for answer in Message.select().where(Message.id.not_in([*self.orders])):
            self.orders[answer.id] = Order(
                number, answer.message, 0, self.now, True, answers_by=carrier
            )
            self.budget[number, answer.message] += 1
            self.tries[number, answer.message] += 1

    @rule(number=st.sampled_from(NUMBERS), which=st.sampled_from([OptedOut, DoNotCall, None]))
    def change_list(self, number, which):
        """An operator adds or removes a number; what waits for it is left to the schedulers."""
        if which:
            which.add([number], self.now, "operator")
        else:
            do_not_call.remove([number], self.now, "shell", opted_out=True)

    @precondition(lambda self: self.now > TUESDAY_NOON + 3 * DAY)
    @rule(change=st.sampled_from([retention.purge, retention.redact]))
    def grow_old(self, change):
        if change == retention.purge and self.is_asking:
            return  # who asks after days may yet take a purged text's copy for its own
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
        senders = [each for one in self.senders for each in one.senders]
        under_way = chain.from_iterable(each.sends.under_way.values() for each in senders)
        answered = chain.from_iterable(each.recorder.unrecorded for each in senders)
        return any(send.asking for send in (*under_way, *(each.send for each in answered)))

    # Schedulers and the clock

    @rule(ahead=st.sampled_from([-600, -90, 0, 0, 90, 600]))
    def set_clock(self, ahead):
        """Somebody sets the wall clock: what was due by the old one may still be sent."""
        seconds = ahead - self.clock.ahead // SECOND
        for order in self.orders.values():
            if order.not_before <= self.now:
                order.not_before += min(0, seconds) * SECOND
        self.clock.ahead += seconds * SECOND
        self.set_at = self.clock.monotonic()
        self.first = None
        if seconds > 0:  # pauses end early
            self.paused_until -= seconds

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
            self.senders[which] = PausingScheduler(self)

    @rule(which=either, later=later, fate=fate)
    def go_on_talking(self, which, later, fate):
        """Threads give a carrier what they have, while their scheduler waits for the database."""
        self.clock.instant += later * SECOND
        for each in self.carriers:
            each.fates, each.health = repeat(fate), fate
        for call in self.senders[which].calls:
            call.reach()

    @rule(number=st.integers(1, 80), times=st.sampled_from([1, 1, 5]), is_kept=st.booleans())
    def fail(self, number, times=1, is_kept=False):
        """A scheduler's statement fails, or was done and nobody hears so; so may the next ones."""
        self.let_fail(lambda place, _: number <= place < number + times, is_kept)

    def let_fail(self, which, is_kept):
        """Let those of the schedulers' statements fail that are `which(number, words)`."""

        def fails(number):
            if not which(number, self.faulty.statement):
                return False
            self.failed_at = self.clock.monotonic()
            return True

        self.faulty.statements, self.faulty.fails, self.faulty.after = 0, fails, is_kept

    @rule(seconds=st.sampled_from([0, 0, 15, 60]))
    def connect_in(self, seconds):
        """The next connection to each carrier takes so long."""
        for each in self.carriers:
            each.connects_in = seconds

    @rule(which=which, count=st.sampled_from([2, 60]))
    def receive(self, which, count):
        """A carrier's session delivers receipts, which may be many; they are of texts of others."""
        carrier, first = self.carriers[which % len(self.carriers)], next(self.serial)
        carrier.burst += [Receipt(f"other {first} {each}", True) for each in range(count)]

    @rule()
    def turn(self):
        """All restart with another CARRIER_URL: the carriers have other places."""
        self.carriers.reverse()
        self.restart()

    # Scenes to begin with: the first scheduler is 0, the second is 1

    def ask_for(self, count, alike=False):
        self.store(NUMBERS[0], 2, False, False, None, count, alike=alike)

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
        for _ in range(15):
            if self.first is None:  # the text that goes first
                self.go_on(0, "too fast", 5)
        self.go_on(1)
        for answer in (fate, YES):
            self.go_on(0, answer)

    def probe_is_heard_late(self, fate):
        """The answer to the text that goes first after a pause comes in the next pause."""
        self.ask_for(6)
        self.make_pass(0, 0, ["too fast"])
        self.make_pass(1, 70, [YES], GIVEN)
        self.make_pass(0, 70, ["too fast"])
        self.go_on(1)
        for answer in (YES, fate):
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

    def jump_beside_living(self, fate):
        """The wall clock jumps ahead beside a living scheduler; its texts remain its own."""
        self.ask_for(3)
        self.make_pass(0, 0, [fate], BEGUN)
        self.set_clock(90)
        self.go_on(1)
        self.go_on(1)
        self.go_on_talking(0, 0, fate)

    def death_beside_long_pass(self, fate):
        """A scheduler dies; another takes its texts over before its own long pass ends."""
        self.ask_for(30)
        self.make_pass(1, 0, [fate], GIVEN)
        dead = [each.message_id for each in Attempt.select().where(Attempt.result.is_null())]
        self.die(1, False)
        self.go_on(0)
        for _ in range(14):
            self.go_on(0, YES, 8)
        assert self.senders[0].process, "its pass is a long one"
        held = Message.id.in_(dead) & (Message.claim_number == 1)
        held &= Message.status == Status.SENDING
        assert not Message.select().where(held).exists(), "it is taken over"

    def doubts_are_retried(self, fate):
        """A person retries what a carrier may have taken, and which failed."""
        self.ask_for(1)
        for answer in (fate, LOST, LOST):
            self.make_pass(0, 400, [answer])
        self.move(0, "retry")
        self.make_pass(0, 0, [fate])

    def cancelled_in_doubt(self, fate):
        """A text is cancelled that the carrier may have taken."""
        self.ask_for(1)
        self.make_pass(0, 0, [fate])
        self.move(0, "cancel")
        self.make_pass(0, 400, [fate])

    def late_in_list(self, fate):
        """A carrier's list does not show yet what it has taken."""
        self.ask_for(1)
        self.make_pass(0, 0, [LOST])
        self.make_pass(0, 5, [YES])

    def fast_clock(self, fate):
        """The carrier's clock is behind when an answer is lost."""
        self.set_clock(600)
        self.ask_for(1)
        self.make_pass(0, 0, [LOST])
        self.make_pass(0, 70, [YES])
        if self.carrier.keeps_ids and not self.others:
            assert Message.get().status in TAKEN, "it is given again, or looked up"

    def early_receipt(self, fate):
        """A receipt comes before its text's acceptance is recorded."""
        self.ask_for(1)
        self.make_pass(0, 0, [YES], GIVEN)
        self.receipt(0, [True])
        self.make_pass(0, 0, [fate])

    def send_date_at_night(self, fate):
        """A send_date comes in quiet hours."""
        self.store(NUMBERS[0], 2, False, False, 13 * 3600, 1)
        self.make_pass(0, 13 * 3600, [fate])

    def doubt_beside_equal(self, fate):
        """A text waits while a carrier may have an equal one."""
        self.ask_for(1, alike=True)
        self.make_pass(1, 0, ["no answer"])
        self.ask_for(1, alike=True)
        self.make_pass(0, 0, [LOST if fate == LOST else YES], GIVEN)
        self.go_on(1, YES, 70)
        self.go_on(1)

    def doubt_after_equal(self, fate):
        """A carrier, asked about a text, tells of an equal one that it was given before, too."""
        for answer in (YES, LOST if fate == LOST else "no answer"):
            self.ask_for(1, alike=True)
            self.make_pass(0, 0, [answer])
        self.make_pass(0, 70, [YES])

    def life_after_death(self, fate):
        """A scheduler stands still, and goes on after it was declared dead; then it dies."""
        self.every = 30  # a single pass would leave the newer texts to the next
        self.ask_for(1)
        self.make_pass(1, 0, [fate], GIVEN)
        self.every = None
        self.make_pass(0, 400, [YES])
        self.ask_for(3)
        self.make_pass(1, 0, [YES], GIVEN)
        self.die(1, False)

    def late_no(self, fate):
        """A no is heard after the text was taken over, and given once more."""
        self.ask_for(1)
        self.make_pass(1, 0, ["for now"], GIVEN)
        self.make_pass(0, 400, [fate], GIVEN)
        self.make_pass(1, 0, [YES])

    def late_thread(self, fate):
        """A scheduler stands still with a text that its thread has not given yet, and is dead."""
        self.ask_for(1)
        self.make_pass(1, 0, [fate], BEGUN)
        self.make_pass(0, 400, [fate], GIVEN)
        self.go_on_talking(1, 0, fate)

    def judged_long_ago(self, fate):
        """A thread begins late with its text, and the scheduler has beaten again meanwhile."""
        self.ask_for(1)
        self.make_pass(0, 0, [fate], BEGUN)
        self.clock.instant += 30 * SECOND
        while self.senders[0].pulse.beaten_at < self.clock.monotonic():
            self.senders[0].go_on()
        self.go_on_talking(0, 0, fate)

    def claim_unheard(self, fate):
        """A claim is kept, and its scheduler does not hear so while it awaits another answer."""
        self.every = 30
        self.connect_in(15)
        self.ask_for(1)
        self.make_pass(0, 0, [fate], WAITING)
        self.ask_for(1)
        lost = []

        def is_end_of_claim(_, words):
            claims = words == "COMMIT" and getcurrent().actor.hears_late
            if claims and not lost and Message.select().where(Message.claim_number > 0).count() > 1:
                lost.append(words)
                return True
            return False

        self.let_fail(is_end_of_claim, True)
        self.make_pass(0, 0, [fate])

    def claim_heard_late(self, fate):
        """A scheduler's claim is kept; before it hears so, it is declared dead."""
        self.ask_for(1)
        while not Attempt.select().exists():
            self.make_pass(0, 0, [fate], KEPT)
        self.make_pass(1, 400, [fate], GIVEN)
        self.make_pass(0, 0, [fate], 1)
        self.go_on_talking(0, 0, fate)

    def slow_connection(self, fate):
        """While connections take long, a person decides otherwise, or a scheduler is to stop."""
        self.connect_in(15)
        self.ask_for(2)
        self.make_pass(0, 0, [fate], WAITING)

    def burst_of_receipts(self, fate):
        """A carrier's session delivers many receipts while a text is under way."""
        self.ask_for(1)
        self.make_pass(0, 0, [fate], GIVEN)
        self.receive(0, 60)

    def many_at_once(self, fate):
        """Many texts are due at once, and nobody has approved them."""
        self.are_many = True
        self.store(NUMBERS[0], 0, False, True, 60, 48)
        self.ask_for(1)
        self.make_pass(0, 0, [fate], GIVEN)
        self.go_on(0, fate, 60)

    def rate(self, fate):
        """Each text waits for SEND_RATE."""
        self.common = self.common._replace(send_rate=0.1)
        self.restart()
        self.ask_for(3)
        self.make_pass(0, 0, [fate], WAITING)

    def second_thoughts(self, fate):
        """Two people decide at once about a text that waits for approval."""
        self.store(NUMBERS[0], 2, False, True, None, 1)
        self.move(0, "approve at the desk", 0)
        self.move(0, "cancel", 1)
        self.move(0, "bring back", 1, at_once=False)
        self.move(0, "undo", 0, at_once=False)
        self.go_on_deciding(1)

    def help(self, fate):
        """A recipient asks for help."""
        self.ask_for(1)
        self.make_pass(0, 0, [YES])
        self.reply(0, NUMBERS[0], "HELP")
        self.make_pass(0, 0, [fate], GIVEN)

    def upgrade(self, fate):
        """A database of 1.0.0 is upgraded, whose schedulers died with texts in hand."""
        database.db.drop_tables(models.TABLES)
        database.db.execute_sql("DROP TABLE schema_migration")
        Runner(database.db.obj, str(ROOT / "migrations")).up("0001_tables")
        for id, name, role in (self.key, "app", "sender"), (self.tester, "tester", "tester"):
            insert("api_key", id=id, name=name, role=role, digest=name, created_at=0)
        insert("heartbeat", sender=DEAD, beats=7, beat_at=AT)
        paused = {"pause": PAUSE, "paused_at": AT, "retry_at": AT, "probe_claimed_at": AT}
        insert("carrier_state", name=self.carrier.name, probe_claimed_by=GONE, **paused)
        for words in LEFT if self.carrier.settles_doubts else LEFT + LEFT_IN_DOUBT:
            for is_taken in (False, True)[: 1 + words.endswith(MAY_BE_TAKEN)]:
                self.leave(*words.split(), is_taken=is_taken, **COLUMNS.get(words, {}))
        try:
            database.upgrade()
        except Exception:  # Hypothesis repeats the run, which begins with the tables of today
            database.db.drop_tables(models.TABLES)
            database.db.create_tables(models.TABLES)
            raise
        self.note_beats()

    def leave(self, status, *tries, is_taken, **columns):
        """Leave a text as 1.0.0 did; the carrier may have taken what is not settled."""
        number = next(self.serial)
        id = UUID(int=first_id(LEFT_AT).int + number)
        to, text = alike = NUMBERS[number % 2], f"Left {number}"
        before = tries.index("|") if "|" in tries else 0
        tries = [TRIES[each] for each in tries if each != "|"]
        since = [each.get("result") for each in tries[before:]]
        order = Order(to, text, 2, LEFT_AT, columns.get("approved", True))
        order.cancelled, order.sends = "cancelled_by" in columns, since.count("refused")
        order.deaths = sum(each.get("sender") == GONE for each in tries)
        attempts, references, lane = [], [], "US"
        for claim, each in enumerate(tries, 1):
            result, reference = each.get("result"), f"SM{len(self.copies)}"
            attempt = {"message_id": id, "claim_number": claim, "carrier": "fake", "begun_at": AT}
            attempts.append(attempt | each | {"ended_at": result and AT})
            if result == "taken" or (is_taken and result != "refused"):
                key = key_of(str(id), len(references))
                self.copies.append(Copy(id, key, alike, reference, LEFT_AT, self.carrier))
                order.copies += claim > before
            if result == "taken":
                attempts[-1]["reference"] = reference
                references.append(reference)
            if result == "unclear":
                lane += "?fake" if "ask_at" in each else "?(forgotten)"
            if "receipt" in each:
                self.said[reference] = each["receipt"] == "delivered", LEFT_AT
        message = {"id": id, "key_id": self.key, "to": to, "message": text, "status": status}
        message |= dict.fromkeys(("available_to_group", "check_dnc", "manual_mode"), False)
        message |= dict.fromkeys(("created_at", "first_send_at", "send_at"), AT)
        message |= {"approved": True, "max_retries": 2, "parts": 1, "country": "US", "lane": lane}
        message |= {"claim_number": len(tries), "claims_before_retry": before}
        message |= {"attempts": len([*filter(None, since)]), "in_doubt": since.count("unclear")}
        message["expires_at"] = Message.expires_at.db_value(LEFT_AT + EXPIRE_AFTER)
        message["finished_at"] = AT if status in FINISHED else None
        message["carrier"] = "fake" if tries else None
        message["carrier_reference"] = references[-1] if references else None
        insert("message", **message | columns)
        for attempt in attempts:
            insert("attempt", **attempt)
        self.orders[id] = order
        self.budget[alike] = self.tries[alike] = 1 + (before > 0)

    # The carrier

    def watch(self, scheduler, action, arguments):
        """Return what keeps account of pauses, once a scheduler has used the database."""
        sender = scheduler.sender_of(self.carrier)
        if action == sender.watch.permission and not sender.watch.asked:
            return partial(self.looked, scheduler)
        if action == sender.watch.record_answers:
            before = CarrierState.get_or_none(CarrierState.name == self.carrier.name)
            return partial(self.noted, *arguments, before)
        return lambda: None

    def looked(self, scheduler):
        if scheduler.pauses_seen is not None:  # it was not told to stop
            scheduler.looked = scheduler.pauses_seen
            self.goes_first &= not CarrierState.get_by_id(self.carrier.name).trouble

    def noted(self, answers, before):
        """Keep account of the pauses that answers begin and end."""
        state = CarrierState.get_by_id(self.carrier.name)
        for send, error, _ in answers:
            if send is self.first:
                self.first = None
            if isinstance(error, CarrierError) and error.fault is Fault.TOO_FAST:
                self.pauses, self.goes_first, self.first = self.pauses + 1, True, None
                until = self.clock.monotonic() + PAUSE
                self.paused_until = max(self.paused_until, until)
            elif self.begun.get(send) == self.pauses and not isinstance(error, NotSent):
                self.goes_first &= bool(error and (error.silent or error.in_doubt))
        self.goes_first &= not state.trouble  # then another rule holds
        if len(answers) == 1 and send.is_probe and send.probe == before.probe_claimed_at:
            no = error if isinstance(error, CarrierError) else None
            none = no and (no.silent or no.in_doubt or no.fault is Fault.ACCOUNT)
            is_own = not (none or isinstance(error, NotSent))
            may_last = send.asking and before.by_texts  # which a text has to end
            assert may_last or not (is_own and state.is_down), "an answer ends an outage"

    def begun_in_pause(self, scheduler, send):
        """Check that nothing goes in a pause, and one text first when it has ended."""
        now, known = self.clock.monotonic(), scheduler.looked
        self.begun[send] = known
        if known < self.pauses:  # it looked before
            return
        assert now >= self.paused_until, "nothing goes in a pause"
        if self.goes_first:
            waits = self.first is not None and now - self.first_at <= CLAIM_TIMEOUT
            assert not waits, "one text goes first"
            self.first, self.first_at = send, now

    def note_beats(self):
        for each in Heartbeat.select():
            if self.beats.get(each.sender, (None, 0))[0] != each.beats:
                self.beats[each.sender] = each.beats, self.clock.monotonic()

    def end(self, end, sender, beats=None):
        """End a scheduler, or one that is seen dead: the living beat, and keep what they have."""
        if beats is None:
            return end(sender)
        scheduler = getcurrent().actor
        with scheduler.aside():
            self.note_beats()
            _, beaten_at = self.beats[sender]
            held = Attempt.select().where(Attempt.sender == sender)
            held = [each.message_id for each in held]
        has_ended = end(sender, beats)
        if has_ended:
            assert self.clock.monotonic() - beaten_at >= WATCHED, "it is taken over too soon"
            for id in held:
                self.orders[id].deaths += 1
        return has_ended

    def judged(self, scheduler, action, send):
        """Check what a scheduler begins, unless it is too late for that."""
        if not scheduler.pulse.is_fresh(send.sender, send.judged_at):
            return
        if action == scheduler.sender_of(self.carrier).sends.give:
            self.begun_in_pause(scheduler, send)
        if action.__name__ != "give":
            return  # it is a question
        message = send.message
        order = self.orders[message.id]
        assert order.approved
        assert order.not_before <= self.now
        assert not order.cancelled
        assert not ApiKey.get_by_id(message.key_id).paused_at
        if order.answers_by:
            return
        assert not is_kept_off(order.to, message.check_dnc)
        if self.clock.monotonic() - self.set_at <= FRESH:
            return  # it was judged by another clock
        if not (message.send_date and self.now < message.send_date + HOUR):
            assert not self.next_opening(order.to)
        assert not self.hours.quiet_until(recipients.find(order.to).clocks, self.now)

    def given(self, carrier, to, text, message_id, valid_for, fate, key):
        """Check what a carrier is given; return its reference, or raise its no."""
        call = getcurrent().actor
        assert not call.scheduler.stop.is_requested, "nothing goes after a stop"
        assert self.clock.monotonic() - call.judged_at <= FRESH, "it was looked at just now"
        send, claim_number = call.send, call.send.message.claim_number
        message = Message.get_or_none(Message.id == message_id)
        assert message, "it has the id of its message"
        order = self.orders[message.id]
        assert carrier in self.carriers_for(order)
        attempts = [*Attempt.select().where(Attempt.message == message)]
        under_way = [(each.claim_number, each.carrier) for each in attempts if each.result is None]
        unclear = [self.at(each.carrier) for each in attempts if each.result == "unclear"]
        if send.kind is Kind.AGAIN:
            is_settled = message.status in FINISHED  # meanwhile
            assert is_settled or carrier in unclear, "only a doubt is given again"
            assert is_settled or under_way == [], "nobody else has it"
        else:
            assert under_way == [(claim_number, carrier.name)], "it was taken over"
            assert message.status == Status.SENDING
            assert not any(each.settles_doubts for each in unclear), "a doubt stays there"
        assert (order.to, order.text) == (to, text)
        lasts = ANSWER_WITHIN if order.answers_by else EXPIRE_AFTER
        left = message.first_send_at + lasts - self.now
        assert (valid_for - 1) * SECOND < max(left, SHORTEST_VALIDITY * SECOND)
        order.sends += fate not in FREE
        assert order.sends <= order.max_retries + 1 + order.deaths
        taken, no = FATES[fate]
        if copy := self.kept(carrier, key):
            no = None if fate == "for good" else no  # it gives its first answer again
        elif taken:
            settled = self.is_any_asked(order)  # its copy may have become an equal text's
            assert message.in_doubt or settled or not order.copies, (
                "a second copy only after a doubt"
            )
            assert not (order.answers_by and order.copies), "an answer goes once"
            order.copies += 1
            reference = f"SM{len(self.copies)}"
            copy = Copy(message.id, key, (to, text), reference, self.clock.instant, carrier)
            self.copies.append(copy)
        if no is not None:
            raise CarrierError(fate, **no)
        return copy.reference

    def kept(self, carrier, key):
        """Return the copy that a carrier has that keeps ids."""
        own = [copy for copy in self.copies if (copy.key, copy.carrier) == (key, carrier)]
        return own[0] if own and carrier.keeps_ids else None

    @precondition(lambda self: self.copies)
    @rule(which=which, words=st.lists(st.booleans(), min_size=1, max_size=2))
    def receipt(self, which, words):
        """Receipts of a copy whose answer is known or is not, the first time or again."""
        copy = self.copies[-1 - which % len(self.copies)]
        reference = copy.reference
        for delivered in words:
            said = [Receipt(reference, delivered)]
            inbound.record_reports(said, self.now, False, copy.carrier.name)
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
        copies = Counter(copy.alike for copy in self.copies)
        assert all(copies[alike] <= 2 * self.tries[alike] for alike in copies)
        open = Counter(
            (order.to, order.text)
            for id, order in self.orders.items()
            if messages[id].status not in FINISHED
            or (self.may_give_up and MAY_HAVE_TAKEN_IT in (messages[id].last_error or ""))
        )
        found = [copy for copy in self.copies if copy.carrier.settles_doubts]
        copies = Counter(copy.alike for copy in found)
        unpurged = [copy for copy in found if copy.id in self.orders]
        unknown = Counter(copy.alike for copy in unpurged if copy.reference not in self.named)
        assert copies <= self.budget, "it never gets two copies"
        assert unknown <= open, "what it has taken is sent"

    def check_attempts(self, messages):
        """What a text went through agrees with where it stands, and tells who may have a copy."""
        attempts = {id: [] for id in messages}
        for each in Attempt.select():
            attempts[each.message_id].append(each)
        for id, message in messages.items():
            own = attempts[id]
            under_way = [each.claim_number for each in own if each.result is None]
            sending = message.status == Status.SENDING
            assert under_way == [message.claim_number] * bool(under_way or sending)
            # One that was taken for dead may say yes while another gives the next copy
            assert sending or not under_way or message.status in TAKEN
            if message.carrier_reference:
                taken = [each.reference for each in own if each.result == "taken"]
                assert message.carrier_reference in taken
            unclear = [each for each in own if each.result == "unclear"]
            since = [each for each in unclear if each.claim_number > message.claims_before_retry]
            assert message.in_doubt == len(since)
            asked = {each.carrier if each.ask_at else "" for each in unclear}
            assert {*Lane.read(message.lane).doubts} == asked
            if not self.is_any_asked(self.orders[id]):
                may_have = [each for each in own if each.result in (None, "unclear", "taken")]
                assert sum(copy.id == id for copy in self.copies) <= len(may_have)

    @property
    def may_give_up(self):
        """Whether a message may end in doubt though its carrier settles doubts."""
        return self.others or self.carrier.keeps_ids

    def is_any_asked(self, order):
        return any(each.settles_doubts for each in self.carriers_for(order))

    def are_all_asked(self, order):
        return all(each.can_be_asked for each in self.carriers_for(order))

    def note_reference(self, id, reference):
        if reference not in self.named and reference in self.said:
            _, at = self.said[reference]
            if at and at < self.now - early_receipts.RECEIPTS_KEPT + HOUR:  # by a clock that is set
                self.said[reference] = None, None  # it may be forgotten
        if self.named.get(reference) not in self.orders:  # or an equal text's that is purged
            self.named[reference] = id
        assert self.named[reference] == id, "one copy is one message's"

    def check(self, message, order):
        if message.status not in TAKEN:  # asking in doubt counts, too
            assert message.attempts <= order.max_retries + 1
        own = [copy for copy in self.copies if copy.reference == message.carrier_reference]
        if message.status in TAKEN:
            (copy,) = own
            assert copy.alike == (order.to, order.text)
            assert copy.id == message.id or copy.carrier.can_be_asked  # equals are alike
            assert copy.carrier.lists_with(self.at(message.carrier))
            self.check_receipt(message)
        may_have = MAY_HAVE_TAKEN_IT in (message.last_error or "")
        if message.status == Status.FAILED and not order.answers_by:
            if self.are_all_asked(order):
                assert not may_have
            elif not self.is_any_asked(order):
                assert may_have or not order.copies
        if not self.is_any_asked(order):
            assert order.copies <= 2

    def check_receipt(self, message):
        """Delivered is the last word, and else the first; that of another copy counts, too."""
        delivered, at = self.said.get(message.carrier_reference, (None, self.now))
        others = [copy.reference for copy in self.copies if copy.id == message.id]
        if not delivered and any(self.said.get(each, (None,))[0] for each in others):
            assert message.status in TAKEN
        elif at:
            wanted = {None: Status.SENT, True: Status.DELIVERED, False: Status.UNDELIVERED}
            assert message.status == wanted[delivered]

    # In the end

    def teardown(self):
        """Once the carrier is well and time passes, everything ends, and what is new is sent."""
        if sys.exc_info()[0]:
            return
        self.faulty.fail_at(0)
        self.connect_in(0)
        for who in (*self.people,):
            while who in self.people:
                self.go_on_deciding(who)
        for of_tester in (True, False):
            self.pause_key(of_tester, False)
        self.clock.instant += (TUESDAY_NOON - self.now) % DAY
        self.store("+12125550177", 0, False, False, None, 1)
        new = [*self.orders][-1]
        # SEND_RATE lets three texts go in a pass of thirty seconds
        passes = 12 if self.every and self.settings.send_rate else 1
        for hours in (*[0] * passes, 0, 1, 10, 40, 40, 40):
            for which in (0, 1):
                self.make_pass(which, hours * 3600, [YES])
            self.promises_hold()
            given = Attempt.select().where(Attempt.result.is_null())
            ended = all(message.status in FINISHED for message in Message.select())
            if hours and ended and not given.exists():
                break
        else:
            raise AssertionError("not everything ends")
        assert Message.get_by_id(new).status == Status.SENT
        self.idle()

    def idle(self, answer=YES):
        """While nothing waits, an outage ends once the carrier answers, if no texts began it."""
        state = CarrierState.get_or_none(CarrierState.name == self.carrier.name)
        if state and state.by_texts:
            return
        CarrierState.prepare(self.carrier.name)
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


def no_promise_is_broken(record):
    """Raise again what a scheduler passes over as a bug, to go on."""
    assert "AssertionError" not in record.getMessage()
    return True


@pytest.fixture
def hold_promises(settings, monkeypatch):
    """Play with a carrier that can be asked, or cannot: `hold_promises(True, often)`."""
    clock, simulator = MachineClock(), FakeCarrier(False, TESTERS)
    monkeypatch.setattr(waiting, "FEW", 4)
    monkeypatch.setattr(database.clock, "now", clock.now)  # by which orders are stored
    monkeypatch.setattr(carriers, "connect", lambda *_, **__: simulator)
    monkeypatch.setattr(logging.getLogger("scheduler"), "filters", [no_promise_is_broken])
    settings = settings._replace(
        claim_timeout=CLAIM_TIMEOUT,
        expire_after=EXPIRE_AFTER,
        send_concurrency=2,
        retry_delay=1,
        quiet_hours=(21 * 60, 8 * 60),
        stop_reply="You are off the list.",
        help_reply="Ask us.",
    )

    end = Heartbeat.end

    def hold(askable, how, *others, account=None, scene=None, fate=None):
        def machine():
            players = clock, faulty, simulator
            promises = Promises(settings, *players, askable, *others, account=account)
            promises.scene, promises.fate = scene, fate
            monkeypatch.setattr(Heartbeat, "end", partial(promises.end, end))
            chance = Random(1)  # the order of ids is the same when it is repeated
            monkeypatch.setattr(secrets, "randbits", chance.getrandbits)
            monkeypatch.setattr(uuid, "uuid4", lambda: UUID(int=chance.getrandbits(128)))
            return promises

        with monkeypatch.context() as only_here:
            faulty = PausingDatabase(only_here)
            run_state_machine_as_test(machine, settings=how)

    return hold


@pytest.mark.slow
@pytest.mark.parametrize("askable", [True, False, KEEPS, TELLS])
def test_the_promises_hold_whatever_happens(hold_promises, askable):
    hold_promises(askable, often)


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_the_promises_hold_in_each_scene(hold_promises, scene):
    """Play each scene by its name, so that none is left to chance, with other answers for each."""
    how = hypothesis_settings(often, max_examples=1, stateful_step_count=8)
    first = SCENES.index(scene)
    for number, askable in enumerate((True, False, KEEPS, TELLS), first):
        hold_promises(askable, how, scene=scene, fate=[*FATES][number % len(FATES)])


@pytest.fixture
def own_tables(database_url, empty_database_url):
    """Connect to another database, whose tables a test may drop."""
    database.connect(empty_database_url)
    database.upgrade()
    yield
    database.disconnect()


@pytest.mark.slow
@pytest.mark.parametrize("askable", [True, False, KEEPS, TELLS])
def test_the_promises_hold_after_a_migration(hold_promises, own_tables, askable):
    undisturbed = hypothesis_settings(often, max_examples=1, stateful_step_count=1)
    hold_promises(askable, undisturbed, scene="upgrade")
    is_late = (Message.status == Status.EXPIRED) & (Message.finished_at > LEFT_AT)
    assert not Message.select().where(is_late, Message.approved).exists(), "it is sent in time"
    hold_promises(askable, hypothesis_settings(often, max_examples=1), scene="upgrade")


BOTH = [(True, True), (True, False), (False, True), (False, False), (KEEPS, False), (TELLS, KEEPS)]
"""Whether the first of two carriers can be asked, and the other."""


@pytest.mark.slow
@pytest.mark.parametrize(("askable", "other"), [(True, False), (False, True), (KEEPS, False)])
def test_the_promises_hold_with_two_carriers(hold_promises, askable, other):
    hold_promises(askable, hypothesis_settings(often, max_examples=2), other)


@pytest.mark.slow
def test_the_promises_hold_with_one_account_under_two_names(hold_promises):
    hold_promises(True, hypothesis_settings(often, max_examples=2), True, account="AC1")


@pytest.mark.soak
def test_the_promises_hold_for_long_with_one_account_under_two_names(hold_promises):
    how = hypothesis_settings(often, max_examples=500, derandomize=False)
    hold_promises(True, how, True, account="AC1")


@pytest.mark.soak
@pytest.mark.parametrize(("askable", "other"), BOTH)
def test_the_promises_hold_for_long_with_two_carriers(hold_promises, askable, other):
    hold_promises(askable, hypothesis_settings(often, max_examples=500, derandomize=False), other)


@pytest.mark.soak
@pytest.mark.parametrize("askable", [True, False, KEEPS, TELLS])
def test_the_promises_hold_for_long(hold_promises, askable):
    hold_promises(askable, hypothesis_settings(often, max_examples=1000, derandomize=False))


# Does it find anything? Each of these breaks a rule.

judge, claim = outcomes.judge, Turns.claim
end_claim, retry = Message._end_claim, Selection.retry
judge_one, give, routes_of = Sender.judge_one, Sends.give, Routes.of
begin, tend = Sends.begin, Scheduler.tend
beat, promote = Heartbeat.beat, PausingScheduler.promote
is_fresh = Pulse.is_fresh


def judge_without_quiet_hours(message, terms, *rest):
    return judge(message, terms._replace(key=terms.key._replace(quiet=QuietPlaces())), *rest)


def judge_without_cancelling(message, *rest):
    message.cancelled_by = None
    return judge(message, *rest)


def forget_attempts(messages, now, unable):
    lost = Attempt.delete().where(IS_ORPHANED, Attempt.message.in_([*messages]))
    return [*lost.returning(Attempt).execute()]


def claim_without_approval(*arguments):
    Message.update(approved=True).execute()
    return claim(*arguments)


def end_any_claim(message, **changes):
    own, message.claim_number = message.claim_number, Message.get_by_id(message.id).claim_number
    ended = end_claim(message, **changes)
    message.claim_number = own
    return ended


def settle_nothing(message, *_):
    return Message.get_or_none(Message.id == message.id)


def retry_as_if_new(these, *arguments):
    retried = retry(these, *arguments)
    Message.update(claims_before_retry=0).where(Message.id.in_(retried)).execute()
    return retried


def take_any_reference(attempt, references, now, carrier):
    id, first = attempt.message_id, references[:1]
    return bool(first) and bool(
        receipts.record_accepted({id: first[0]}, now, carrier, {id: attempt.claim_number})
    )


def ask_since_now(sends, send, *rest):
    if send.asking:
        send.since = sends.clock.now() + SECOND
    begin(sends, send, *rest)


def beat_though_dead(sender, now):
    beat(sender, now)
    return True


def collect_all(scheduler):
    while sum(sender.reports.collect() for sender in scheduler.senders):
        pass


def do_all_chores(scheduler, now):
    while promote(scheduler, now):
        pass


def look_before_the_connection(sends, send):
    sends.stop.sleep(send.not_before - sends.clock.monotonic())
    if sends.stop.is_requested or not sends.pulse.is_fresh(send.sender):
        raise NotSent
    message = send.message
    with sends.carrier.session():
        given = message.to, message.message, str(message.id), send.key, SHORTEST_VALIDITY
        return sends.carrier.send(Outgoing(*given))


def judge_no_repeat(sender, send, *rest, **more):
    return None if send.kind is Kind.AGAIN else judge_one(sender, send, *rest, **more)


def give_again_with_another_id(sends, send):
    if send.kind is Kind.AGAIN:
        message = Message(**send.message.__data__ | {"id": uuid.uuid4()})
        send = dataclasses.replace(send, message=message)
    return give(sends, send)


def ask_only_lists(configs, carriers):
    return Routes(
        routes_of(configs, carriers).configs, [e.name for e in carriers if e.can_be_asked]
    )


def trust_any_judgement(pulse, sender, *moments):
    return is_fresh(pulse, sender)


def tend_at_first(scheduler):
    if scheduler.tend_at == 0:
        tend(scheduler)
    else:
        scheduler.pulse.beat()


record_answer, end_pause = CarrierWatch.record_answer, CarrierState.end_pause
changes_for_pause, permission = carrier_state.changes_for_pause, CarrierState.permission


def end_any_pause(watch, send, error):
    record_answer(watch, send, error)
    if not error:
        CarrierState.update(retry_at=None, probe_claimed_at=None, pause=0).execute()


def end_pause_by_a_question(name, probe, only_outage=False, **more):
    return end_pause(name, probe, **more)


def end_pause_by_any_probe(name, probe, **more):
    CarrierState.update(probe_claimed_at=probe).execute()
    return end_pause(name, probe, **more)


def leave_probe(state, by_probe, *rest):
    changes = changes_for_pause(state, by_probe, *rest)
    return changes if by_probe else changes | {"probe_claimed_at": state.probe_claimed_at}


def leave_outage(state, by_probe, now, trouble, *rest):
    changes = changes_for_pause(state, by_probe, now, trouble, *rest)
    return changes if trouble else changes | {"trouble": state.trouble, "is_down": state.is_down}


def let_all_go_first(state, now, claim_timeout):
    may_send = permission(state, now, claim_timeout)
    return Permission.ALL if may_send is Permission.PROBE else may_send


def only_end_probe(watch):
    CarrierState.end_probe(watch.name, watch.probe)


ANY = dict.fromkeys([Status.DELIVERED, Status.UNDELIVERED], model.has_status(*TAKEN))
BUGS = {  # whether the carrier can be asked; and the code that is replaced, by something wrong
    "it sends without asking": (True, Lane, "asked", None),
    "it does not ask": (True, Questions, "ask", lambda *_: []),
    "it asks about what came later": (True, Sends, "begin", ask_since_now),
    "it takes the carrier's clock for its own": (True, questions, "CLOCKS_DIFFER", 0 * SECOND),
    "it asks before the list shows the text": (True, outcomes, "LISTED_WITHIN", 0 * SECOND),
    "nothing is recounted": (True, doubts, "recount", lambda _: None),
    "nothing is recounted after a yes": (False, receipts, "recount", lambda _: None),
    "a dead sender leaves no attempt": (False, Attempt, "mark_unclear", forget_attempts),
    "a dead sender goes on": (False, Heartbeat, "beat", beat_though_dead),
    "nothing is taken over": (False, doubts, "take_over", lambda *_: 0),
    "a long pass takes nothing over": (False, Scheduler, "tend", tend_at_first),
    "it sends after a long pause": (False, Pulse, "is_fresh", lambda *_: True),
    "it sends on an old judgement": (False, Pulse, "is_fresh", trust_any_judgement),
    "a clock decides who is dead": (False, heartbeats, "WATCHED", 0),
    "an end is another's": (False, Message, "_end_claim", end_any_claim),
    "a doubt is never settled": (True, doubts, "rule_out", settle_nothing),
    "a lane keeps its doubts": (True, Lane, "with_doubts", lambda lane, _: lane),
    "a retry forgets what was before": (False, Selection, "retry", retry_as_if_new),
    "equal texts go at once": (True, doubts, "texts_at", lambda *_: set()),
    "it takes the reference of another": (True, receipts, "found", take_any_reference),
    "it looks for no approval": (False, Turns, "claim", claim_without_approval),
    "it does not look at the list": (False, do_not_call, "listed", lambda _: {}),
    "it sends at any hour": (False, outcomes, "waits_until", lambda *_: None),
    "it knows no quiet hours": (False, outcomes, "judge", judge_without_quiet_hours),
    "it sends what is cancelled": (False, outcomes, "judge", judge_without_cancelling),
    "the last receipt counts": (False, receipts, "_MAY_BECOME", ANY),
    "an early receipt is lost": (False, EarlyReceipt, "keep", lambda *_, **__: None),
    "a repeat is not judged": (KEEPS, Sender, "judge_one", judge_no_repeat),
    "a repeat has another id": (KEEPS, Sends, "give", give_again_with_another_id),
    "nothing is given again": (KEEPS, Questions, "ask", lambda *_: []),
    "a carrier that keeps ids keeps no doubt": (KEEPS, Routes, "of", ask_only_lists),
    "what may not go again is gone": (TELLS, Sends, "look_up", lambda *_: []),
    "any yes ends a pause": (False, CarrierWatch, "record_answer", end_any_pause),
    "any probe ends a pause": (False, CarrierState, "end_pause", end_pause_by_any_probe),
    "a probe ends a lengthened pause": (False, carrier_state, "changes_for_pause", leave_probe),
    "an answered question ends a pause": (True, CarrierState, "end_pause", end_pause_by_a_question),
    "all go after a pause": (False, CarrierState, "permission", let_all_go_first),
    "an outage never ends": (False, CarrierWatch, "end_unused_probe", only_end_probe),
    "a receipt's burst without a beat": (False, Scheduler, "collect", collect_all),
    "many are promoted without a beat": (False, PausingScheduler, "promote", do_all_chores),
    "a claim unheard while busy": (False, Sender, "take_back_unheard", lambda _: False),
    "the look before the connection": (False, Sends, "give", look_before_the_connection),
    "too fast ends no outage": (False, carrier_state, "changes_for_pause", leave_outage),
}
seeking = hypothesis_settings(often, max_examples=500, phases=[Phase.generate])


@pytest.mark.soak
@on_sqlite
@pytest.mark.parametrize("bug", BUGS)
def test_a_rule_that_is_broken_is_found(hold_promises, monkeypatch, bug):
    askable, owner, name, broken = BUGS[bug]
    assert hasattr(owner, name), "it has another name now"
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(AssertionError):
        hold_promises(askable, seeking)
