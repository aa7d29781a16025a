"""The page "Replies", and the buttons of replies there and on a text's own page."""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain

from flask import Response, abort, flash, g, render_template, request
from markupsafe import Markup

from access import do_not_call
from access.do_not_call import DoNotCall, OptedOut
from access.keys import ApiKey
from database import EPOCH, clock, db
from desk import lists, results
from desk.do_not_call import add_number
from desk.door import blueprint, operator, see
from desk.lists import MANY, PAGE, page_start, pressed
from desk.results import Result
from desk.words import international, unbroken
from models import Message
from reports import listings
from reports.listings import Cursor
from sending import inbox
from sending.decisions import UNDO_WITHIN
from sending.replies import READ, Reply


@blueprint.get("/replies")
def replies() -> str:
    """Show what recipients wrote back: first what may be a no, then what nobody has read."""
    now, words = clock.now(), lists.kept_search()
    strip = results.strip(ReplyResult, lambda ids: inbox.seen_by(g.person, ids), now)
    if words:
        found, end = inbox.search(g.person, words, page_start(), PAGE, now)
        page = results.page(conversations(found), strip, newest_first)
        page["more"] = end and lists.write(end)
    else:
        found = inbox.conversations(g.person, page_start(), PAGE + 1, now)
        page = results.page(conversations(found), strip, inbox.order)
    return render_template(
        "replies.html",
        **page,
        words=words,
        asked={"find": request.args.get("find")},
        now=now,
        count=inbox.count_waiting(g.person, MANY, now),
        many=MANY,
    )


@blueprint.post("/replies/search")
def search_replies() -> Response:
    """Redirect to the replies that a form asks for."""
    return see(".replies", find=lists.keep_search())


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
        abort(400, "There is no such reply.")
    now, found = clock.now(), inbox.seen_by(person, [cursor.id for cursor in cursors])
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
        return see(".message", message_id=message_id, back=back, _anchor="replies")
    return lists.see_again([], "next" if found else "list")


Ids = set[uuid.UUID]


def mark_read(number: str, ids: Ids, person: ApiKey, now: datetime) -> Ids:
    """Mark replies as read; return those that nobody had read."""
    return Reply.mark_read(ids, person.name, now)


def undo_reading(number: str, ids: Ids, person: ApiKey, now: datetime) -> Ids:
    """Let replies be unread again; return those that this person has just read."""
    return Reply.mark_unread(ids, person.name, UNDO_WITHIN, now)


def list_number(number: str, ids: Ids, person: ApiKey, now: datetime) -> Ids:
    """Put a number on the Do Not Call list, and mark its replies as read.

    Return the replies if the number is new there.
    """
    with db.atomic():
        has_changed = bool(add_number(OptedOut, number, person, now))
        mark_read(number, ids, person, now)
    return ids if has_changed else set()


ACTIONS = {
    "read": mark_read,
    "undo-read": undo_reading,
    "list": list_number,
}
TOO_LATE = "{} was not changed. Undo works for one minute, and only until something else changes."
WORDS = {  # by a button, and whether it changed something
    ("read", True): "{} was marked as read.",
    ("read", False): "{} was already read.",
    ("undo-read", True): "{} is unread again.",
    ("undo-read", False): TOO_LATE,
    ("list", True): "{} is on the Do Not Call list now.",
    ("list", False): "{} was already on the Do Not Call list.",
    ("undo-list", True): "{} is no longer on the Do Not Call list. Its replies stay read.",
    ("undo-list", False): TOO_LATE,
}


def in_words(action: str, has_changed: bool, number: str) -> Markup:
    """Return what a button did to the replies of a number, as a sentence."""
    return Markup(WORDS[action, has_changed]).format(unbroken(number))


# Parts of pages


@dataclass
class Conversation:
    """What a number wrote, as one card: replies in the order of the page."""

    replies: list[Reply]
    texts: dict[uuid.UUID, Message]  # that the replies belong to, if they are still there
    is_listed: bool  # on the Do Not Call list

    @property
    def number(self) -> str:
        return international(self.replies[0].number)

    @property
    def cursor(self) -> Cursor:
        return self.replies[0].cursor

    @property
    def unread(self) -> list[Reply]:
        """The replies that somebody has to read."""
        return [reply for reply in self.replies if reply.rank < READ]

    @property
    def value(self) -> str:
        """The value of its buttons: the cursors of the replies that they change."""
        return ".".join(lists.write(reply.cursor) for reply in self.unread or self.replies[:1])


def conversations(groups: Collection[list[Reply]]) -> list[Conversation]:
    """Return what several numbers wrote as the templates show it."""
    found = [*chain(*groups)]
    ids = {reply.message_id for reply in found} - {None}
    texts = {message.id: message for message in listings.seen_by(g.person, ids)}
    listed = do_not_call.listed({reply.number for reply in found})
    return [Conversation(group, texts, group[0].number in listed) for group in groups]


def newest_first(cursor: Cursor) -> tuple:
    """Return the sort key of a reply's cursor, in the order of a search."""
    return EPOCH - cursor.at, -cursor.id.int


class ReplyResult(Result):
    """What a button did to replies of a number."""

    @property
    def said(self) -> Markup:
        """What happened, as a sentence."""
        reply, *_ = self.changed or self.unchanged
        return in_words(self.action, bool(self.changed), reply.number)

    @cached_property
    def undo(self) -> str | None:
        """The name of the button that takes this back; None if that is no longer possible."""
        holds = {
            "read": lambda reply: reply.read_by == g.person.name,
            "list": lambda reply: DoNotCall.lists(reply.number),
        }.get(self.action)
        return f"undo-{self.action}" if holds and any(map(holds, self.changed)) else None

    @property
    def value(self) -> str:
        """The value of that button: the first reply's cursor with the id of each reply."""
        return ".".join(lists.write(self.cursor._replace(id=reply.id)) for reply in self.changed)
