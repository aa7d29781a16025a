"""Send through one carrier: record its answers, ask about texts in doubt, claim, judge, begin.

Threads talk to the carrier and do nothing else; the thread that calls `step` uses the database.
Answers are recorded before more is claimed: a scheduler that dies leaves no more messages in doubt
than it had sends under way.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial
from itertools import chain
from typing import Any

from texting.access import do_not_call
from texting.access.keys import names_of, rules_of
from texting.access.places import residences
from texting.access.rules import KeyRules
from texting.carriers import Carrier
from texting.carriers.lanes import TESTERS, Lane, Routes
from texting.database import db, is_outage, skip_broken
from texting.messages import doubts
from texting.messages.attempts import IS_ASKED_ABOUT, IS_UNDER_WAY, Attempt
from texting.messages.model import Message, Status
from texting.messages.waiting import set_aside
from texting.recipients import Residence
from texting.replies.inbound import ReplyRules
from texting.sending import outcomes
from texting.sending.allowed import why_allowed
from texting.sending.carrier_state import CarrierState, Permission
from texting.sending.claims import Turns, claim_these
from texting.sending.heartbeats import Pulse
from texting.sending.outcomes import Outcome, Terms
from texting.sending.questions import QuestionRecorder, Questions
from texting.sending.rate import Rate
from texting.sending.recorder import take_back
from texting.sending.reports import ReportRecorder
from texting.sending.runtime import LOOK_EVERY, TICK, Ended, Runtime, Stop
from texting.sending.sends import Kind, Send, Sends
from texting.sending.watch import CarrierWatch
from texting.settings import Settings

log = logging.getLogger("scheduler")


@dataclass
class Shared:
    """What the senders of a scheduler share."""

    settings: Settings
    routes: Routes
    stop: Stop
    pulse: Pulse
    ended: Ended
    retry: Callable  # calls what needs the database until it is back
    clock_may_be_wrong: Callable[[], bool]
    runtime: Runtime
    counts: Counter  # of what happened to messages
    # Carriers in trouble whose pause is over, but that can take no more texts now
    without_probe: set[str] = field(default_factory=set)


class Sender:
    """Send queued messages through a carrier, step by step."""

    def __init__(self, carrier: Carrier, shared: Shared):
        settings, routes, runtime = shared.settings, shared.routes, shared.runtime
        stop, ended, pulse, retry = shared.stop, shared.ended, shared.pulse, shared.retry
        self.carrier, self.name = carrier, carrier.name
        self.clock, self.pulse, self.retry, self.routes = runtime.clock, pulse, retry, routes
        is_testers = self.name == TESTERS
        self.listed_with = routes.listed_with(self.name)
        self.terms = Terms.of(settings, carrier, routes.are_several)
        per_second = None if is_testers else routes.config(self.name).rate or settings.send_rate
        # A part holds at least sixteen characters, whatever they consist of
        rate = Rate(per_second, settings.max_message_length // 16 + 1) if per_second else None
        self.sends = Sends(carrier, settings.send_concurrency, stop, pulse, ended, runtime)
        several = routes.are_several and not is_testers
        self.watch = CarrierWatch(self.name, self.sends, rate, several)
        self.recorder = QuestionRecorder(self.terms, self.watch, routes, shared.counts, retry)
        self.reports = ReportRecorder(carrier, ReplyRules.of(settings, self.name), self.watch)
        self.questions = Questions(self)
        self.clock_may_be_wrong = shared.clock_may_be_wrong
        self.turns, self.without_probe = Turns(routes), shared.without_probe
        # When to read keys, lanes and carriers in trouble again, by the monotonic clock
        self.refresh_at = 0
        self.rules = {}  # of keys, by id, as read since then
        self.terms_of = lru_cache(self.terms.of_key)  # by the rules of a key
        self.trouble, self.paused = set(), set()  # carriers; the latter still pause
        self.key_names = {}  # by id
        self.may_be_unheard = False  # whether a claim may be committed without our knowledge
        self.resumes_at = math.inf  # when a pause ends, by the monotonic clock, if that is known

    @property
    def has_texts(self) -> bool:
        """Whether answers about texts are awaited, or to be recorded."""
        return bool(self.sends.under_way or self.recorder.unrecorded)

    @property
    def is_busy(self) -> bool:
        """Whether any answers of the carrier are awaited, or to be recorded."""
        return bool(self.has_texts or self.watch.asked or self.reports.is_waiting)

    @property
    def waits(self) -> bool:
        """Whether texts may go soon, but not now: because of SEND_RATE, or a short pause.

        Nothing waits for the pauses of the testers' simulator.
        """
        short_pause = 0 if self.name == TESTERS else self.watch.short_pause
        return self.watch.rate_pause > 0 or short_pause > 0

    def step(self, may_claim: bool) -> bool:
        """Do what can be done now; return whether there was anything to do, and so may be more.

        1. Have the carrier call back, and record answers. 2. Take back unheard claims. 3. See who
        may send. 4. Ask about texts in doubt. 5. Claim as many texts as may be sent, judge them,
        and take SEND_RATE. 6. Begin to send.
        """
        self.reports.register()
        made_progress = self.retry(self.reports.record_missed)
        made_progress |= self.recorder.record()
        if self.may_be_unheard or not self.sends.under_way:
            made_progress |= self.retry(self.take_back_unheard)
        permission, pause = self.retry(self.watch.permission, bool(self.sends.under_way))
        room, questions = self.room(permission), []
        if permission is Permission.ALL and (few := min(room, self.sends.room_to_ask)):
            questions = self.retry(self.questions.ask, few)
        claimed, ready = 0, []
        if may_claim and (room := room - len(questions)):
            claimed, ready = self.retry(self.claim, room)
        is_questions_turn = permission is Permission.PROBE or (room and self.sends.take_turns)
        if is_questions_turn and not (ready or questions):
            questions = self.retry(self.questions.ask, 1)
        for send in (*questions, *ready):
            self.sends.begin(send)
        is_unused = permission is Permission.PROBE and not (questions or ready)
        if is_unused:
            self.retry(self.watch.end_unused_probe)
        if self.watch.is_pause_over and not (is_unused and room):
            made_progress |= self.name not in self.without_probe  # others take what was left to it
            self.without_probe.add(self.name)
        else:
            self.without_probe.discard(self.name)
        if may_claim and room > 0 and not claimed and not pause:
            pause = self.refresh_at - self.clock.monotonic()
        if ready and self.watch.rate:  # more may go before these are answered
            pause = TICK
        self.resumes_at = self.clock.monotonic() + pause if pause else math.inf
        return bool(made_progress or claimed or questions)

    def room(self, permission: Permission) -> int:
        """Return how many more sends may begin."""
        room = self.sends.room
        if permission is not Permission.ALL:
            return min(room, int(permission is Permission.PROBE))
        return min(room, self.watch.rate.most()) if self.watch.rate else room

    def send_of(self, message: Message) -> Send:
        """Return the send of a message, as the probe if one has to go first."""
        if message.key_id not in self.key_names:
            self.key_names |= names_of({message.key_id})
        name = self.key_names.get(message.key_id)
        pulse, probe = self.pulse, self.watch.probe
        return Send(message, name, pulse.sender, self.terms, pulse.moment(), probe=probe)

    # Claims

    def claim(self, room: int) -> tuple[int, list[Send]]:
        """Claim and judge messages; return how many, and those that may go now.

        Texts that SEND_RATE delays keep their places, and their key has the next turn.
        """
        if self.watch.stop.is_requested or not (choices := self.choices()):
            return 0, []
        try:
            return self.claim_by(self.claim_first, choices, room)
        except Exception as error:
            if is_outage(error):
                raise
        self.refresh_at = 0  # what we know of turns may be wrong
        return self.claim_but_broken(self.choices(), room)

    def claim_first(self, choices: list[Callable], room: int, by: str = "claim") -> list[Message]:
        """Claim messages of the first choice that has any; only one after a pause."""
        claims = (self.turns.claim(room, each, bool(self.watch.probe), by) for each in choices)
        return next(filter(None, claims), [])

    def claim_but_broken(self, choices: list[Callable], room: int) -> tuple[int, list[Send]]:
        """Claim and judge like `claim`; set aside the messages that break this."""

        def put_off(id):
            set_aside(id, self.clock.now())

        with db.atomic():
            ids = dict.fromkeys(each.id for each in self.claim_first(choices, room, "claimable"))
        claim, what = partial(self.claim_by, claim_these), "message {} is set aside".format
        parts = skip_broken(claim, [*ids], log, what, put_off)
        return sum(count for count, _ in parts), [*chain(*(going for _, going in parts))]

    def claim_by(self, claim: Callable, *arguments: Any) -> tuple[int, list[Send]]:
        """Claim messages by a function, and judge them in the same transaction."""
        now, before = self.clock.now(), self.pulse.moment()
        if self.clock_may_be_wrong():  # nothing is judged by it
            return 0, []
        with db.atomic():
            if not self.pulse.beat_in_transaction():
                return 0, []
            messages = claim(*arguments)
            sends = [self.send_of(each) for each in messages]
            ready, moves = self.judge(sends, now)
            going = self.within_rate(ready)
            waiting = ready[len(going) :]
            Message.put_back([send.message for send in waiting])
            given = [send.message for send in going]
            allowed = {send.message.id: send.allowed for send in going}
            copies = Attempt.begin(given, self.name, self.pulse.sender, now, allowed)
            self.turns.put_back([send.message for send in waiting])
        self.pulse.record_beat(before)
        for send in going:
            send.copy = copies[send.message.id]
        for send, outcome in moves:
            self.recorder.record_move(send, outcome.move, outcome.why)
        return len(messages) - len(waiting), going

    def take_back_unheard(self) -> bool:
        """Take back what is claimed under our name without our knowledge.

        The database failed before it confirmed the commit of a claim, of texts or of a question.
        Return whether there was anything.
        """
        sender = self.pulse.sender
        known = [*self.sends.under_way.values(), *self.recorder.given_up]
        asked = {send.message.id for send in known if send.asking}
        given = {(send.message.id, send.message.claim_number) for send in known if not send.asking}
        texts, questions = [], []
        for id, claim, result in Attempt.open_of(sender, self.name):
            if result and id not in asked:
                questions.append(id)
            elif not result and (id, claim) not in given:
                texts.append(Message(id=id, claim_number=claim))
        if texts:
            take_back(sorted(texts, key=lambda each: each.id))
        if questions:
            Attempt.let_go(sender, questions)
        self.may_be_unheard = False
        return bool(texts or questions)

    def choices(self) -> list[Callable[[Lane, str], bool]]:
        """Return conditions for the texts that this carrier may be given, better choices first.

        Do not probe with a text that is in doubt, unless no other carrier can take it. Other texts
        are left to a carrier whose pause is over, if it can take one.
        """
        routes = self.routes
        is_look_due = self.clock.monotonic() >= self.refresh_at or not self.sends.under_way
        if is_look_due and routes.are_several:
            self.trouble = CarrierState.in_trouble(routes.names)
            self.paused = CarrierState.in_trouble(self.trouble, self.clock.now())
        trouble, paused = self.trouble, self.trouble & (self.paused | self.without_probe)

        def may_take(lane, key):
            return routes.may_take(self.name, lane, key, trouble if lane.doubts else paused)

        def is_sure(lane, key):
            return may_take(lane, key) and not lane.doubts

        def has_no_other(lane, key):
            return may_take(lane, key) and trouble.issuperset(routes.order(lane, key))

        if is_look_due:
            self.turns.refresh(may_take)
            self.rules.clear()
            self.refresh_at = self.clock.monotonic() + LOOK_EVERY
        if not self.turns.lanes:
            return []
        return [is_sure, has_no_other] if self.watch.is_risky else [may_take]

    def judge(
        self, sends: list[Send], now: datetime
    ) -> tuple[list[Send], list[tuple[Send, Outcome]]]:
        """Return the messages that may be sent, and the others with their outcomes.

        The rules of their keys are a second old at most; where their recipients live is read now.
        """
        ready, moves = [], []
        self.rules |= rules_of({send.message.key_id for send in sends} - self.rules.keys())
        numbers = {send.message.to for send in sends}
        opted_out, homes = do_not_call.listed(numbers), residences(numbers)
        equals = self.open_texts(sends)
        for send in sends:
            message = send.message
            text = message.to, message.message
            if message.in_doubt and self.questions.is_received(message, now):
                moves.append((send, Outcome(Status.SENT)))
                continue
            about = homes.get(message.to), opted_out.get(message.to), now, text in equals
            outcome = self.judge_one(send, self.rules[message.key_id], *about)
            if outcome is None:
                ready.append(send)
                if self.carrier.can_be_asked:
                    equals.add(text)
            elif message.apply(outcome, now):
                moves.append((send, outcome))
        return ready, moves

    def open_texts(self, sends: list[Send]) -> set[tuple[str, str]]:
        """Return the numbers and texts of these that the carrier's list has, or may yet have."""
        if not self.carrier.can_be_asked:
            return set()
        messages = [send.message for send in sends]
        return doubts.texts_at(self.listed_with, messages, IS_UNDER_WAY, IS_ASKED_ABOUT)

    def judge_one(
        self,
        send: Send,
        own: KeyRules,
        home: Residence | None,
        opted_out: bool | None,
        now: datetime,
        has_equal: bool,
    ) -> Outcome | None:
        """Judge a message; set aside one that cannot be judged, so that it delays no other."""
        message = send.message
        try:
            send.terms = self.terms_of(own, home)
            is_again = send.kind is Kind.AGAIN
            outcome = outcomes.judge(message, send.terms, opted_out, now, has_equal, is_again)
            if outcome is None and not is_again:
                send.allowed = why_allowed(message, send.terms, now)
            return outcome
        except Exception as error:
            kind = type(error).__name__  # its message may hold the number
            about = send.log_fields
            log.error("message %s cannot be judged: %s", message.id, kind, extra=about)
            return outcomes.cannot_be_judged(message, error, self.terms, now)

    def within_rate(self, ready: list[Send]) -> list[Send]:
        """Return as many of these messages, from the first on, as SEND_RATE allows now."""
        if not (self.watch.rate and ready):
            return ready
        share = self.watch.claim_rate([send.message.parts for send in ready])
        if share.texts and share.delay:
            ready[0].not_before = self.clock.monotonic() + share.delay
        return ready[: share.texts]
