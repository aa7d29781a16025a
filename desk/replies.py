"""The page "Replies", and the buttons of replies there and on a text's own page."""

import uuid
from datetime import datetime

from flask import Response, abort, flash, g, redirect, render_template, request, url_for

import reports
from access.do_not_call import DoNotCall, DoNotCallHistory
from access.keys import ApiKey
from database import Refused, clock, db
from desk import lists, results
from desk.do_not_call import change_list, take_back
from desk.door import blueprint, operator
from desk.entries import ReplyEntry, international
from desk.lists import MANY, PAGE, address_after, page_start, pressed
from desk.results import Result
from sending.replies import Reply, order


@blueprint.get("/replies")
def replies() -> str:
    """Show what recipients wrote back: first what may be a no, then what nobody has read."""
    now = clock.now()
    found = Reply.page(g.person, page_start(), PAGE + 1, now)
    strip = results.strip(ReplyResult, lambda ids: shown(Reply.seen_by(g.person, ids), now), now)
    return render_template(
        "replies.html",
        **results.page(shown(found, now), strip, order),
        count=Reply.count_waiting(g.person, MANY, now),
        many=MANY,
    )


# Buttons


@blueprint.post("/replies")
@blueprint.post("/messages/<uuid:message_id>/replies")
def change_replies(message_id: uuid.UUID | None = None) -> Response:
    """Apply the pressed button to a reply; keep the result, or flash it on a text's own page."""
    action = pressed(ACTIONS)
    person = g.person if action == "read" else operator()
    try:
        cursor = lists.read(request.form[action])
    except ValueError:
        abort(400, "This is not the place of a reply.")
    now, found = clock.now(), Reply.seen_by(person, [cursor.id])
    for reply in found:
        has_changed = ACTIONS[action](reply, person, now)
        if message_id:
            flash(in_words(action, has_changed, reply.number))
        else:
            done, missed = ([reply.id], []) if has_changed else ([], [reply.id])
            results.keep(ReplyResult(action, cursor, done, missed), now)
    if not found:
        flash("Nothing was changed: there is no such reply here.")
    if message_id:
        back = request.args.get("back")
        address = url_for(".message", message_id=message_id, back=back, _anchor="replies")
        return redirect(address, 303)
    return redirect(address_after([], "next" if found else "list"), 303)


def mark_read(reply: Reply, person: ApiKey, now: datetime) -> bool:
    """Mark a reply as read; return False if somebody already had."""
    return bool(Reply.mark_read([reply.id], person.name, now))


def list_number(reply: Reply, person: ApiKey, now: datetime) -> bool:
    """Put the number of a reply on the Do Not Call list, and mark the reply as read.

    Return whether the number is new there.
    """
    with db.atomic():
        has_changed = change_list(True, reply.number, person, now)
        mark_read(reply, person, now)
    return has_changed


def undo_listing(reply: Reply, person: ApiKey, now: datetime) -> bool:
    """Take the number of a reply off the list, if this person has just put it there."""
    change = DoNotCallHistory.latest(reply.number)
    if not change or change.what != "joined":
        return False
    try:
        take_back(change.id, person, now)
    except Refused:
        return False
    return True


ACTIONS = {"read": mark_read, "list": list_number, "undo-list": undo_listing}
WORDS = {  # by a button, and whether it changed something
    ("read", True): "The reply of {} was marked as read.",
    ("read", False): "The reply of {} was read before.",
    ("list", True): "{} is on the Do Not Call list now.",
    ("list", False): "{} was on the Do Not Call list before.",
    ("undo-list", True): "{} is no longer on the Do Not Call list. The reply stays read.",
    ("undo-list", False): "{} was not changed. Undo works for one minute, and only until something "
    "else happens.",
}


def in_words(action: str, has_changed: bool, number: str) -> str:
    """Return what a button did to the reply of a number, as a sentence."""
    return WORDS[action, has_changed].format(international(number))


# Parts of pages


def shown(found: list[Reply], now: datetime) -> list[ReplyEntry]:
    """Return replies as the templates show them."""
    ids = {reply.message_id for reply in found} - {None}
    texts = {message.id: message for message in reports.seen_by(g.person, ids)}
    listed = DoNotCall.listed({reply.number for reply in found})
    return [
        ReplyEntry(each, texts.get(each.message_id), now, each.number in listed) for each in found
    ]


class ReplyResult(Result):
    """What a button did to a reply."""

    @property
    def said(self) -> str:
        """What happened, as a sentence."""
        (entry,) = self.changed or self.unchanged
        return in_words(self.action, bool(self.changed), entry.reply.number)

    @property
    def undo(self) -> str | None:
        """The name of the button that takes this back; None if that is no longer possible."""
        is_listed = self.action == "list" and any(entry.listed for entry in self.changed)
        return "undo-list" if is_listed else None

    @property
    def value(self) -> str:
        """The value of that button: where the reply was."""
        return lists.write(self.cursor)
