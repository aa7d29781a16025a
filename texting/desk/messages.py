"""The pages of messages: what waits for approval, all of them, and each one."""

import logging
import uuid
from collections.abc import Collection
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

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
from peewee import chunked

from texting import recipients
from texting.access.keys import ApiKey, Role, names_of_senders
from texting.access.places import residences
from texting.carriers import urls
from texting.database import EPOCH, MILLISECOND, Refused, clock, with_pauses
from texting.database.clock import SKEW
from texting.desk import cards, lists, replies, results, sessions
from texting.desk.auth import blueprint, operator, page_of, see
from texting.desk.entries import Entry
from texting.desk.lists import MANY, PAGE, page_start, pressed
from texting.desk.overview import look_over
from texting.desk.words import ago, counted
from texting.events.outbox import Event, EventAddress
from texting.messages.decisions import (
    LONGEST_NOTE,
    UNDO_FOR_CERTAIN,
    UNDO_WITHIN,
    Selection,
    read_note,
)
from texting.messages.model import Message, Status
from texting.messages.waiting import expire
from texting.replies import inbox
from texting.reports import listings
from texting.reports.listings import Awaiting, Filter

FILTERS = ("status", "key", "day")  # of messages

DECIDED_AT_ONCE = 250
"""How many texts one transaction decides, while others who write wait for it."""

MANY_OF_CARD = 10
"""How many texts an approval of a card has sent within ten seconds; more of them stay longer."""

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
    if next and (asked := page_of(next)):
        return redirect(asked)
    now, after, of = clock.now(), page_start(), opened_text()
    page = cards.page(g.person, after, now, of)
    first_page = not (after or of)
    return render_template(
        "waiting.html",
        cards=shown_piles(page.piles, now),
        opened=page.opened,
        more=page.more and lists.write(page.more),
        results=latest_results(now),
        now=now,
        count=page.opened.count if page.opened else page.count,
        since=(now - NEW_FOR - EPOCH) // MILLISECOND,
        known=listings.count_awaiting(g.person, MANY, now - NEW_FOR),
        many=cards.LOOKED_OVER,
        overview=look_over(now) if g.person.role == Role.OPERATOR and first_page else None,
        selected=request.args.get("select", "").split("."),
    )


def opened_text() -> Awaiting | None:
    """Return the text whose card is opened, which may be decided by now; None if none is."""
    try:
        id = uuid.UUID(request.args["alike"]) if "alike" in request.args else None
    except ValueError:
        abort(404, "There is no such page.")
    found = listings.seen_by(g.person, [id]) if id else []
    if id and not found:
        abort(404, "There is no such message here.")
    return listings.as_awaiting(found[0]) if found else None


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
        results=results.latest(lambda ids: [entry], g.person, now),
        events=told_of(found[0], now),
        back=back,
        now=now,
    )


def told_of(message: Message, now: datetime) -> str | None:
    """Return where events of a message go, and whether they were taken; None without an address."""
    address = EventAddress.get_or_none(EventAddress.key == message.key_id)
    if address is None:
        return None
    where, event = urls.masked(address.url), Event.latest_of(message.key_id, message.id)
    if event:
        answer = f": {event.last_answer}" if event.last_answer else ""
        tries = f"not taken after {counted(event.tries, 'attempt')}{answer}"
        return f"{where}, {'given up, ' if event.given_up_at else ''}{tries}"
    if message.event_delivered_at:
        return f"{where}, taken {ago(message.event_delivered_at, now)}"
    return f"{where}, {'switched off' if address.off else 'none yet'}"


# Buttons


def approve(these: Selection, by: str, now: datetime, stay: timedelta = UNDO_FOR_CERTAIN) -> None:
    """Approve messages; they stay for as long as an undo is certain."""
    these.decide(True, by, now, clock.now() + stay)  # what came before took its time


def refuse(these: Selection, by: str, now: datetime, note: str | None) -> None:
    """Refuse messages that wait for approval."""
    these.decide(False, by, now, note=note)


def undo_cancel(these: Selection, by: str, now: datetime) -> None:
    """Undo a cancellation or refusal, as far as RECIPIENT_LIMIT allows."""
    these.undo_cancel(by, now, current_app.config["SETTINGS"].recipient_limit)


def retry(these: Selection, by: str, now: datetime) -> None:
    """Send messages again; without a rule of its key, each expires by EXPIRE_AFTER."""
    these.retry(now, current_app.config["SETTINGS"].expire_after)


ACTIONS = {
    "approve": approve,
    "refuse": refuse,
    "cancel": Selection.cancel,
    "retry": retry,
    "undo-approve": Selection.undo_approval,
    "undo-refuse": undo_cancel,
    "undo-cancel": undo_cancel,
}
OF_CARDS = ("approve", "refuse")  # what can be done to a whole card
DECISIONS = (*OF_CARDS, "undo-approve", "undo-refuse")


@blueprint.post("/")
@blueprint.post("/messages")
@blueprint.post("/messages/<uuid:message_id>")
def change(message_id: uuid.UUID | None = None) -> Response:
    """Apply the pressed button to one message or to all that are selected; keep the result.

    Many are decided in batches, each in a transaction; an error keeps what was done before it.
    """
    action = pressed(ACTIONS)
    if action not in DECISIONS:
        operator()
    now, value = results.instant(action, g.person), request.form[action]
    card, gone = of_card(value, action), 0
    ids = read_ids(value) if card is None else card
    if card is None:
        found = in_order(ids, listings.seen_by(g.person, ids))
    elif action in OF_CARDS:
        found = listings.still_awaiting(g.person, ids)
        gone = len(ids) - len(found)
    else:
        found = ids
    more = more_of(action, value, ids, is_card=card is not None)
    done, left = [], []
    try:
        for some in with_pauses(chunked(found, DECIDED_AT_ONCE)):
            each_done, each_left = decide(some, action, now, **more)
            done, left = done + each_done, left + each_left
    finally:
        if done or left:
            results.keep(action, len(done), left, now)
    if absent := len(ids) - len(found) - gone:
        flash(f"{counted(absent, 'text')} not changed: there is no such message here.")
    if gone:
        flash(f"{counted(gone, 'text')} of the card no longer waited for approval.")
    if not ids:
        flash("No text was selected.")
    return lists.see_again(ids)


def decide(
    ids: Collection[uuid.UUID], action: str, now: datetime, **more: Any
) -> tuple[list[uuid.UUID], list[uuid.UUID]]:
    """Apply a button to some messages; return those that it changed, and the others."""
    while expire(now, ids):  # or an approval would have no effect
        pass
    selection, name = Selection(ids), g.person.name
    ACTIONS[action](selection, name, now, **more)
    done = [id for id in ids if id not in selection.unchanged]
    for id in done:
        about = {"message_id": str(id), "key": name}
        log.info("message %s %s by %s", id, results.PAST[action], name, extra=about)
    return done, [id for id in ids if id in selection.unchanged]


def of_card(value: str, action: str) -> list[uuid.UUID] | None:
    """Return which texts a button stands for that decides on a whole card, or undoes that.

    Return None for another button.
    """
    undone = results.of_many(value, action, g.person)
    if undone is not None:
        return undone
    if action not in OF_CARDS or not value.startswith("all."):
        return None
    try:
        return cards.read_value(value)
    except ValueError:
        abort(400, "This is not the button of a card.")


def more_of(action: str, value: str, ids: list[uuid.UUID], is_card: bool) -> dict[str, Any]:
    """Return what else a button says: a note, or how long its texts stay."""
    if action in ("refuse", "cancel"):
        of = value if value == "selected" or not ids else ids[0]
        try:
            return {"note": read_note(request.form.get(f"note-{of}"))}
        except Refused:
            abort(400, f"A note has {LONGEST_NOTE} characters at most. Nothing was changed.")
    if action == "approve" and is_card and len(ids) > MANY_OF_CARD:
        return {"stay": UNDO_WITHIN}
    return {}


def in_order(ids: list[uuid.UUID], messages: list[Message]) -> list[uuid.UUID]:
    """Return those of some ids that messages have."""
    there = {message.id for message in messages}
    return [id for id in ids if id in there]


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
    texted, homes = listings.times_texted(numbers, now - timedelta(days=1)), residences(numbers)
    return [
        Entry(each, now, rules.of(each.key.rules), texted.get(each.to, 0), homes.get(each.to))
        for each in found
    ]


def shown_piles(piles: list[cards.Pile], now: datetime) -> list[cards.Card]:
    """Return what waits for approval as the templates show it, but for what is gone by now."""
    found = listings.seen_by(g.person, [pile.first.id for pile in piles])
    entries = {entry.message.id: entry for entry in shown(found, now)}
    return [cards.Card(pile, entries[pile.first.id]) for pile in piles if pile.first.id in entries]


def with_results(found: list[Message], now: datetime) -> dict:
    """Return what a page of messages shows: a card for each, and what buttons did last."""
    return lists.page(shown(found, now)) | {"results": latest_results(now), "now": now}


def latest_results(now: datetime) -> list[results.Result]:
    """Return what the person's buttons did last."""

    def entries(ids):
        return shown(listings.seen_by(g.person, ids), now)

    return results.latest(entries, g.person, now)
