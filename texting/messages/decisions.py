"""What people decide: to approve, refuse, cancel or retry messages, and to undo that.

The audit records each decision in the same transaction.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from peewee import Case, chunked

from texting.access.audit import Action, Audit
from texting.access.keys import ApiKey
from texting.access.limits import Limit, lock_numbers
from texting.carriers.lanes import Lane
from texting.database import MILLISECOND, PAGE, Refused, clock, db, in_pages
from texting.messages import doubts, waiting
from texting.messages.attempts import Attempt
from texting.messages.model import (
    IS_WAITING,
    RETRYABLE,
    WAITING,
    Message,
    Status,
    accepted_to,
    has_status,
)

LONGEST_NOTE = 500
"""How many characters of a note are kept."""

UNDO_WITHIN = timedelta(minutes=1)
"""How long people can undo a decision, if the text still waits."""

UNDO_FOR_CERTAIN = timedelta(seconds=10)
"""How long a text approved at the desk waits at least, so that Undo is sure to work."""

ANEW = {
    "status": Status.SCHEDULED,
    "due_since": None,
    "finished_at": None,
    "attempts": 0,
    "cancelled_by": None,
    "heard_of": False,
    "note": None,
    "receipt_at": None,  # the reference stays: it names the first text, not the next one
}
"""The columns that change when a person sends a message again."""

IS_CANCELLABLE = IS_WAITING & Message.cancelled_by.is_null()

IS_RETRYABLE = has_status(*RETRYABLE) & Message.to.is_null(False) & Message.auto_reply_to.is_null()
"""Neither redacted, nor an automatic reply, which gets one try."""


class Selection:
    """One or several messages that a person decides on together.

    Each transition changes the messages that allow it, in one transaction, and returns their ids;
    `unchanged` has the ids of the others.
    """

    def __init__(self, ids: Iterable[UUID]):
        self.unchanged = {*ids}

    def approve(self, by: str, now: datetime) -> list[UUID]:
        """Let messages be sent when their time comes; approving again has no effect.

        Messages that no longer wait, or are withdrawn, are left out.
        """
        again = Message.approved & Message.cancelled_by.is_null()
        with db.transaction():
            return self.decide(True, by, now) + self._move(WAITING, again, approved=True)

    def decide(
        self,
        yes: bool,
        by: str,
        now: datetime,
        not_before: datetime | None = None,
        note: str | None = None,
    ) -> list[UUID]:
        """Approve or refuse messages that wait for approval.

        Once approved, each waits for its time, or for `not_before` if that is later. `note` says
        why they are refused.
        """
        if yes:
            action = Action.APPROVED
            changes = {"approved": True, "approved_by": by, "approved_at": now}
            if not_before:
                sooner = (Message.send_at < not_before, Message.send_at.db_value(not_before))
                send_at = Case(None, [sooner], Message.send_at)
                changes |= {"status": Status.SCHEDULED, "send_at": send_at}
        else:
            action = Action.REFUSED
            changes = {"status": Status.CANCELLED, "finished_at": now}
            changes |= {"cancelled_by": by, "note": note}
        awaits = ~Message.approved & Message.cancelled_by.is_null()  # or it is withdrawn
        return self._act(action, now, WAITING, awaits, **changes)

    def cancel(self, by: str, now: datetime, note: str | None = None) -> list[UUID]:
        """Cancel messages that wait; `note` says why.

        A message in doubt is withdrawn: it waits until the carrier has been asked about it.
        """
        cancel = partial(self._act, Action.CANCELLED, now, WAITING, cancelled_by=by, note=note)
        ended = {"status": Status.CANCELLED, "finished_at": now}
        with db.transaction():
            at_once = cancel(~Attempt.in_doubt(), **ended)
            return at_once + cancel(Attempt.in_doubt(), send_at=now)

    def retry(self, now: datetime, expire_after: timedelta) -> list[UUID]:
        """Send messages again that did not reach their recipients, each with all its retries.

        Each goes at once, or at a send_date in the future, and expires as if it were new;
        `expire_after` is for keys without a rule of their own. An automatic reply gets one try.
        """
        later = (Message.send_date > now, Message.send_date)
        anew = ANEW | {
            "send_at": Case(None, [later], Message.send_at.db_value(now)),
            "claims_before_retry": Message.claim_number,
            "lane": _lane_anew(self.unchanged),
        }
        anew["first_send_at"] = anew["send_at"]
        with db.transaction():
            done = self._act(Action.RETRIED, now, RETRYABLE, IS_RETRYABLE, **anew)
            doubts.recount(done)
            waiting.renew_expiry(done, expire_after)
        return done

    def undo_approval(self, by: str, now: datetime) -> list[UUID]:
        """Let messages wait for approval again, unless they may have been sent.

        Only the person who approved them may do so, and only within UNDO_WITHIN.
        """
        mine = (Message.approved_by == by) & (Message.approved_at > now - UNDO_WITHIN)
        was_queued = Message.first_send_at <= Message.approved_at
        before = {
            "status": Case(None, [(was_queued, Status.QUEUED)], Status.SCHEDULED),
            "send_at": Message.first_send_at,
            "approved": False,
        } | dict.fromkeys(("approved_by", "approved_at", "due_since"))
        waits = Message.approved & ~Attempt.in_doubt() & mine
        return self._undo(Action.APPROVED, now, WAITING, waits, **before)

    def undo_cancel(self, by: str, now: datetime, limit: Limit | None = None) -> list[UUID]:
        """Let cancelled or refused messages wait again, in transactions with one of each number.

        Only the person who cancelled them may do so, and only within UNDO_WITHIN. Each counts for
        the limit of its recipient again, which must allow it: its key's own, or `limit`. The
        scheduler queues what is due, unless the number has joined the Do Not Call list.
        """
        needed = Message.id, Message.to, Message.created_at, ApiKey
        done, these = [], Message.select(*needed).join(ApiKey)
        left = list(these.where(Message.id.in_([*self.unchanged])).order_by(Message.id))
        while left:
            first = {message.to: message for message in reversed(left)}
            left = [message for message in left if first[message.to] is not message]
            for some in chunked(first.values(), PAGE):
                with db.transaction():
                    lock_numbers({m.to for m in some if m.key.recipient_limit_or(limit)} - {None})
                    fit = [each.id for each in some if _fits(each, limit)]
                    done += Selection(fit)._undo_cancel(by, now)
        self.unchanged.difference_update(done)
        return done

    def _undo_cancel(self, by, now):
        among = Action.CANCELLED, Action.REFUSED
        latest = Audit.latest(self.unchanged, among, now - UNDO_WITHIN)
        done = []
        for undone in among:
            these = Selection(
                i for i in self.unchanged if latest.get(i, Action.CANCELLED) == undone
            )
            if not these.unchanged:
                continue
            undo = partial(these._undo, undone, now, cancelled_by=None, note=None)
            mine = Message.cancelled_by == by
            ended = mine & (Message.finished_at > now - UNDO_WITHIN)
            withdrawn = mine & (Message.send_at > now - UNDO_WITHIN)
            anew = {"status": Status.SCHEDULED, "finished_at": None}
            done += undo([Status.CANCELLED], ended, **anew) + undo(WAITING, withdrawn)
        return done

    def _act(self, action, now, among, condition, *, undone=None, **changes):
        """Make a transition, and note it in the audit; return the ids of the changed messages.

        `undone` is the action that this one takes back.
        """
        with db.transaction():
            moved = self._move(among, condition, **changes)
            Audit.note_each(action, now, Audit.message_id, moved, details=undone)
        return moved

    def _undo(self, action, now, among, condition, **changes):
        return self._act(Action.UNDONE, now, among, condition, undone=action, **changes)

    def _move(self, among, condition, **changes):
        """Change the messages that meet the condition; lock all first, sorted, against deadlocks.

        Redacted messages are left out: they are never sent again.
        """
        some = Message.id.in_([*self.unchanged]) & Message.status.in_([*among])
        rows = Message.select(Message.id).order_by(Message.id)
        locked = [each.id for each in db.lock_rows(rows.where(some, Message.to.is_null(False)))]
        ids = [each.id for each in rows.where(Message.id.in_(locked), condition)]
        if ids:
            Message.change(Message.update(changes).where(Message.id.in_(ids)))
        self.unchanged.difference_update(ids)
        return ids


def read_note(words: str | None) -> str | None:
    """Return why somebody refuses or cancels, in one line, or None without any words.

    Raise Refused if they are more than LONGEST_NOTE characters.
    """
    note = " ".join((words or "").split())
    if len(note) > LONGEST_NOTE:
        raise Refused(f"a note has {LONGEST_NOTE} characters at most: this one has {len(note):,}")
    return note or None


def decided_at(at: datetime, action: Action, who_key: int) -> list[UUID]:
    """Return the ids of the messages on which a person decided at an instant.

    They are in the order in which they were to be sent.
    """
    decided = _decided_at(at, action, who_key).order_by(Message.first_send_at, Message.id)
    return [id for (id,) in decided.tuples()]


def can_undo(at: datetime, action: Action, who_key: int) -> bool:
    """Return whether some of what a person decided at an instant can be undone, unless too late."""
    stays = Message.status == Status.CANCELLED
    if action == Action.APPROVED:
        stays = IS_WAITING & Message.approved & ~Attempt.in_doubt()
    return _decided_at(at, action, who_key).where(stays, Message.to.is_null(False)).exists()


def _decided_at(at, action, who_key):
    theirs = (Audit.at == at) & (Audit.who_key == who_key) & (Audit.what == action)
    decided = Audit.select(Audit.message_id).where(theirs, Audit.message_id.is_null(False))
    return Message.select(Message.id).where(Message.id.in_(decided))


def revoke(key: ApiKey, now: datetime) -> bool:
    """Revoke a key; return False if it was revoked before.

    Raise Refused if it is paused and has texts waiting, because nobody could resume them.
    """
    if key.revoked_at:
        return False
    to_be_sent = has_status(*WAITING, Status.SENDING) & Message.cancelled_by.is_null()
    with db.transaction():
        if key.paused_at:
            _await_creates(key)
            if Message.select().where(Message.key == key, to_be_sent).exists():
                raise Refused(
                    f"the key {key.name!r} is paused and has waiting texts: add --cancel, or "
                    "resume it first"
                )
        if key.revoke(now):
            return True
    if ApiKey.get_by_id(key.id).revoked_at:
        return False
    raise Refused(f"the key {key.name!r} was paused or resumed just now: try again")


def revoke_and_cancel(key: ApiKey, by: str) -> tuple[bool, int]:
    """Pause a key, cancel its waiting texts, and revoke it.

    Return whether it was still valid, and how many texts were cancelled. They are cancelled in
    batches; if interrupted between two of them, this can simply be called again.
    """
    if not key.revoked_at:
        key.pause(clock.now())
    with db.transaction():
        _await_creates(key)
    cancelled = 0
    while count := _cancel_all(key, by):
        cancelled += count
    return ApiKey.get_by_id(key.id).revoke(clock.now()), cancelled


def _await_creates(key):
    """Wait for the messages of a paused or revoked key that are being stored; no more follow."""
    db.lock_rows(ApiKey.select(ApiKey.id).where(ApiKey.id == key.id)).execute()


def _cancel_all(key, by):
    """Cancel the waiting texts of a key; return how many."""
    waiting = Message.select(Message.id).where(Message.key == key, IS_CANCELLABLE)
    ids = in_pages(waiting.order_by(Message.id), None, lambda last: Message.id > last.id)
    pages = chunked((each.id for each in ids), PAGE)
    return sum(len(Selection(page).cancel(by, clock.now())) for page in pages)


def _lane_anew(ids):
    """Return the expression for the lanes of messages that are sent again."""
    lanes = Message.select(Message.lane).where(Message.id.in_([*ids]))
    anew = [(each.lane, str(Lane.read(each.lane).anew())) for each in lanes.distinct()]
    return Case(Message.lane, anew, Message.lane) if anew else Message.lane


def _fits(message, setting):
    """Return whether, with this text, its number stays within its key's own limit or the setting.

    What a tester sends counts for no setting.
    """
    key = message.key
    own, limit = key.recipient_limit and key.id, key.recipient_limit_or(setting)
    if message.to is None or limit is None or (own is None and key.is_counted_apart):
        return True
    near = accepted_to(message.to, message.created_at - limit.window + MILLISECOND, own)
    near = near.where(Message.created_at < message.created_at + limit.window)
    others = near.where(Message.id != message.id)
    accepted_at = sorted([message.created_at, *(each.created_at for each in others)])
    spans = zip(accepted_at, accepted_at[limit.number :], strict=False)
    return all(last - first >= limit.window for first, last in spans)
