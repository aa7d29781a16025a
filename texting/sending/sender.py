"""Send through one carrier: record its answers, ask about texts in doubt, claim, judge, begin.

Threads talk to the carrier and do nothing else; the thread that calls `step` uses the database.
Answers are recorded before more is claimed: a scheduler that dies leaves no more messages in doubt
than it had sends under way.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import chain

from texting.access import do_not_call
from texting.access.keys import ApiKey, names_of, rules_of
from texting.access.rules import KeyRules
from texting.carriers import Carrier
from texting.carriers.lanes import TESTERS, Lane, Routes
from texting.database import all_but_broken, db, is_outage
from texting.messages import doubts, receipts
from texting.messages.attempts import IS_ASKED_ABOUT, IS_UNDER_WAY, Attempt
from texting.messages.model import WAITING, Message, Status
from texting.messages.waiting import set_aside
from texting.replies.inbound import ReplyRules
from texting.sending import outcomes
from texting.sending.carrier_state import CarrierState, Permission
from texting.sending.claims import Turns, claim_these
from texting.sending.heartbeats import Pulse
from texting.sending.outcomes import Outcome, Terms
from texting.sending.rate import Rate
from texting.sending.recorder import NewsRecorder, Recorder, take_back
from texting.sending.runtime import TICK, Ended, Runtime, Stop
from texting.sending.sends import Send, Sends
from texting.sending.watch import CarrierWatch
from texting.settings import Settings

LOOK_EVERY = 1  # seconds for which, while texts are under way, keys and lanes are not read anew
CLOCKS_DIFFER = timedelta(days=1)  # at most, a carrier's and this machine's
LAST_LOOK = timedelta(minutes=10)  # before a carrier forgets the id of a text that waits
ON_ITS_WAY = timedelta(minutes=5)  # a text that is given again may be, while its id is forgotten

log = logging.getLogger("scheduler")


class Sender:
    """Send queued messages through a carrier, step by step.

    `counts` has what happened to messages. `retry` calls what needs the database until it is back.
    `unable` are carriers in trouble whose pause is over, but that can take no more texts now.
    """

    def __init__(
        self,
        settings: Settings,
        carrier: Carrier,
        routes: Routes,
        stop: Stop,
        pulse: Pulse,
        ended: Ended,
        counts: Counter,
        retry: Callable,
        runtime: Runtime,
        unable: set[str],
    ):
        self.settings, self.carrier, self.name = settings, carrier, carrier.name
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
        self.recorder = Recorder(self.terms, self.watch, routes, counts, retry)
        self.news = NewsRecorder(carrier, ReplyRules.of(settings, self.name), self.watch)
        self.turns, self.unable = Turns(routes), unable
        self.look_at = 0  # when to read keys and lanes again at the latest, by the monotonic clock
        self.key_names = {}  # by id
        self.resumes_at = math.inf  # when a pause ends, by the monotonic clock, if that is known

    @property
    def is_busy(self) -> bool:
        """Whether answers of the carrier are awaited, or to be recorded."""
        recorder, asked = self.recorder, self.watch.asked or self.news.is_waiting
        return bool(self.sends.under_way or recorder.unrecorded or asked)

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
        self.news.register()
        made_progress = self.retry(self.news.take_missed)
        made_progress |= self.recorder.record()
        made_progress |= self.retry(self.take_back_unheard)
        permission, pause = self.retry(self.watch.permission, bool(self.sends.under_way))
        room, questions = self.room(permission), []
        if permission is Permission.ALL and (few := min(room, self.sends.room_to_ask)):
            questions = self.retry(self.ask, few)
        claimed, ready = 0, []
        if may_claim and (room := room - len(questions)):
            claimed, ready = self.retry(self.claim, room)
        if permission is Permission.PROBE and not ready:
            questions = self.retry(self.ask, 1)
        for send in (*questions, *ready):
            self.sends.begin(send)
        is_unused = permission is Permission.PROBE and not (questions or ready)
        if is_unused:
            self.retry(self.watch.end_unused_probe)
        if self.watch.is_pause_over and not (is_unused and room):
            made_progress |= self.name not in self.unable  # others take what was left to it
            self.unable.add(self.name)
        else:
            self.unable.discard(self.name)
        if may_claim and room > 0 and not claimed and not pause:
            pause = self.look_at - self.clock.monotonic()
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

    # Questions

    def ask(self, room: int) -> list[Send]:
        """Return some messages in doubt to ask the carrier about now.

        If a kept receipt shows that the carrier has a message, no question is needed.
        """
        if not self.carrier.settles_doubts:
            return []
        now, questions = self.clock.now(), []
        due = {attempt.message_id for attempt in doubts.to_ask(self.name, now, room)}
        if not due:
            return []
        messages = [*Message.select().where(Message.id.in_([*due])).order_by(Message.id)]
        with db.atomic():
            listed = messages if self.carrier.can_be_asked else ()
            under_way = doubts.texts_at(self.listed_with, listed, IS_UNDER_WAY)
        for message in self.take(messages, now):
            send = self.send_of(message)
            if self.is_received(message, now):
                self.recorder.note_move(send, "sent")
            elif (message.to, message.message) in under_way:  # a person has retried this one
                doubts.ask_again_at(message.id, self.name, now + outcomes.PUT_OFF)
            elif copies := doubts.unclear_at(self.name, message.id):
                send.since = copies[0].begun_at
                send.copy = copies[0].copy
                if self.carrier.can_be_asked:
                    send.since -= CLOCKS_DIFFER
                questions.append(send)
        if not self.carrier.keeps_ids:
            return questions
        with db.atomic():
            going, moves = self.judge_again(questions, now)
        for send, outcome in moves:
            self.recorder.note_move(send, outcome.move, outcome.why)
        return going

    def take(self, messages: list[Message], now: datetime) -> list[Message]:
        """Claim the questions about messages; return those that no other scheduler has claimed."""
        with db.atomic():
            if not self.pulse.lives_on():
                return []
            sender = self.pulse.sender
            return [each for each in messages if doubts.take(each.id, self.name, sender, now)]

    def judge_again(
        self, questions: list[Send], now: datetime
    ) -> tuple[list[Send], list[tuple[Send, Outcome]]]:
        """Return those texts in doubt that are given again or looked up, and those that end.

        Those that may not go now wait, and are looked up before the carrier forgets them; of those
        that end, nobody can tell whether they were taken.
        """
        again, looked_up, moves = [], [], []
        these = Message.select().where(Message.id.in_([each.message.id for each in questions]))
        locked = {each.id: each for each in db.lock_rows(these.order_by(Message.id))}
        rules = rules_of({each.key_id for each in locked.values()})
        opted_out = do_not_call.listed({each.to for each in locked.values()})
        paused = {key.id for key in ApiKey.paused()}
        for send in questions:
            send.message = message = locked.get(send.message.id, send.message)
            send.again, at = True, now + outcomes.PUT_OFF
            if message.status in WAITING and message.id in locked:
                about = rules[message.key_id], opted_out.get(message.to), now
                outcome = self.judge_one(send, *about, has_equal=False)
                if outcome and outcome.status not in WAITING:
                    if self.carrier.can_look_up:
                        send.again = False
                        looked_up.append(send)
                        continue
                    if message.settle(outcome, now):
                        moves.append((send, outcome))
                elif outcome:
                    at = min(at, outcome.send_at or at)
                elif message.key_id not in paused and now - send.since < self.id_lasts:
                    again.append(send)
                    continue
            if self.carrier.can_look_up and now - send.since > self.id_lasts - LAST_LOOK:
                send.again = False
                looked_up.append(send)
                continue
            doubts.ask_again_at(message.id, self.name, at)
        going = self.within_rate(again)
        for send in again[len(going) :]:
            doubts.ask_again_at(send.message.id, self.name, now)
        return looked_up + going, moves

    @property
    def id_lasts(self) -> timedelta:
        """How long after a text was first given the carrier is sure to know it again."""
        return self.carrier.keeps_ids - ON_ITS_WAY

    def forget_ids(self, now: datetime) -> bool:
        """Treat old doubts like those of a carrier that cannot be asked, if it keeps ids no more.

        Return whether there may be more of them.
        """
        if self.carrier.keeps_ids in (None, timedelta.max):
            return False
        return doubts.forget_ids(self.name, now - self.id_lasts) > 0

    def is_received(self, message: Message, now: datetime) -> bool:
        """Return whether a kept receipt shows that a carrier has a text in doubt."""
        return message.id in receipts.look_again(message.to, now)

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
            return self.claim_by(lambda: self.claim_first(choices, room))
        except Exception as error:
            if is_outage(error):
                raise
        self.look_at = 0  # what we know of turns may be wrong
        return self.claim_but_broken(self.choices(), room)

    def claim_first(self, choices: list[Callable], room: int) -> list[Message]:
        """Claim messages of the first choice that has any; only one after a pause."""
        claims = (self.turns.claim(room, each, bool(self.watch.probe)) for each in choices)
        return next(filter(None, claims), [])

    def claim_but_broken(self, choices: list[Callable], room: int) -> tuple[int, list[Send]]:
        """Claim and judge like `claim`; set aside the messages that break this."""

        def claim(ids):
            return self.claim_by(lambda: claim_these(ids))

        def put_off(id):
            set_aside(id, self.clock.now())

        with db.atomic():
            found = (self.turns.find(room, each, bool(self.watch.probe)) for each in choices)
            ids = next(filter(None, found), [])
        parts = all_but_broken(claim, ids, log, "message {} is set aside".format, put_off)
        return sum(count for count, _ in parts), [*chain(*(going for _, going in parts))]

    def claim_by(self, claim: Callable[[], list[Message]]) -> tuple[int, list[Send]]:
        """Claim messages by a function, and judge them in the same transaction."""
        now, before = self.clock.now(), self.pulse.moment()
        with db.atomic():
            if not self.pulse.lives_on():
                return 0, []
            messages = claim()
            sends = [self.send_of(each) for each in messages]
            ready, moves = self.judge(sends, now)
            going = self.within_rate(ready)
            waiting = ready[len(going) :]
            Message.put_back([send.message for send in waiting])
            given = [send.message for send in going]
            copies = Attempt.begin(given, self.name, self.pulse.sender, now)
            self.turns.put_back([send.message for send in waiting])
        self.pulse.note_beat(before)
        for send in going:
            send.copy = copies[send.message.id]
        for send, outcome in moves:
            self.recorder.note_move(send, outcome.move, outcome.why)
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
            Attempt.let_go(sender, Attempt.message.in_(questions))
        return bool(texts or questions)

    def choices(self) -> list[Callable[[Lane, str], bool]]:
        """Return conditions for the texts that this carrier may be given, better choices first.

        Do not probe with a text that is in doubt, unless no other carrier can take it. Other texts
        are left to a carrier whose pause is over, if it can take one.
        """
        routes, now = self.routes, self.clock.now()
        trouble = CarrierState.in_trouble(routes.names) if routes.are_several else set()
        paused = trouble & (CarrierState.in_trouble(routes.names, now) | self.unable)

        def may_take(lane, key):
            return routes.may_take(self.name, lane, key, trouble if lane.doubts else paused)

        def is_sure(lane, key):
            return may_take(lane, key) and not lane.doubts

        def has_no_other(lane, key):
            return may_take(lane, key) and trouble.issuperset(routes.order(lane, key))

        if self.clock.monotonic() >= self.look_at or not self.sends.under_way:
            self.turns.look(may_take, now)
            self.look_at = self.clock.monotonic() + LOOK_EVERY
        if not self.turns.lanes:
            return []
        return [is_sure, has_no_other] if self.watch.is_risky else [may_take]

    def judge(
        self, sends: list[Send], now: datetime
    ) -> tuple[list[Send], list[tuple[Send, Outcome]]]:
        """Return the messages that may be sent, and the others with their outcomes.

        The rules of their keys are read at this moment.
        """
        ready, moves = [], []
        rules = rules_of({send.message.key_id for send in sends})
        opted_out = do_not_call.listed({send.message.to for send in sends})
        equals = self.open_texts(sends)
        for send in sends:
            message = send.message
            text = message.to, message.message
            if message.in_doubt and self.is_received(message, now):
                moves.append((send, Outcome(Status.SENT)))
                continue
            about = opted_out.get(message.to), now, text in equals
            outcome = self.judge_one(send, rules[message.key_id], *about)
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
        self, send: Send, own: KeyRules, opted_out: bool | None, now: datetime, has_equal: bool
    ) -> Outcome | None:
        """Judge a message; set aside one that cannot be judged, so that it delays no other."""
        message = send.message
        try:
            send.terms = self.terms.of_key(own)
            return outcomes.judge(message, send.terms, opted_out, now, has_equal, send.again)
        except Exception as error:
            kind = type(error).__name__  # its message may hold the number
            about = send.log_fields
            log.error("message %s cannot be judged: %s", message.id, kind, extra=about)
            return outcomes.cannot_be_judged(message, error, self.terms, now)

    def within_rate(self, ready: list[Send]) -> list[Send]:
        """Return as many of these messages, from the first on, as SEND_RATE allows now."""
        if not (self.watch.rate and ready):
            return ready
        share = self.watch.take_rate([send.message.parts for send in ready])
        if share.texts and share.delay:
            ready[0].not_before = self.clock.monotonic() + share.delay
        return ready[: share.texts]
