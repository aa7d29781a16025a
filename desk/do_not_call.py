"""The page of the Do Not Call list."""

import logging
from datetime import datetime

from flask import Response, flash, render_template, request, session

import recipients
from access.do_not_call import DoNotCall
from access.keys import ApiKey
from database import clock
from desk import lists
from desk.door import blueprint, operator, see
from desk.words import unbroken
from sending.replies import put_on_list

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
    """Show an operator the form of the Do Not Call list."""
    operator()
    return render_template("do_not_call.html")


@blueprint.post("/do-not-call")
def change_do_not_call() -> Response | tuple[str, int]:
    """Apply the pressed button to the Do Not Call list."""
    person = operator()
    try:
        number = read_number(request.form)
    except recipients.InvalidNumber as error:
        return render_template("do_not_call.html", problem=str(error)), 400
    action = lists.pressed(("check", "add", "remove"))
    if action == "check":
        flash(check_list(number))
    else:
        has_changed = change_list(action == "add", number, person, clock.now())
        flash(unbroken(number) + f" {NOW_LISTED[action == 'add', has_changed]}.")
    return see(".do_not_call")


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
