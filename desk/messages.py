"""The pages of messages: what waits for approval, all of them, and each one."""

import logging
import uuid
from datetime import UTC, date, datetime, time, timedelta

from flask import (
    Response,
    abort,
    current_app,
    flash,
    g,
    redirect,
    render_template,
    request,
    url_for,
)

import recipients
from access.keys import ApiKey, Role, names_of_senders
from database import EPOCH, MILLISECOND, clock
from database.clock import SKEW
from desk import lists, replies, results, sessions
from desk.door import blueprint, operator, page_of, see
from desk.entries import Entry
from desk.lists import MANY, PAGE, page_start, pressed
from desk.overview import look_over
from desk.words import counted
from messages.decisions import UNDO_FOR_CERTAIN, Selection
from messages.model import Message, Status
from messages.waiting import expire
from replies import inbox
from reports import listings
from reports.listings import Filter

FILTERS = ("status", "key", "day")  # of messages

NEW_FOR = 2 * SKEW
"""How long a text may take to be stored, with the clock of another machine."""

log = logging.getLogger("web")


@blueprint.get("/")
def waiting() -> str | Response:
    """Show the messages that wait for approval; to a stranger, the sign-in."""
    next = request.args.get("next")
    if g.person is None:
        if sessions.lacks_cookie():
            return render_template("arrive.html", next=next)
        return render_template("sign_in.html", next=next)
    if next and (page := page_of(next)):
        return redirect(page)
    now, after = clock.now(), page_start()
    messages = listings.awaiting(g.person, after, PAGE + 1)
    overview = look_over(now) if g.person.role == Role.OPERATOR and not after else None
    return render_template(
        "waiting.html",
        **with_results(messages, now),
        count=listings.count_awaiting(g.person, MANY),
        since=(now - NEW_FOR - EPOCH) // MILLISECOND,
        known=listings.count_awaiting(g.person, MANY, now - NEW_FOR),
        many=MANY,
        overview=overview,
        selected=request.args.get("select", "").split("."),
    )


@blueprint.get("/new-texts")
def new_texts() -> dict:
    """Return how many texts have come since the page was shown that asks."""
    try:
        since = EPOCH + request.args.get("since", 0, int) * MILLISECOND
    except OverflowError:
        abort(400, "That time is out of range.")
    known = request.args.get("known", 0, int)
    return {"texts": max(0, listings.count_awaiting(g.person, MANY, since) - known)}


@blueprint.get("/messages")
def messages() -> str:
    """Show an operator all messages, or those with a status, key, day, number or words."""
    operator()
    only, words, now = read_filter(request.args), lists.kept_search(), clock.now()
    try:
        only = only._replace(to=lists.national(words) if words else None)
    except recipients.InvalidNumber:
        found, end = listings.search(only, words, page_start(), PAGE)
        page = with_results(found, now) | {"more": end and lists.write(end)}
    else:
        page = with_results(listings.page(only, page_start(), PAGE + 1), now)
    return render_template(
        "messages.html",
        **page,
        statuses=[*Status],
        keys=names_of_senders(),
        asked={name: request.args.get(name) for name in ("find", *FILTERS)},
        only=only,
        words=words,
    )


@blueprint.post("/search")
def search() -> Response:
    """Redirect an operator to the messages that a form asks for."""
    operator()
    read_filter(request.form)
    query = {name: request.form.get(name) or None for name in FILTERS}
    return see(".messages", find=lists.keep_search(), **query)


def read_filter(fields: dict) -> Filter:
    """Return the filter that a form or an address asks for, without the search words; or abort.

    The day, in UTC, is that on which messages were created.
    """
    status, key, day = (fields.get(name) or None for name in FILTERS)
    if status and status not in [*Status]:
        abort(400, "There is no such status.")
    if key and not ApiKey.select().where(ApiKey.name == key).exists():
        abort(400, "There is no such key.")
    try:
        since = day and datetime.combine(date.fromisoformat(day), time(), UTC)
        until = since and since + timedelta(days=1)
    except (ValueError, OverflowError):
        abort(400, "Write the day as 2026-11-24.")
    return Filter(status=status, key=key, since=since, until=until)


@blueprint.get("/messages/<uuid:message_id>")
def message(message_id: uuid.UUID) -> str:
    """Show one message with its whole history."""
    now, found = clock.now(), listings.seen_by(g.person, [message_id])
    if not found:
        abort(404, "There is no such message here.")
    (entry,) = shown(found, now)
    back = page_of(request.args.get("back", "")) or url_for(".waiting")
    latest = inbox.of_message(message_id, now, PAGE + 1)
    return render_template(
        "message.html",
        entry=entry,
        conversations=replies.conversations([latest[-PAGE:]] if latest else []),
        has_earlier=len(latest) > PAGE,
        results=results.latest(lambda ids: [entry], now),
        back=back,
        now=now,
    )


# Buttons


def approve(these: Selection, by: str, now: datetime) -> None:
    """Approve messages; they stay for as long as an undo is certain."""
    these.decide(True, by, now, now + UNDO_FOR_CERTAIN)


def undo_cancel(these: Selection, by: str, now: datetime) -> None:
    """Undo a cancellation or refusal, as far as RECIPIENT_LIMIT allows."""
    these.undo_cancel(by, now, current_app.config["SETTINGS"].recipient_limit)


def retry(these: Selection, by: str, now: datetime) -> None:
    """Send messages again; without a rule of its key, each expires by EXPIRE_AFTER."""
    these.retry(now, current_app.config["SETTINGS"].expire_after)


ACTIONS = {
    "approve": approve,
    "refuse": lambda these, by, now: these.decide(False, by, now),
    "cancel": Selection.cancel,
    "retry": retry,
    "undo-approve": Selection.undo_approval,
    "undo-refuse": undo_cancel,
    "undo-cancel": undo_cancel,
}
DECISIONS = ("approve", "refuse", "undo-approve", "undo-refuse")


@blueprint.post("/")
@blueprint.post("/messages")
@blueprint.post("/messages/<uuid:message_id>")
def change(message_id: uuid.UUID | None = None) -> Response:
    """Apply the pressed button to one message or to all that are selected; keep the result."""
    action = pressed(ACTIONS)
    if action not in DECISIONS:
        operator()
    now = clock.now()
    ids = read_ids(request.form[action])
    expire(now, ids)  # or an approval would have no effect
    found = sorted(listings.seen_by(g.person, ids), key=lambda message: ids.index(message.id))
    selection, name = Selection(message.id for message in found), g.person.name
    ACTIONS[action](selection, name, now)
    done = [message.id for message in found if message.id not in selection.left]
    left = [message.id for message in found if message.id in selection.left]
    for id in done:
        about = {"message_id": str(id), "key": name}
        log.info("message %s %s by %s", id, results.PAST[action], name, extra=about)
    if found:
        results.keep(action, done, left, now)
    if absent := len(ids) - len(found):
        flash(f"{counted(absent, 'text')} not changed: there is no such message here.")
    if not ids:
        flash("No text was selected.")
    return lists.see_again(ids)


def read_ids(value: str) -> list[uuid.UUID]:
    """Return the ids that a button stands for: its own or the selected ones, without repeats."""
    values = request.form.getlist("id") if value == "selected" else value.split(".")
    try:
        ids = [uuid.UUID(each) for each in dict.fromkeys(values)]
    except ValueError:
        abort(400, "This is not the id of a message.")
    if len(ids) > PAGE:
        abort(400, f"No more than {PAGE} texts can be selected at once.")
    return ids


# Parts of pages


def shown(found: list[Message], now: datetime) -> list[Entry]:
    """Return messages as the templates show them."""
    rules = current_app.extensions["rules"]
    numbers = {message.to for message in found} - {None}
    texted = listings.times_texted(numbers, now - timedelta(days=1))
    return [Entry(each, now, rules.of(each.key.rules), texted.get(each.to, 0)) for each in found]


def with_results(found: list[Message], now: datetime) -> dict:
    """Return what a page of messages shows: a card for each, and what buttons did last."""
    latest = results.latest(lambda ids: shown(listings.seen_by(g.person, ids), now), now)
    return lists.page(shown(found, now)) | {"results": latest, "now": now}
