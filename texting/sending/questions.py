"""Ask a carrier about texts in doubt, and record what it answers.

1. `Questions.ask` claims the questions that are due. 2. A carrier that keeps ids is given the text
again, if `judge_again` says that it may go: that is the question. If it may not, it is looked up
where the carrier can tell. 3. `QuestionRecorder` records the answer: found, not there, refused, or
none at all, after which the carrier is asked again later.
"""

from datetime import datetime, timedelta
from typing import Any

from texting.access import do_not_call
from texting.access.keys import ApiKey, rules_of
from texting.access.places import residences
from texting.carriers import CarrierError, Fault
from texting.database import db
from texting.messages import doubts, receipts
from texting.messages.attempts import DIED, IS_UNDER_WAY, Result
from texting.messages.model import SET_ASIDE, WAITING, Message, Status
from texting.sending import outcomes
from texting.sending.outcomes import Outcome
from texting.sending.recorder import Recorder
from texting.sending.runtime import LOOK_EVERY
from texting.sending.sends import Answer, Kind, NotSent, Send

CLOCKS_DIFFER = timedelta(days=1)  # at most, a carrier's and this machine's
LAST_LOOK = timedelta(minutes=10)  # before a carrier forgets the id of a text that waits
ON_ITS_WAY = timedelta(minutes=5)  # a text that is given again may be, while its id is forgotten


class Questions:
    """The texts in doubt about which the carrier of a Sender is asked."""

    def __init__(self, sender: Any):
        self.sender, self.carrier, self.name = sender, sender.carrier, sender.name
        self.clock = sender.clock
        self.look_at = 0  # if none was due: when to look again, by the monotonic clock

    def ask(self, room: int) -> list[Send]:
        """Return some messages in doubt to ask the carrier about now.

        If a kept receipt shows that the carrier has a message, no question is needed.
        """
        monotonic = self.clock.monotonic()
        is_look_due = monotonic >= self.look_at or not self.sender.sends.under_way
        if not (self.carrier.settles_doubts and is_look_due):
            return []
        now, questions = self.clock.now(), []
        due = {attempt.message_id for attempt in doubts.to_ask(self.name, now, room)}
        if not due:
            self.look_at = monotonic + LOOK_EVERY
            return []
        messages = [*Message.select().where(Message.id.in_([*due])).order_by(Message.id)]
        with db.atomic():
            listed = messages if self.carrier.can_be_asked else ()
            under_way = doubts.texts_at(self.sender.listed_with, listed, IS_UNDER_WAY)
        for message in self.claim(messages, now):
            send = self.sender.send_of(message)
            if self.is_received(message, now):
                self.sender.recorder.record_move(send, "sent")
            elif (message.to, message.message) in under_way:  # a person has retried this one
                doubts.ask_again_at(message.id, self.name, now + outcomes.EQUAL_TEXT_DELAY)
            elif copies := doubts.unclear_at(self.name, message.id):
                send.kind, send.since, send.copy = Kind.AGAIN, copies[0].begun_at, copies[0].copy
                if self.carrier.can_be_asked:
                    send.kind, send.since = Kind.FIND, send.since - CLOCKS_DIFFER
                questions.append(send)
        if not self.carrier.keeps_ids:
            return questions
        with db.atomic():
            going, moves = self.judge_again(questions, now)
        for send, outcome in moves:
            self.sender.recorder.record_move(send, outcome.move, outcome.why)
        return going

    def claim(self, messages: list[Message], now: datetime) -> list[Message]:
        """Claim the questions about messages; return those that no other scheduler has claimed."""
        with db.atomic():
            if not self.sender.pulse.beat_in_transaction():
                return []
            owner = self.sender.pulse.sender
            return [each for each in messages if doubts.claim(each.id, self.name, owner, now)]

    def judge_again(
        self, questions: list[Send], now: datetime
    ) -> tuple[list[Send], list[tuple[Send, Outcome]]]:
        """Return those texts in doubt that are given again or looked up, and those that end.

        Those that may not go now wait, and are looked up where the carrier can be asked: what it
        does not have stays in doubt, or is free shortly before the carrier forgets its id. Of those
        that end without, nobody can tell whether they were taken.
        """
        again, looked_up, moves = [], [], []
        locked = Message.locked([each.message.id for each in questions])
        rules = rules_of({each.key_id for each in locked.values()})
        numbers = {each.to for each in locked.values()}
        opted_out, homes = do_not_call.listed(numbers), residences(numbers)
        paused = {key.id for key in ApiKey.paused()}
        for send in questions:
            send.message = message = locked.get(send.message.id, send.message)
            later = Outcome(Status.SCHEDULED, send_at=now + outcomes.EQUAL_TEXT_DELAY)
            if message.status in WAITING and message.id in locked:
                about = rules[message.key_id], homes.get(message.to), opted_out.get(message.to)
                outcome = self.sender.judge_one(send, *about, now, has_equal=False)
                is_known = now - send.since < self.id_lasts
                if outcome is None and is_known and message.key_id not in paused:
                    again.append(send)
                    continue
                ends = outcome and outcome.status not in WAITING
                if outcome and outcome.send_at:
                    later = later._replace(send_at=min(later.send_at, outcome.send_at))
                if self.carrier.can_look_up:
                    is_last = now - send.since > self.id_lasts - LAST_LOOK
                    send.kind = Kind.LOOK_UP
                    send.otherwise = outcome if ends else None if is_last else later
                    looked_up.append(send)
                    continue
                if ends and message.apply_waiting(outcome, now):
                    moves.append((send, outcome))
            doubts.ask_again_at(message.id, self.name, later.send_at)
        going = self.sender.within_rate(again)
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
        return doubts.forget(self.name, now - self.id_lasts) > 0

    def is_received(self, message: Message, now: datetime) -> bool:
        """Return whether a kept receipt shows that a carrier has a text in doubt."""
        return message.id in receipts.look_again(message.to, now)


class QuestionRecorder(Recorder):
    """Record a carrier's answers to texts and to questions about texts in doubt."""

    def leave(self, answer: Answer, now: datetime) -> None:
        """Let a message wait if its answer cannot be recorded; ask about one in doubt later."""
        if answer.send.asking:
            at = now + SET_ASIDE
            self.retry(doubts.ask_again_at, answer.send.message.id, self.name, at)
        else:
            super().leave(answer, now)

    def record_other(self, answers: list[Answer], now: datetime) -> None:
        """Record the answer to a question, or that a text was not accepted."""
        ((send, error, said),) = answers
        if not send.asking:
            super().record_other(answers, now)
        elif isinstance(error, NotSent):
            doubts.ask_again_at(send.message.id, self.name, now)
        elif error and send.kind is Kind.AGAIN and outcomes.is_refusal(error):
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
            is_moved = outcome and message.apply_waiting(outcome, now)
            if not is_moved and error.fault is not Fault.ACCOUNT:
                message.record_error(str(error), now)
            doubts.ask_again_at(message.id, self.name, at)
        if is_moved:
            self.record_move(send, outcome.move, outcome.why)

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
                message = doubts.rule_out(send.message, self.name, now, Result.REFUSED, str(error))
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
                is_moved = message.apply_waiting(outcome, now, attempts=tries, lane=lane)
                doubts.ask_again_at(message.id, self.name, outcome.send_at or now)
        if is_moved and outcome.status != Status.QUEUED:
            self.record_move(send, outcome.move, outcome.why)

    def record_found(self, send: Send, said: list[str] | str | None, now: datetime) -> None:
        """Record whether the carrier has a text in doubt.

        `said` are the references of all such texts, or that of the one that was given again.
        """
        message = send.message
        copies = doubts.unclear_at(self.name, message.id)
        if send.kind is not Kind.AGAIN:
            found = [each for each in copies if receipts.found(each, said, now, self.name)]
        elif found := copies[:1]:
            receipts.record_accepted(
                {message.id: said}, now, self.name, {message.id: found[0].claim_number}
            )
        if not found and send.otherwise and send.otherwise.status in WAITING:
            doubts.ask_again_at(message.id, self.name, send.otherwise.send_at)
            return
        with db.atomic():
            message.read_again()
            message = doubts.rule_out(message, self.name, now)
            if found or message is None or message.status not in WAITING:
                outcome = None
            elif outcome := outcomes.not_taken(message, doubts.deaths(message), send.otherwise):
                message.apply_waiting(outcome, now)
        if found:
            self.record_move(send, "sent")
        elif outcome:
            self.record_move(send, outcome.move, outcome.why)
