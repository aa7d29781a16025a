"""The page "Replies", and the buttons of replies there and on a text's own page."""

import uuid
from collections.abc import Collection
from datetime import datetime
from itertools import chain

from flask import Response, abort, flash, g, redirect, render_template, request, url_for
from markupsafe import Markup

import reports
from access.do_not_call import DoNotCall, DoNotCallHistory
from access.keys import ApiKey
from database import EPOCH, Refused, clock, db
from desk import lists, results
from desk.do_not_call import change_list, take_back
from desk.door import blueprint, operator
from desk.entries import Conversation, ReplyEntry, unbroken
from desk.lists import MANY, PAGE, address_after, page_start, pressed
from desk.results import Result
from reports import Cursor
from sending.decisions import UNDO_WITHIN
from sending.replies import Reply, order


@blueprint.get("/replies")
def replies() -> str:
    """Show what recipients wrote back: first what may be a no, then what nobody has read."""
    now, words = clock.now(), lists.kept_search()
    strip = results.strip(ReplyResult, lambda ids: shown(Reply.seen_by(g.person, ids), now), now)
    if words:
        found, end = Reply.search(g.person, words, page_start(), PAGE, now)
        page = results.page(conversations(found, now), strip, newest_first)
        page["more"] = end and lists.write(end)
    else:
        found = Reply.conversations(g.person, page_start(), PAGE + 1, now)
        page = results.page(conversations(found, now), strip, order)
    return render_template(
        "replies.html",
        **page,
        words=words,
        asked={"find": request.args.get("find")},
        count=Reply.count_waiting(g.person, MANY, now),
        many=MANY,
    )


@blueprint.post("/replies/search")
def search_replies() -> Response:
    """Redirect to the replies that a form asks for."""
    return redirect(url_for(".replies", find=lists.keep_search()), 303)


# Buttons


@blueprint.post("/replies")
@blueprint.post("/messages/<uuid:message_id>/replies")
def change_replies(message_id: uuid.UUID | None = None) -> Response:
    """Apply the pressed button to replies of a number, and keep the result for the page "Replies".

    On a text's own page, flash it, too.
    """
    action = pressed(ACTIONS)
    person = operator() if action in ("list", "undo-list") else g.person
    try:
        cursors = [lists.read(each) for each in request.form[action].split(".")]
    except ValueError:
        abort(400, "This is not the place of a reply.")
    now, found = clock.now(), Reply.seen_by(person, [cursor.id for cursor in cursors])
    if found:
        known = {reply.id for reply in found}
        ids = [cursor.id for cursor in cursors if cursor.id in known]
        done = ACTIONS[action](found[0].number, known, person, now)
        changed = [[id for id in ids if (id in done) is wanted] for wanted in (True, False)]
        results.keep(ReplyResult(action, cursors[0], *changed), now)
        if message_id:
            flash(in_words(action, bool(done), found[0].number))
    else:
        flash("Nothing was changed: there is no such reply here.")
    if message_id:
        back = request.args.get("back")
        address = url_for(".message", message_id=message_id, back=back, _anchor="replies")
        return redirect(address, 303)
    return redirect(address_after([], "next" if found else "list"), 303)


Ids = set[uuid.UUID]


def mark_read(number: str, ids: Ids, person: ApiKey, now: datetime) -> Ids:
    """Mark replies as read; return those that nobody had read."""
    return Reply.mark_read(ids, person.name, now)


def undo_reading(number: str, ids: Ids, person: ApiKey, now: datetime) -> Ids:
    """Let replies be unread again; return those that this person has just read."""
    return Reply.mark_unread(ids, person.name, now - UNDO_WITHIN)


def list_number(number: str, ids: Ids, person: ApiKey, now: datetime) -> Ids:
    """Put a number on the Do Not Call list, and mark its replies as read.

    Return the replies if the number is new there.
    """
    with db.atomic():
        has_changed = change_list(True, number, person, now)
        mark_read(number, ids, person, now)
    return ids if has_changed else set()


def undo_listing(number: str, ids: Ids, person: ApiKey, now: datetime) -> Ids:
    """Take a number off the list; return its replies if this person has just put it there."""
    change = DoNotCallHistory.latest(number)
    if not change or change.what != "joined":
        return set()
    try:
        take_back(change.id, person, now)
    except Refused:
        return set()
    return ids


ACTIONS = {
    "read": mark_read,
    "undo-read": undo_reading,
    "list": list_number,
    "undo-list": undo_listing,
}
TOO_LATE = "{} was not changed. Undo works for one minute, and only until something else happens."
WORDS = {  # by a button, and whether it changed something
    ("read", True): "{} was marked as read.",
    ("read", False): "{} was read before.",
    ("undo-read", True): "{} is unread again.",
    ("undo-read", False): TOO_LATE,
    ("list", True): "{} is on the Do Not Call list now.",
    ("list", False): "{} was on the Do Not Call list before.",
    ("undo-list", True): "{} is no longer on the Do Not Call list. Its replies stay read.",
    ("undo-list", False): TOO_LATE,
}


def in_words(action: str, has_changed: bool, number: str) -> Markup:
    """Return what a button did to the replies of a number, as a sentence."""
    return Markup(WORDS[action, has_changed]).format(unbroken(number))


# Parts of pages


def conversations(groups: Collection[list[Reply]], now: datetime) -> list[Conversation]:
    """Return what several numbers wrote as the templates show it."""
    entries = {each.reply.id: each for each in shown([*chain(*groups)], now)}
    return [Conversation([entries[reply.id] for reply in group]) for group in groups]


def newest_first(cursor: Cursor) -> tuple:
    """Order replies as a search does."""
    return EPOCH - cursor.at, -cursor.id.int


def shown(found: list[Reply], now: datetime) -> list[ReplyEntry]:
    """Return replies as the templates show them."""
    ids = {reply.message_id for reply in found} - {None}
    texts = {message.id: message for message in reports.seen_by(g.person, ids)}
    listed = DoNotCall.listed({reply.number for reply in found})
    return [
        ReplyEntry(each, texts.get(each.message_id), now, each.number in listed) for each in found
    ]


class ReplyResult(Result):
    """What a button did to replies of a number."""

    @property
    def said(self) -> Markup:
        """What happened, as a sentence."""
        entry, *_ = self.changed or self.unchanged
        return in_words(self.action, bool(self.changed), entry.reply.number)

    @property
    def undo(self) -> str | None:
        """The name of the button that takes this back; None if that is no longer possible."""
        holds = {
            "read": lambda entry: entry.reply.read_by == g.person.name,
            "list": lambda entry: entry.listed,
        }.get(self.action)
        return f"undo-{self.action}" if holds and any(map(holds, self.changed)) else None

    @property
    def value(self) -> str:
        """The value of that button: where the first reply was, for each of them."""
        ids = (entry.reply.id for entry in self.changed)
        return ".".join(lists.write(self.cursor._replace(id=id)) for id in ids)
