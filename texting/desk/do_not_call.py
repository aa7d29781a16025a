"""The page of the Do Not Call list."""

import logging
from datetime import datetime

from flask import Response, current_app, flash, render_template, request, session
from markupsafe import Markup

from texting import recipients
from texting.access.do_not_call import (
    LISTS,
    DoNotCall,
    DoNotCallHistory,
    OptedOut,
    gets,
    remove,
)
from texting.access.keys import ApiKey
from texting.database import clock
from texting.desk import lists
from texting.desk.auth import blueprint, operator, see
from texting.desk.words import unbroken
from texting.replies.model import put_on_list

log = logging.getLogger("web")

NO_NUMBER = (
    "Enter the whole number with + and country code, +1 212 555 0123, or a national number and its "
    "country."
)
ADDED = {True: "is on the Do Not Call list now", False: "was already on the Do Not Call list"}
REMOVED = {True: "is no longer on the Do Not Call list", False: "was not on the Do Not Call list"}
SOURCES = {
    "operator": "added by an operator",
    "import": "from an imported file",
    "reply": "because of a reply",
    "carrier": "reported by the carrier",
}
WORDS_OF = {
    "operator": "An operator noted it",
    "import": "It came from an imported file",
    "reply": "It is the recipient's own word, in a reply",
    "carrier": "It is the recipient's own word, reported by the carrier",
}
"""Whose word an opt-out was, by its source."""

NEWEST, LOOKED_THROUGH = 20, 200
"""How many entries are shown, and how many changes of the list are looked through for them."""


@blueprint.get("/do-not-call")
def do_not_call() -> str:
    """Show an operator the form of the Do Not Call list."""
    operator()
    return page()


def page(problem: str | None = None, ends: OptedOut | None = None) -> str:
    """Render the form, with what is wrong with the last one, or a question about an opt-out."""
    return render_template(
        "do_not_call.html",
        problem=problem,
        ends=ends,
        whose=ends and whose_word(ends),
        entered=stops(DoNotCall),
        opted_out=stops(OptedOut),
        newest=newest(),
        sources=SOURCES,
        now=clock.now(),
    )


def newest() -> list[DoNotCallHistory]:
    """Return how the newest entries of the list came about, the newest first."""
    changes = list(DoNotCallHistory.newest(LOOKED_THROUGH))
    numbers = {each.number for each in changes}
    listed = {which.kind: which.among(numbers) for which in LISTS}
    last = {(each.number, each.kind): each for each in reversed(changes)}.values()
    joined = [each for each in last if each.what == "joined" and each.number in listed[each.kind]]
    return sorted(joined, key=lambda each: each.id, reverse=True)[:NEWEST]


def whose_word(entry: OptedOut) -> str:
    """Return whose word an opt-out was: "An operator noted it (Olga)"."""
    who = [each.who for each in DoNotCallHistory.of(entry.number) if each.kind == entry.kind]
    by = f" ({who[-1]})" if who and who[-1] else ""
    return WORDS_OF[entry.source] + by


@blueprint.post("/do-not-call")
def change_do_not_call() -> Response | tuple[str, int]:
    """Apply the pressed button to the Do Not Call list."""
    person = operator()
    try:
        number = read_number(request.form)
    except recipients.InvalidNumber as error:
        return page(str(error)), 400
    action = lists.pressed(("check", "add", "remove", "end"))
    if action == "check":
        flash(check_list(number))
    elif action == "add":
        which = OptedOut if request.form.get("opted_out") == "yes" else DoNotCall
        flash(add_number(which, number, person, clock.now()))
    elif action == "end":
        flash(remove_number(number, person, clock.now(), opted_out=True))
    elif OptedOut.lists(number):
        return ask_whether_to_end(number, person, clock.now())
    else:
        flash(remove_number(number, person, clock.now()))
    return see(".do_not_call")


def ask_whether_to_end(number: str, person: ApiKey, now: datetime) -> str:
    """Remove our own entry of a number that opted out; ask whether that is to end, too."""
    if DoNotCall.lists(number):
        remove_number(number, person, now)
    return page(ends=OptedOut.entry(number))


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


def check_list(number: str) -> Markup:
    """Return in words how a number is on the list, since when, and which texts it does not get."""
    found = [entry for each in LISTS if (entry := each.entry(number))]
    said = [
        f"has been on the Do Not Call list since {each.added_at:%Y-%m-%d}, {SOURCES[each.source]},"
        f" as an {each.kind}, and {stops(type(each))}."
        for each in found
    ]
    return Markup(" ").join(
        unbroken(number) + f" {each}" for each in said or ["is not on the Do Not Call list."]
    )


def add_number(
    which: type[OptedOut] | type[DoNotCall], number: str, person: ApiKey, now: datetime
) -> Markup:
    """Put a number on one of the two lists; return in words what that does."""
    is_new = put_on_list(which, [number], now, "operator", person.name) > 0
    note("added to", person)
    return unbroken(number) + f" {ADDED[is_new]}, as an {which.kind}, and {stops(which)}."


def remove_number(number: str, person: ApiKey, now: datetime, *, opted_out: bool = False) -> Markup:
    """Remove our own entry of a number, and its opt-out if that ends; return what that changed."""
    was_listed = remove([number], now, person.name, opted_out=opted_out) > 0
    note("removed from", person)
    return unbroken(number) + f" {REMOVED[was_listed]}."


def stops(which: type[OptedOut] | type[DoNotCall]) -> str:
    """Return in words which texts a number on one of the two lists does not get."""
    return gets(which, current_app.config["SETTINGS"].check_dnc)


def note(past: str, person: ApiKey) -> None:
    """Log a change of the list, without the number."""
    about = {"key": person.name}
    log.info("a number was %s the Do Not Call list by %s", past, person.name, extra=about)
