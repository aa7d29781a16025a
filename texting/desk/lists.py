"""Lists: where their pages begin, which button was pressed, and the way back to the page."""

import uuid
from collections.abc import Collection, Iterable
from typing import Any
from urllib.parse import urlencode

from flask import Response, abort, redirect, request, session

from texting.access.sign_ins import SignIn
from texting.database import EPOCH, MILLISECOND
from texting.replies.model import read_number
from texting.reports.listings import Cursor
from texting.reports.search import LONGEST_SEARCH

PAGE = 50  # cards
MANY = 1_000  # messages; waiting ones, and those of an hour, are counted up to here


def write(cursor: Cursor) -> str:
    """Write a cursor as addresses, buttons and the cookie have it."""
    return f"{cursor.rank}-{(cursor.at - EPOCH) // MILLISECOND}-{cursor.id.hex}"


def read(text: str) -> Cursor:
    """Return the cursor that `write` wrote; raise ValueError for any other text."""
    rank, at, id = text.split("-")
    try:
        return Cursor(int(rank), EPOCH + int(at) * MILLISECOND, uuid.UUID(id))
    except OverflowError as error:
        raise ValueError("no instant is that late") from error


def page_start() -> Cursor | None:
    """Return the cursor after which this page begins; None for the first page."""
    text = request.args.get("after")
    try:
        return read(text) if text else None
    except ValueError:
        abort(404, "There is no such page.")


def keep_search() -> str | None:
    """Keep the search words of a form with the sign-in, since proxies log addresses and cookies.

    Return what the address has in their place, or None without any.
    """
    words = request.form.get("find", "").replace("\0", " ").strip()[:LONGEST_SEARCH].strip()
    SignIn.keep_search(session["sign_in"], words)
    return "on" if words else None


def kept_search() -> str:
    """Return the search words of this page; "" if it shows everything."""
    return SignIn.kept_search(session["sign_in"]) if "find" in request.args else ""


def national(number: str) -> str:
    """Return the E.164 form of a number; a national one is of the country last given in a form."""
    return read_number(number, session.get("region"))


def pressed(actions: Iterable[str]) -> str:
    """Return the name of the button that was pressed; abort if it is not among these."""
    action = next((name for name in actions if name in request.form), None)
    if action is None:
        abort(400, "No button was pressed.")
    return action


def page(cards: list[Any]) -> dict[str, Any]:
    """Return what a page of a list shows, if there is one more card unless it is the last page."""
    more = write(cards[PAGE - 1].cursor) if len(cards) > PAGE else None
    return {"cards": cards[:PAGE], "more": more}


def see_again(ids: Collection[uuid.UUID] = ()) -> Response:
    """Redirect to the page where a button was pressed for these ids; other boxes stay ticked."""
    query = [(name, value) for name, value in request.args.items() if name != "select"]
    decided = {str(id) for id in ids}
    ticked = [each for each in request.form.getlist("id") if each not in decided]
    if ticked:
        query.append(("select", ".".join(ticked[:PAGE])))
    asked = f"?{urlencode(query)}" if query else ""
    return redirect(f"{request.script_root}{request.path}{asked}#list", 303)
