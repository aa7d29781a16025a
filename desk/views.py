"""The desk's pages: GET shows a page, POST does what its buttons say."""

import logging
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from urllib.parse import parse_qsl, urlencode

from flask import (
    Blueprint,
    Response,
    abort,
    current_app,
    flash,
    g,
    redirect,
    render_template,
    request,
    session,
    url_for,
)
from werkzeug.exceptions import HTTPException

import recipients
import reports
from access import audit
from access.do_not_call import DoNotCall, DoNotCallHistory
from access.keys import ApiKey, Identity, Role
from access.sign_ins import SignIn
from database import Refused, clock, db
from desk import entries, lists, results, sessions
from desk.entries import Entry, ReplyEntry, counted
from desk.lists import PAGE
from desk.results import REPLIES, TEXTS, Result, Told
from models import UNDO_WITHIN, Message, Status
from monitoring import health
from reports import Filter
from sending import passes
from sending.carrier_state import CarrierState
from sending.replies import Place as ReplyPlace
from sending.replies import Reply, order, put_on_list

MANY = 1_000  # messages; waiting ones, and those of an hour, are counted up to here
MAX_FORM = 64 * 1024  # bytes
MAX_FIELDS = 200  # a page's ids, its token and a button are far fewer
HOUR = timedelta(hours=1)
DAY = 24  # hours
PAGES = ("desk.waiting", "desk.replies", "desk.messages", "desk.message", "desk.do_not_call")
FILTERS = ("status", "key", "day")  # of messages
MOST_KEYS = 10  # that are named at their limit
AT_ONCE = 30  # texts; to approve more, a browser asks first
MOST_NAMED = 10  # texts that are named after a button
NO_NUMBER = (
    "Enter the whole number with + and country code, +1 212 555 0123, or a national number and its "
    "country."
)

log = logging.getLogger("web")
blueprint = Blueprint(
    "desk", __name__, template_folder="templates", static_folder="static", static_url_path="/static"
)
for each in (entries.visible, entries.span, entries.counted, entries.number):
    blueprint.add_app_template_filter(each)


# Around each page


@blueprint.before_request
def admit() -> Response | tuple[str, int] | None:
    """Find out who is signed in; refuse strangers and forms without their session's token."""
    if request.environ["PATH_INFO"].startswith("//"):  # Werkzeug's router takes it for one slash
        abort(404)
    request.max_content_length = MAX_FORM
    if request.endpoint == "desk.static":
        return None
    find_person()
    audit.signed_in.set(g.person and audit.Actor(g.person.name, g.person.id))
    if request.method not in ("GET", "HEAD", "OPTIONS"):
        sessions.check_origin(current_app.config["SETTINGS"].public_url)
        db.close()  # or slow forms would hold all connections
        refuse_many_fields()
        if g.person is None and request.endpoint != "desk.sign_in":
            return refuse_stranger(
                "You are no longer signed in, so nothing was changed. Please sign in again."
            )
        sessions.check_token()
    elif g.person is None and request.endpoint != "desk.waiting":
        return redirect(url_for(".waiting", next=asked_page()))
    return None


def find_person() -> None:
    """Find out who is signed in, unless that is known or the database cannot be asked."""
    if "person" in g:
        return
    g.person = g.key = None  # what it is if the database is away
    if sign_in := session.get("sign_in"):
        g.person = g.key = SignIn.find(sign_in, clock.now())


@blueprint.teardown_request
def forget_person(error: BaseException | None) -> None:
    """End what `admit` began: the next request may be another's."""
    audit.signed_in.set(None)


def refuse_many_fields() -> None:
    """Abort if a form has very many fields, before it is parsed."""
    request.max_form_parts = MAX_FIELDS  # which Werkzeug applies to multipart alone
    is_multipart = request.mimetype == "multipart/form-data"
    if not is_multipart and request.get_data().count(b"&") >= MAX_FIELDS:
        abort(413, f"The form has more than {MAX_FIELDS} fields.")


@blueprint.after_request
def protect(response: Response) -> Response:
    """Keep browsers from scripts of others, frames, caches and other hosts."""
    response.headers["Content-Security-Policy"] = (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    response.headers["Referrer-Policy"] = "same-origin"
    response.headers["X-Content-Type-Options"] = "nosniff"
    if response.mimetype == "text/html":
        response.headers["Cache-Control"] = "no-store"
    return response


def asked_page() -> str | None:
    """Return the page of this request below the desk's address: "messages?status=sent"."""
    path = request.path.partition(f"{request.blueprint}/")[2]
    query = [(name, value) for name, value in request.args.items() if name != "select"]
    if query:
        path += f"?{urlencode(query)}"
    return path if path and page_of(path) else None


def page_of(path: str) -> str | None:
    """Return the address of a page of the desk, given below the desk's; None if it is no page."""
    start = url_for(".waiting")
    pages = current_app.create_url_adapter(request)
    path, _, query = path.partition("?")
    try:
        endpoint, _ = pages.match(f"{start.removeprefix(request.script_root)}{path}", "GET")
    except HTTPException:  # no page, or a redirect to another
        return None
    if endpoint not in PAGES:
        return None
    return f"{start}{path}" + (f"?{urlencode(parse_qsl(query))}" if query else "")


def operator() -> Identity:
    """Return the person who is signed in; abort unless that is an operator."""
    if g.person.role != Role.OPERATOR:
        abort(403, "Only an operator's key opens this page.")
    return g.person


# In and out


@blueprint.get("")
def enter() -> Response:
    """Redirect to the desk's address with a slash.

    Flask's own redirect has an absolute URL, with the client's Host and without the proxy's https.
    """
    return redirect(url_for(".waiting"))


@blueprint.post("/sign-in")
def sign_in() -> Response | tuple[str, int]:
    """Sign in with a key."""
    # No limit on attempts: keys have 256 random bits, so guessing is hopeless
    note = "This key does not open the desk. It may be mistyped, expired or revoked."
    try:
        secret, before = request.form.get("key", "").strip(), session.get("sign_in")
        id = SignIn.begin(secret, clock.now(), before)
    except Refused as why:
        id, note = None, f"{why} Ask whoever runs the service for an approver's or operator's key."
    if id is None:
        return refuse_stranger(note)
    sessions.begin(id)
    return redirect(page_of(request.form.get("next", "")) or url_for(".waiting"), 303)


def refuse_stranger(problem: str) -> tuple[str, int]:
    """Show the sign-in with a problem; log it like a wrong key of a program."""
    log.info("refused with 403: key -, at the sign-in of the desk")
    next = request.form.get("next") or asked_page()
    return render_template("sign_in.html", problem=problem, next=next), 403


@blueprint.post("/sign-out")
def sign_out() -> Response:
    """Sign out; copies of the cookie become worthless too."""
    SignIn.end(session["sign_in"], clock.now())
    session.clear()
    return redirect(url_for(".waiting"), 303)


# Pages


@blueprint.get("/")
def waiting() -> str | Response:
    """Show the messages that wait for approval, or the sign-in, or what was asked for before it."""
    next = request.args.get("next")
    if g.person is None:
        is_linked = request.headers.get("Sec-Fetch-Site") == "cross-site"
        if is_linked and not sessions.has_cookie():
            # Browsers send no SameSite=Strict cookie after a link from another site. A page of
            # ours that reloads brings it.
            return render_template("arrive.html", next=next)
        return render_template("sign_in.html", next=next)
    if next and (page := page_of(next)):
        return redirect(page)
    now, after = clock.now(), read_place(reports.Place)
    messages = reports.awaiting(g.person, after, PAGE + 1)
    overview = look_over(now) if g.person.role == Role.OPERATOR and not after else None
    return render_template(
        "waiting.html",
        **with_results(messages, reports.by_time, now),
        count=reports.count_awaiting(g.person, MANY),
        many=MANY,
        at_once=AT_ONCE,
        overview=overview,
        selected=request.args.get("select", "").split("."),
    )


@blueprint.get("/messages")
def messages() -> str:
    """Show an operator all messages, or those with a status or to the number of a message."""
    operator()
    only, like = read_filter(request.args), request.args.get("like")
    if "number" in request.args:
        abort(400, "A number is not searched by its address, which proxies log: use the form.")
    if like:
        number = number_of(like)
        if number is None:
            abort(404, "There is no such message here, or its number was cleared.")
        only = only._replace(to=number)
    return show_messages(only)


@blueprint.post("/search")
def search() -> Response | str | tuple[str, int]:
    """Redirect an operator to the messages with a status or number.

    The address has the id of the number's latest message in place of the number: proxies log
    addresses.
    """
    operator()
    only, (written, region) = read_filter(request.form), read_written(request.form)
    query = {name: request.form.get(name) or None for name in FILTERS}
    if not written:
        return redirect(url_for(".messages", **query), 303)
    try:
        number = read_number(written, region)
    except recipients.InvalidNumber as error:
        problem = {"written": written, "region": region, "problem": str(error)}
        return show_messages(only, **problem), 400
    latest = reports.page(Filter(to=number), None, 1)
    if not latest:
        return show_messages(only._replace(to=number))
    return redirect(url_for(".messages", **query, like=latest[0].id), 303)


def read_filter(fields: dict) -> Filter:
    """Return which messages a form or an address asks for, without a number; abort if none can be.

    A day is one of UTC, and that on which messages were created.
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
        abort(400, "A day is written as 2026-11-24.")
    return Filter(status=status, key=key, since=since, until=until)


def number_of(message_id: str) -> str | None:
    """Return the number of a message; None if it has none any more, or there is no such one."""
    try:
        found = reports.seen_by(g.person, [uuid.UUID(message_id)])
    except ValueError:
        return None
    return found[0].to if found else None


def show_messages(
    only: Filter,
    written: str | None = None,
    region: str = "",
    problem: str | None = None,
) -> str:
    """Return the page of the messages asked for: none of them if there is a problem."""
    found = [] if problem else reports.page(only, read_place(reports.Place), PAGE + 1)
    return render_template(
        "messages.html",
        **with_results(found, reports.order(only), clock.now()),
        statuses=[*Status],
        keys=ApiKey.names_of_senders(),
        asked={name: request.args.get(name) for name in ("like", *FILTERS)},
        only=only,
        written=written or only.to or "",
        region=region,
        problem=problem,
    )


@blueprint.get("/messages/<uuid:message_id>")
def message(message_id: uuid.UUID) -> str:
    """Show one message with its whole history."""
    now, found = clock.now(), reports.seen_by(g.person, [message_id])
    if not found:
        abort(404, "There is no such message here.")
    (entry,) = shown(found, now)
    recent = results.recent(TEXTS, now)
    about = [each.without(each.ids - {message_id}) for each in recent if message_id in each.ids]
    back = page_of(request.args.get("back", "")) or url_for(".waiting")
    return render_template(
        "message.html",
        entry=entry,
        replies=shown_replies(Reply.of_message(message_id, now), now),
        results=told(about, now),
        back=back,
    )


@blueprint.app_template_global()
def way_back() -> str | None:
    """Return the page that leads to a message, as its address has it: below the desk's."""
    if request.endpoint == "desk.message":
        return request.args.get("back")
    return asked_page()


@blueprint.get("/replies")
def replies() -> str:
    """Show what recipients wrote back: first what may be a no, then what nobody has read."""
    now, after = clock.now(), read_place(ReplyPlace)
    found = Reply.page(g.person, after, PAGE + 1, now)
    recent = told_of_replies(results.recent(REPLIES, now), now)
    return render_template(
        "replies.html",
        **results.page(shown_replies(found, now), recent, order, after),
        count=Reply.count_waiting(g.person, MANY, now),
        many=MANY,
    )


@blueprint.get("/do-not-call")
def do_not_call() -> str:
    """Show an operator the form of the Do Not Call list."""
    operator()
    _, region = read_written(request.args)
    change = last_change(clock.now())
    return render_template("do_not_call.html", written="", region=region, change=change)


@blueprint.post("/do-not-call")
def change_do_not_call() -> Response | tuple[str, int]:
    """Apply the pressed button to the Do Not Call list."""
    person = operator()
    written, region = read_written(request.form)
    if "undo" in request.form:
        undo_change(request.form["undo"], person)
        return redirect(url_for(".do_not_call", region=region or None, _anchor="next"), 303)
    try:
        number = read_number(written, region)
    except recipients.InvalidNumber as error:
        fields = {"written": written, "region": region, "problem": str(error)}
        return render_template("do_not_call.html", **fields), 400
    session.pop("listing", None)
    if "check" in request.form:
        flash(check_list(number))
    else:
        has_changed, words = change_list("add" in request.form, number, person)
        show_change(number, "undo") if has_changed else flash(words)
    return redirect(url_for(".do_not_call", region=region or None, _anchor="next"), 303)


def check_list(number: str) -> str:
    """Return in words whether a number is on the list."""
    written = recipients.find(number).international
    if listed := DoNotCall.entry(number):
        why = SOURCES.get(listed.source, "")
        return f"{written} has been on the list since {listed.added_at:%Y-%m-%d}{why}."
    return f"{written} is not on the list."


def change_list(is_added: bool, number: str, person: Identity) -> tuple[bool, str]:
    """Add or remove a number; return whether that changed the list, and the result in words."""
    change, past = (put_on_list, "added to") if is_added else (DoNotCall.remove, "removed from")
    has_changed = change([number], clock.now(), "operator", person.name)
    about = {"key": person.name}
    log.info("a number was %s the Do Not Call list by %s", past, person.name, extra=about)
    words = NOW_LISTED[is_added, has_changed > 0]
    return has_changed > 0, f"{recipients.find(number).international} {words}."


def undo_change(change: str, person: Identity) -> None:
    """Undo a change of the Do Not Call list, named by its id; flash why not if it cannot be."""
    now = clock.now()
    session.pop("listing", None)
    try:
        number = take_back(int(change), person, now)
    except (ValueError, OverflowError):
        abort(400, "This is not a change of the list.")
    except Refused as why:
        flash(str(why))
    else:
        show_change(number, None)


def take_back(change: int, person: Identity, now: datetime) -> str:
    """Undo a change of the list that this person has just made, and log it; return the number.

    Raise Refused if it cannot be undone any more.
    """
    number = DoNotCall.undo(change, person.name, now - UNDO_WITHIN, now)
    about = {"key": person.name}
    log.info("a change of the Do Not Call list was undone by %s", person.name, extra=about)
    return number


def show_change(number: str, undo: str | None) -> None:
    """Have the page show what happened to a number last, and the button that undoes it."""
    session["listing"] = [DoNotCallHistory.latest(number).id, undo]


def last_change(now: datetime) -> dict | None:
    """Return this person's last change of the list as the page shows it, for a minute."""
    id, undo = session.get("listing", (None, None))
    change = id and DoNotCallHistory.get_or_none(DoNotCallHistory.id == id)
    left = results.seconds_left(change.at, now) if change else 0
    if not left:
        return None
    words = NOW_LISTED[change.what == "joined", True]
    written = recipients.find(change.number).international
    return {"said": f"{written} {words}.", "undo": undo, "id": id, "left": left}


def read_written(fields: dict) -> tuple[str, str]:
    """Return a number and the code of its country, as a form has them."""
    return fields.get("number", "").strip(), fields.get("region", "").strip().upper()


def read_number(written: str, region: str) -> str:
    """Return the E.164 form of a number, national if its region is given.

    Raise InvalidNumber, in words for the page.
    """
    if region and region not in recipients.REGIONS:
        raise recipients.InvalidNumber("A country has two letters, such as US or GB.")
    try:
        return recipients.national(written, region or None)
    except recipients.InvalidNumber:
        raise recipients.InvalidNumber(NO_NUMBER) from None


NOW_LISTED = {  # by whether a number was to be added, and whether that changed the list
    (True, True): "is on the list now",
    (True, False): "was on the list before",
    (False, True): "is no longer on the list",
    (False, False): "was not on the list",
}
SOURCES = {
    "operator": ", added by an operator",
    "import": ", from an imported file",
    "reply": ", because of a reply",
    "carrier": ", reported by the carrier",
}


# Buttons


def undo_cancel(message: Message, by: str, now: datetime) -> bool:
    """Undo a cancellation or refusal, as far as RECIPIENT_LIMIT allows."""
    return message.undo_cancel(by, now, current_app.config["SETTINGS"].recipient_limit)


ACTIONS = {
    "approve": ("approved", lambda message, by, now: message.decide(True, by, now)),
    "refuse": ("refused", lambda message, by, now: message.decide(False, by, now)),
    "cancel": ("cancelled", lambda message, by, now: message.cancel(by, now)),
    "retry": ("retried", lambda message, by, now: message.retry(now)),
    "undo-approve": ("no longer approved", Message.undo_approval),
    "undo-refuse": ("no longer refused", undo_cancel),
    "undo-cancel": ("no longer cancelled", undo_cancel),
}
DECISIONS = ("approve", "refuse", "undo-approve", "undo-refuse")


@blueprint.post("/")
@blueprint.post("/messages")
@blueprint.post("/messages/<uuid:message_id>")
def change(message_id: uuid.UUID | None = None) -> Response:
    """Apply the pressed button to one message or the selected ones; report those that missed."""
    action = next((name for name in ACTIONS if name in request.form), None)
    if action is None:
        abort(400, "No button was pressed.")
    if action not in DECISIONS:
        operator()
    now, settings = clock.now(), current_app.config["SETTINGS"]
    ids = read_ids(request.form[action])
    Message.expire(now, now - settings.expire_after, ids)  # or an approval would have no effect
    found = sorted(reports.seen_by(g.person, ids), key=lambda message: ids.index(message.id))
    past, transition = ACTIONS[action]
    places = [reports.Place(message.send_at, message.id) for message in found]
    done, missed = [], []
    for message in found:
        if transition(message, g.person.name, now):
            done.append(message.id)
            about = {"message_id": str(message.id), "key": g.person.name}
            log.info("message %s %s by %s", message.id, past, g.person.name, extra=about)
        else:
            missed.append(message.id)
    if found:
        results.keep(TEXTS, action, places[0], done, missed, now)
    if absent := len(ids) - len(found):
        flash(f"{counted(absent, 'text')} not changed: there is no such message here.")
    if not ids:
        flash("No text was selected.")
    return redirect(address_after(ids, "next" if found else "list"), 303)


@blueprint.post("/replies")
@blueprint.post("/messages/<uuid:message_id>/replies")
def change_replies(message_id: uuid.UUID | None = None) -> Response:
    """Apply the pressed button to a reply; a text's own page says at its top what that did."""
    action = next((name for name in REPLY_ACTIONS if name in request.form), None)
    if action is None:
        abort(400, "No button was pressed.")
    person = g.person if action == "read" else operator()
    now, place = clock.now(), read_button(request.form[action])
    found = Reply.seen_by(person, [place.id])
    for reply in found:
        has_changed = REPLY_ACTIONS[action](reply, person, now)
        if message_id:
            flash(in_words(action, has_changed, *shown_replies([reply], now)))
        else:
            done, missed = ([reply.id], []) if has_changed else ([], [reply.id])
            results.keep(REPLIES, action, place, done, missed, now)
    if not found:
        flash("Nothing was changed: there is no such reply here.")
    if message_id:
        back = request.args.get("back")
        address = url_for(".message", message_id=message_id, back=back, _anchor="replies")
        return redirect(address, 303)
    return redirect(address_after([], "next" if found else "list"), 303)


def read_button(value: str) -> ReplyPlace:
    """Return the place of the reply whose button was pressed: its card is gone from there."""
    try:
        return lists.read(ReplyPlace, value)
    except ValueError:
        abort(400, "This is not the place of a reply.")


def mark_read(reply: Reply, person: Identity, now: datetime) -> bool:
    """Mark a reply as read; return whether nobody had."""
    return bool(Reply.mark_read([reply.id], person.name, now))


def list_number(reply: Reply, person: Identity, now: datetime) -> bool:
    """Put the number of a reply on the Do Not Call list, and read it; return whether it is new."""
    with db.atomic():
        has_changed, _ = change_list(True, reply.number, person)
        mark_read(reply, person, now)
    return has_changed


def undo_listing(reply: Reply, person: Identity, now: datetime) -> bool:
    """Take the number of a reply off the list, if this person has just put it there."""
    change = DoNotCallHistory.latest(reply.number)
    if not change or change.what != "joined":
        return False
    try:
        take_back(change.id, person, now)
    except Refused:
        return False
    return True


REPLY_ACTIONS = {"read": mark_read, "list": list_number, "undo-list": undo_listing}
REPLY_WORDS = {  # by a button, and whether it changed something
    ("read", True): "The reply of {} was marked as read.",
    ("read", False): "The reply of {} was read before.",
    ("list", True): "{} is on the Do Not Call list now.",
    ("list", False): "{} was on the Do Not Call list before.",
    ("undo-list", True): "{} is no longer on the Do Not Call list. The reply stays read.",
    ("undo-list", False): "{} was not changed. Undo works for one minute, and only until something "
    "else happens.",
}


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


def address_after(ids: list[uuid.UUID], fragment: str) -> str:
    """Return the address of the page where a button was pressed, with the boxes left ticked."""
    query = [(name, value) for name, value in request.args.items() if name != "select"]
    decided = {str(id) for id in ids}
    ticked = [each for each in request.form.getlist("id") if each not in decided]
    if ticked:
        query.append(("select", ".".join(ticked[:PAGE])))
    asked = f"?{urlencode(query)}" if query else ""
    return f"{request.script_root}{request.path}{asked}#{fragment}"


# Parts of pages


def shown(found: list[Message], now: datetime) -> list[Entry]:
    """Return messages as the templates show them."""
    rules = current_app.extensions["rules"]
    numbers = {message.to for message in found} - {None}
    texted = reports.times_texted(numbers, now - DAY * HOUR)
    return [Entry(each, now, rules.of(each.key.rules), texted.get(each.to, 0)) for each in found]


def shown_replies(found: list[Reply], now: datetime) -> list[ReplyEntry]:
    """Return replies as the templates show them."""
    ids = {reply.message_id for reply in found} - {None}
    texts = {message.id: message for message in reports.seen_by(g.person, ids)}
    listed = DoNotCall.listed({reply.number for reply in found})
    by_operator = g.person.role == Role.OPERATOR
    return [
        ReplyEntry(each, texts.get(each.message_id), now, each.number in listed, by_operator)
        for each in found
    ]


def with_results(found: list[Message], key: Callable, now: datetime) -> dict:
    """Return what a page of messages shows: a card for each, and results where cards were."""
    recent = told(results.recent(TEXTS, now), now)
    return results.page(shown(found, now), recent, key, read_place(reports.Place))


class MessagesTold(Told):
    """What a button did to messages."""

    @property
    def past(self) -> str:
        """Return what became of the messages that were changed."""
        return ACTIONS[self.action][0]

    @property
    def undo(self) -> str | None:
        """Return the name of the button that takes this back; None if that cannot be any more."""
        name = f"undo-{self.action}"
        can_be = any(entry.can_be_undone(self.action) for entry in self.changed)
        return name if name in ACTIONS and can_be else None

    @property
    def is_too_late(self) -> bool:
        return bool(self.unchanged) and self.action.startswith("undo-")


def told(kept: list[Result], now: datetime) -> list[Told]:
    """Return results with their messages, unless none of these is there any more."""
    ids = set().union(*(result.ids for result in kept))
    cards = {entry.message.id: entry for entry in shown(reports.seen_by(g.person, ids), now)}
    return results.told(kept, cards, MessagesTold)


class ReplyTold(Told):
    """What a button did to a reply."""

    @property
    def said(self) -> str:
        """Return what happened, as a sentence."""
        (entry,) = self.changed or self.unchanged
        return in_words(self.action, bool(self.changed), entry)

    @property
    def undo(self) -> str | None:
        """Return the name of the button that takes this back; None if that cannot be any more."""
        is_listed = self.action == "list" and any(entry.listed for entry in self.changed)
        return "undo-list" if is_listed else None

    @property
    def value(self) -> str:
        """Return where the reply was, as the value of a button that undoes this."""
        return lists.write(self.place)


def told_of_replies(kept: list[Result], now: datetime) -> list[Told]:
    """Return results with their replies, unless these are not there any more."""
    ids = set().union(*(result.ids for result in kept))
    cards = {entry.reply.id: entry for entry in shown_replies(Reply.seen_by(g.person, ids), now)}
    return results.told(kept, cards, ReplyTold)


def in_words(action: str, has_changed: bool, entry: ReplyEntry) -> str:
    """Return what a button did to a reply, as a sentence."""
    return REPLY_WORDS[action, has_changed].format(entry.number)


def read_place(kind: type[lists.Place]) -> lists.Place | None:
    """Return the place after which this page begins; None for the first page."""
    text = request.args.get("after")
    try:
        return lists.read(kind, text) if text else None
    except ValueError:
        abort(404, "There is no such page.")


def look_over(now: datetime) -> dict:
    """Return the operator's overview: texts going out, recent outcomes, and trouble."""
    carrier, passed = CarrierState.latest(), passes.standing()
    several = health.of_several(CarrierState.of_latest_pass())
    this_hour = now.replace(minute=0, second=0, microsecond=0)
    going_out = enumerate(reports.going_out(this_hour, DAY, MANY))
    return {
        "hours": [(this_hour + after * HOUR, *counts) for after, counts in going_out],
        "most_an_hour": MANY,
        "once_approved": reports.due_once_approved(MANY),
        "ended": reports.ended_since(now - DAY * HOUR, DAY * MANY),
        "most_a_day": DAY * MANY,
        "carrier": carrier,
        "in_trouble": [each for each in several if each.trouble],
        "bad_end": reports.bad_end(now),
        "at_limit": reports.at_limit(now, current_app.config["SETTINGS"].key_limits),
        "most_keys": MOST_KEYS,
        "last_pass_at": passed.last_at,
        "is_silent": not passed.last_at or passed.is_missing(now, health.STALLED_AFTER),
        "now": now,
    }
