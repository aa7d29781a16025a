"""The page "Replies", and the buttons of replies there and on a text's own page."""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from flask import Response, abort, flash, g, render_template, request
from markupsafe import Markup

from texting.access.do_not_call import OptedOut, listed
from texting.access.keys import ApiKey
from texting.database import clock, db
from texting.desk import lists
from texting.desk.auth import blueprint, operator, see
from texting.desk.do_not_call import add_number, ask_whether_to_end, remove_number
from texting.desk.lists import MANY, PAGE, page_start, pressed
from texting.desk.words import international, unbroken
from texting.messages.model import Message
from texting.replies import inbox
from texting.replies.model import READ, Reply
from texting.reports import listings
from texting.reports.listings import Cursor


@blueprint.get("/replies")
def replies() -> str:
    """Show what recipients wrote back: first what may be a no, then what nobody has read."""
    now, words = clock.now(), lists.kept_search()
    if words:
        found, end = inbox.search(g.person, words, page_start(), PAGE, now)
        page = {"cards": conversations(found), "more": end and lists.write(end)}
    else:
        found = inbox.conversations(g.person, page_start(), PAGE + 1, now)
        page = lists.page(conversations(found))
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
def change_replies(message_id: uuid.UUID | None = None) -> Response | str:
    """Apply the pressed button to replies of a number."""
    action = pressed(ACTIONS)
    person = operator() if action in ("list", "unlist") else g.person
    try:
        ids = [uuid.UUID(each) for each in request.form[action].split(".")]
    except ValueError:
        abort(400, "There is no such reply.")
    if found := inbox.seen_by(person, ids):
        number, known = found[0].number, {reply.id for reply in found}
        if action == "unlist" and OptedOut.lists(number):
            return ask_whether_to_end(number, person, clock.now())
        flash(ACTIONS[action](number, known, person, clock.now()))
    else:
        flash("Nothing was changed: there is no such reply here.")
    if message_id:
        back = request.args.get("back")
        return see(".message", message_id=message_id, back=back, _anchor="replies")
    return lists.see_again()


Ids = set[uuid.UUID]


def mark_read(number: str, ids: Ids, person: ApiKey, now: datetime) -> Markup:
    """Mark replies as read."""
    done = Reply.mark_read(ids, person.name, now)
    return unbroken(number) + (" was marked as read." if done else " was already read.")


def mark_unread(number: str, ids: Ids, person: ApiKey, now: datetime) -> Markup:
    """Mark replies as unread."""
    done = Reply.mark_unread(ids)
    return unbroken(number) + (" is unread again." if done else " was already unread.")


def list_number(number: str, ids: Ids, person: ApiKey, now: datetime) -> Markup:
    """Note that the recipient opted out, and mark the replies as read."""
    with db.atomic():
        said = add_number(OptedOut, number, person, now)
        mark_read(number, ids, person, now)
    return said


def unlist_number(number: str, ids: Ids, person: ApiKey, now: datetime) -> Markup:
    """Take a number off the Do Not Call list."""
    return remove_number(number, person, now)


ACTIONS = {
    "read": mark_read,
    "unread": mark_unread,
    "list": list_number,
    "unlist": unlist_number,
}
"""What each button does to replies of a number; each returns that in words."""


# Parts of pages


@dataclass
class Conversation:
    """What a number wrote, as one card: replies in the order of the page."""

    replies: list[Reply]
    texts: dict[uuid.UUID, Message]  # that the replies belong to, if they are still there
    opted_out: bool | None  # None if its number is not on the Do Not Call list

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
    def read_last(self) -> list[Reply]:
        """The replies that somebody has marked as read last, together."""
        read = [reply for reply in self.replies if reply.read_by]
        last = max((reply.read_at for reply in read), default=None)
        return [reply for reply in read if reply.read_at == last]


def conversations(groups: Collection[list[Reply]]) -> list[Conversation]:
    """Return what several numbers wrote as the templates show it."""
    found = [*chain(*groups)]
    ids = {reply.message_id for reply in found} - {None}
    texts = {message.id: message for message in listings.seen_by(g.person, ids)}
    opted_out = listed({reply.number for reply in found})
    return [Conversation(group, texts, opted_out.get(group[0].number)) for group in groups]
