"""Sending through one carrier: claim, judge, send, record.

The threads of a pool talk to the carrier and do nothing else. The thread that calls `send_queued`
uses the database. It records answers before it claims more: a scheduler that dies leaves no more
messages in doubt than it had sends under way.
"""

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial
from typing import Any

import database
import reports
from access.do_not_call import DoNotCall
from access.keys import ApiKey
from access.rules import KeyRules, end
from carriers import Carrier
from carriers.ways import Way
from database.clock import Steps
from models import Message, Status
from sending import claims, outcomes, receipts
from sending.attempts import Attempt
from sending.carrier_state import CarrierState, Permission
from sending.heartbeats import Heartbeat  # noqa: F401
from sending.inbound import ReplyRules
from sending.lanes import assign
from sending.outcomes import Outcome, Step, Terms
from sending.rate import Rate
from sending.recorder import Inbox, Recorder
from sending.routes import Routes, of_answers
from sending.runtime import THIS_MACHINE, TICK, Runtime, Stop
from sending.sends import Send, Sends
from sending.watch import CarrierWatch
from settings import Settings

LONGEST_WAIT = 60  # seconds that a pass waits for the carrier's pauses and sends nothing
TESTERS = "(testers)"  # the name under which the state of their simulator is kept
COLLECT_EVERY = 1  # seconds until a STOP is recorded while sends are under way

log = logging.getLogger("scheduler")


class Sender:
    """Send queued messages through a carrier, or those of testers through their simulator."""

    def __init__(
        self,
        settings: Settings,
        carrier: Carrier,
        stop: Stop,
        for_testers: bool = False,
        runtime: Runtime = THIS_MACHINE,
        routes: Routes | None = None,
    ):
        self.settings, self.stop, self.clock = settings, stop, runtime.clock
        self.for_testers = for_testers
        self.answers = not for_testers and bool(settings.stop_reply or settings.help_reply)
        self.name = TESTERS if for_testers else carrier.name
        self.routes = routes = routes or Routes([Way(self.name)])
        self.terms = _terms(settings, carrier, self.name, routes)
        self.renew_every = settings.claim_timeout / 4  # seconds
        self.longest_wait = 0 if for_testers else LONGEST_WAIT  # the pass waits for testers
        self.claimant = uuid.uuid4()
        per_second = None if for_testers else routes.rate(self.name) or settings.send_rate
        # A part holds sixteen characters at least, however much each consists of
        rate = Rate(per_second, settings.max_message_length // 16 + 1) if per_second else None
        self.sends = Sends(carrier, settings.send_concurrency, stop, runtime)
        self.watch = CarrierWatch(
            *(self.name, carrier, rate, settings.claim_timeout, stop, self.clock),
            are_several=routes.are_several,
        )
        self.recorder = Recorder(
            *(self.claimant, self.terms, self.watch, self.sends, self.retry_through_outage), routes
        )
        self.inbox = Inbox(carrier, ReplyRules.of(settings, routes.way(carrier.name)), self.watch)
        self.key_names = {}  # by id, for the log
        self.first = None  # the keys that have the next shares: by whether they are urgent
        self.left = 0  # messages that the present pass may still claim
        self.moves = 0  # how many messages it has claimed, ever
        self.waits_for_lanes = False  # others are writing those of messages just now
        self.renew_at = 0  # by the monotonic clock
        self.steps = Steps(self.clock.now, self.clock.monotonic)

    def send_queued(self, meanwhile: Callable[[], int] = int, most: float | None = None) -> Counter:
        """Send until nothing may be sent, the carrier pauses for long, or a stop is requested.

        Claim no more than `most` messages, by default as many as wait. Return how often each thing
        happened. Each round: 1. record answers, 2. call `meanwhile`, which returns how many
        messages it has queued, 3. renew claims, 4. claim as many as may be sent, and judge them,
        5. put back those for which SEND_RATE is used up, 6. begin to send, 7. wait for an answer.
        """
        self.recorder.begin_pass()
        self.waits_for_lanes = False
        # Or a pass might never end while messages arrive
        self.left = reports.awaiting_carrier(self.for_testers) if most is None else most
        if self.first is None:
            self.first = CarrierState.get_by_id(self.name).first
        before = dict(self.first)
        self.renew_at = self.clock.monotonic() + self.renew_every
        with self.sends.threads():
            while (pause := self.begin_sends(meanwhile)) is not None:
                self.await_answers(pause)
        if self.first != before:
            CarrierState.begin_with(self.name, self.first)
        return self.recorder.counts

    def begin_sends(self, meanwhile: Callable[[], int]) -> float | None:
        """Begin what may be sent now; return the seconds until more may go, None at the end."""
        retry = self.retry_through_outage
        self.left += sum(answer.may_go_soon for answer in self.recorder.unrecorded)
        again = self.recorder.record()
        self.left += meanwhile()
        while_asked = partial(self.while_asked, meanwhile)
        permission, pause = retry(self.watch.permission, bool(self.sends.under_way), while_asked)
        room = self.room(permission)
        self.put_back(again[room:])
        again = again[:room]
        room = min(self.left, room - len(again))
        claimed, ready = retry(self.claim, room, again)
        ready = self.within_rate(ready)
        for send in ready:
            self.sends.begin(send, self.watch.probe)
        if self.watch.probe and ready:
            retry(CarrierState.note_probe, self.name, ready[0].message.id)
        elif self.watch.probe:
            retry(self.watch.end_unused_probe)
        wait_until = self.recorder.progress_at + self.longest_wait
        waits = self.left and pause and self.clock.monotonic() + pause <= wait_until
        return pause if self.sends.under_way or claimed or waits else None

    def while_asked(self, meanwhile: Callable[[], int]) -> None:
        """Do what does not wait for the carrier, while it is asked whether it serves."""
        self.left += meanwhile()
        self.inbox.collect()

    def await_answers(self, pause: float) -> None:
        """Wait for an answer, but no longer than until there is something else to do."""
        soon = min(self.renew_every, COLLECT_EVERY, self.stop.seconds_left)
        if not self.sends.under_way:
            soon = min(soon, TICK, pause)
        elif self.watch.rate and self.left and pause:
            soon = min(soon, pause)
        self.recorder.unrecorded = self.sends.gather(soon)
        if not self.stop.seconds_left:
            self.recorder.unrecorded += self.sends.abandon()
        self.retry_through_outage(self.inbox.collect)

    def retry_through_outage(self, action: Callable, *arguments: Any) -> Any:
        """Call something that needs the database; while it is away, again; return the result.

        With messages in hand we wait for the database, because giving up would send them twice. We
        wait no longer than SHUTDOWN_TIMEOUT once a stop is requested.
        """
        while True:
            try:
                return action(*arguments)
            except database.ERRORS as error:
                if not database.is_outage(error):
                    raise
                database.disconnect()
                in_hand = self.sends.under_way or self.recorder.unrecorded
                if not in_hand or not self.stop.seconds_left:
                    raise
                log.error("the database failed, trying again: %s", database.reason(error))
                self.clock.sleep(1)

    # Which may go

    def room(self, permission: Permission) -> int:
        """Return how many more texts may be begun."""
        room = self.sends.room
        if permission is not Permission.ALL:
            return min(room, int(permission is Permission.PROBE))
        return min(room, self.watch.rate.most()) if self.watch.rate else room

    def claim(self, room: int, again: list[Send]) -> tuple[int, list[Send]]:
        """Renew our claims and claim more messages; return how many, and all that may go now.

        The messages in `again` are judged once more: they may be sent, too.
        """
        now, monotonic = self.clock.now(), self.clock.monotonic()
        held_until = monotonic + self.settings.claim_timeout / 2
        ahead = now.timestamp() - monotonic
        # After a step of the wall clock they may look as if their sender were dead
        renewing = self.steps.noticed() or monotonic >= self.renew_at
        held = [*self.sends.under_way.values()] if renewing else []
        lanes = self.lanes() if room else []
        if not (lanes or held or again or self.answers) and not self.routes.is_plain:
            return 0, []
        with database.db.atomic():
            renewed = claims.renew(self.claimant, [send.message for send in held], now)
            new = self.claim_new(room, now, lanes)
            if unknown := {message.key_id for message in new} - self.key_names.keys():
                self.key_names |= ApiKey.names(unknown)
            names, terms = self.key_names, self.terms
            claimed = [Send(each, names.get(each.key_id), held_until, terms, ahead) for each in new]
            ready, moves = self.judge([*again, *claimed], now)
            going = [send.message for send in ready if not send.asking]
            Attempt.begin(going, self.name, self.claimant, now)
        if renewing:
            self.renew_at = monotonic + self.renew_every
        for send in held:
            if send.message.id in renewed:
                send.held_until, send.ahead = held_until, ahead
        self.left -= len(new)
        self.moves += len(new)
        for send in claimed:  # in the order of service
            self.first[send.terms.key.urgent] = send.message.key_id + 1
        for send, outcome in moves:
            self.recorder.note(send, outcome.move, outcome.why)
        return len(new), ready

    def lanes(self) -> list[list[str] | None]:
        """Return the lanes whose messages may go through this carrier now, in groups.

        None stands for all: of testers, or where one carrier is for all.
        """
        routes = self.routes
        if routes.is_plain:
            return [None]
        trouble = CarrierState.in_trouble(routes.names)
        lanes = assign(routes, self.first)
        self.waits_for_lanes = any(map(routes.is_old, lanes))
        return routes.lanes_of(self.name, lanes, trouble, self.watch.is_risky)

    def claim_new(self, room: int, now: datetime, lanes: list[list[str] | None]) -> list[Message]:
        """Claim messages, answers to replies before all others.

        After a pause it is one, and not of the key of the last one if another key has any; nor is
        it the same one if there is another. What is not urgent goes after what was.
        """
        last = self.last_probe() if room and self.watch.probe else None
        if last is None:
            return self.claim_by_turn(room, now, lanes)
        for others_first in (True, False) if last.goes_before_others else (False,):
            turn = {"but_of": {last.key_id}, "others_first": others_first}
            if claimed := self.claim_by_turn(1, now, lanes, **turn):
                return claimed
        two = self.claim_by_turn(2, now, lanes)
        going = ([each for each in two if each.id != last.id] or two)[:1]
        claims.put_back(self.claimant, [each for each in two if each not in going])
        return going

    def last_probe(self) -> Message | None:
        """Return the message that went first after a pause last, with its key."""
        this = Message.id == self.watch.state.probed
        return Message.select(Message, ApiKey).join(ApiKey).where(this).first()

    def claim_by_turn(
        self,
        room: int,
        now: datetime,
        lanes: list[list[str] | None],
        but_of: Collection[int] = (),
        others_first: bool = False,
    ) -> list[Message]:
        """Claim messages, answers to replies before all others, but none of some keys.

        The others are of the first group of lanes in which there are any; with `others_first`, it
        is them alone, those of urgent keys last.
        """
        claimed = []
        if room and self.answers and not others_first:
            own = [of_answers(name) for name in self.routes.way(self.name).names]
            whose = self.name, None if self.routes.is_plain else own, but_of
            claimed = claims.claim_answers(self.claimant, room, now, *whose)
        for group in lanes:
            whose = self.first[False], self.for_testers, self.first[True], self.name, group
            whose += but_of, others_first
            if more := claims.claim(self.claimant, room - len(claimed), now, *whose):
                return claimed + more
        return claimed

    def judge(
        self, sends: list[Send], now: datetime
    ) -> tuple[list[Send], list[tuple[Send, Outcome]]]:
        """Return the messages that may be sent, and the others with what became of them.

        Their keys' rules are those of this moment.
        """
        ready, moves = [], []
        rules = ApiKey.rules_of({send.message.key_id for send in sends})
        setting, each = self.terms.key.check_dnc, (send.message for send in sends)
        checked = {m.to for m in each if m.check_dnc or rules[m.key_id].checks(setting)}
        listed = DoNotCall.listed(checked)
        for send in sends:
            message = send.message
            if message.in_doubt and message.id in receipts.look_again(message.to, self.routes.ways):
                moves.append((send, Outcome(Status.SENT)))
                continue
            step = self.next_step(send, rules[message.key_id], message.to in listed, now)
            if isinstance(step, Step):
                send.asking = step is Step.ASK
                ready.append(send)
            elif message.apply(step, now):
                moves.append((send, step))
        return ready, moves

    def next_step(self, send: Send, own: KeyRules, listed: bool, now: datetime) -> Step | Outcome:
        """Judge a message; one that cannot be judged is set aside, and holds up no neighbour."""
        message = send.message
        try:
            send.terms = self.terms.of_key(own)
            if message.expires_at is None:  # stored just now by a version before migration 0035
                lasts = message.lasts(own, self.settings.expire_after)
                message.expires_at = end(message.first_send_at, lasts)
            return outcomes.judge(message, send.terms, listed, now)
        except Exception as error:
            kind = type(error).__name__  # its words may hold the number
            words = "message %s cannot be judged: %s"
            log.error(words, message.id, kind, extra=send.log_fields)
            return outcomes.cannot_be_judged(message, error, self.terms, now)

    def within_rate(self, ready: list[Send]) -> list[Send]:
        """Return the messages that SEND_RATE lets go now; put the rest back into their places."""
        texts = [send for send in ready if not send.asking]
        if not (self.watch.rate and texts):
            return ready
        parts = [send.message.parts or 1 for send in texts]
        share = self.retry_through_outage(self.watch.take_rate, parts)
        going, waiting = texts[: share.texts], texts[share.texts :]
        self.put_back(waiting)
        if share.delay:
            going[0].not_before = self.clock.monotonic() + share.delay
        return [send for send in ready if send not in waiting]

    def put_back(self, waiting: list[Send]) -> None:
        """Give up the claims of messages that may not go now; their key is the next in turn."""
        if waiting:
            messages = [send.message for send in waiting]
            self.retry_through_outage(self.recorder.take_back, messages)
            self.left += len(waiting)
            for send in reversed(waiting):
                self.first[send.terms.key.urgent] = send.message.key_id


def _terms(settings, carrier, name, routes):
    """Return the terms of texts whose keys have no rules of their own."""
    return Terms.of(
        settings,
        carrier.can_be_asked,
        carrier=name,
        first=routes.first,
        others=routes.can_be_asked - {name},
        are_several=routes.are_several,
        called=routes.called,
    )
