"""The page of the Do Not Call list."""

import logging
from datetime import datetime

from flask import Response, abort, flash, render_template, request, session

import recipients
from access.do_not_call import DoNotCall, DoNotCallHistory
from access.keys import ApiKey
from database import Refused, clock, db
from desk import lists, results
from desk.door import blueprint, operator, see
from desk.words import unbroken
from sending.decisions import UNDO_WITHIN
from sending.replies import Reply, put_on_list

log = logging.getLogger("web")

NO_NUMBER = (
    "Enter the whole number with + and country code, +1 212 555 0123, or a national number and its "
    "country."
)
NOW_LISTED = {  # by whether a number was to be added, and whether that changed the list
    (True, True): "is on the list now",
    (True, False): "was already on the list",
    (False, True): "is no longer on the list",
    (False, False): "was not on the list",
}
SOURCES = {
    "operator": ", added by an operator",
    "import": ", from an imported file",
    "reply": ", because of a reply",
    "carrier": ", reported by the carrier",
}


@blueprint.get("/do-not-call")
def do_not_call() -> str:
    """Show an operator the form of the Do Not Call list, and what it did last."""
    operator()
    return render_template("do_not_call.html", change=last_change(clock.now()))


@blueprint.post("/do-not-call")
def change_do_not_call() -> Response | tuple[str, int]:
    """Apply the pressed button to the Do Not Call list."""
    person = operator()
    if "undo" in request.form:
        session.pop("change", None)
        flash(undo_change(request.form["undo"], person))
        return see(".do_not_call", _anchor="next")
    try:
        number = read_number(request.form)
    except recipients.InvalidNumber as error:
        return render_template("do_not_call.html", problem=str(error)), 400
    action = lists.pressed(("check", "add", "remove"))
    if action == "check":
        flash(check_list(number))
    elif change_list(action == "add", number, person, clock.now()):
        session["change"] = DoNotCallHistory.latest(number).id
    else:
        flash(unbroken(number) + f" {NOW_LISTED[action == 'add', False]}.")
    return see(".do_not_call", _anchor="next")


def read_number(form: dict) -> str:
    """Return the E.164 form of the number in a form.

    Raise InvalidNumber, in words for the page.
    """
    if region := form.get("region", "").strip().upper():
        if region not in recipients.REGIONS:
            raise recipients.InvalidNumber("A country has two letters, such as US or GB.")
        session["region"] = region
    try:
        return lists.national(form.get("number", "").strip())
    except recipients.InvalidNumber:
        raise recipients.InvalidNumber(NO_NUMBER) from None


def check_list(number: str) -> str:
    """Return in words whether a number is on the list."""
    written = unbroken(number)
    if listed := DoNotCall.entry(number):
        why = SOURCES.get(listed.source, "")
        return written + f" has been on the list since {listed.added_at:%Y-%m-%d}{why}."
    return written + " is not on the list."


def change_list(is_added: bool, number: str, person: ApiKey, now: datetime) -> bool:
    """Add or remove a number; return whether that changed the list."""
    change, past = (put_on_list, "added to") if is_added else (DoNotCall.remove, "removed from")
    has_changed = change([number], now, "operator", person.name)
    about = {"key": person.name}
    log.info("a number was %s the Do Not Call list by %s", past, person.name, extra=about)
    return has_changed > 0


def undo_change(change: str, person: ApiKey) -> str:
    """Undo a change of the Do Not Call list, given its id; return the result in words."""
    try:
        number = take_back(int(change), person, clock.now())
    except (ValueError, OverflowError):
        abort(400, "There is no such change to undo.")
    except Refused as why:
        return str(why)
    return in_words(DoNotCallHistory.latest(number))


def take_back(change: int, person: ApiKey, now: datetime) -> str:
    """Undo and log a change that this person has just made to the list; return the number.

    Raise Refused if it can no longer be undone.
    """
    with db.atomic():
        number = DoNotCall.undo(change, person.name, now - UNDO_WITHIN, now)
        Reply.note_listed(person.name, now)  # replies that came while it was not listed
    about = {"key": person.name}
    log.info("a change of the Do Not Call list was undone by %s", person.name, extra=about)
    return number


def last_change(now: datetime) -> list[dict]:
    """Return this person's last change of the list for the strip, while it can be undone."""
    change = DoNotCallHistory.get_or_none(DoNotCallHistory.id == session.get("change"))
    left = results.seconds_left(change.at, now) if change else 0
    if not left or change != DoNotCallHistory.latest(change.number):
        return []
    return [{"said": in_words(change), "undo": "undo", "value": change.id, "left": left}]


def in_words(change: DoNotCallHistory) -> str:
    """Return what a change of the list did, as a sentence."""
    return unbroken(change.number) + f" {NOW_LISTED[change.what == 'joined', True]}."
