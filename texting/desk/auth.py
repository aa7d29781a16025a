"""The way in: checks and headers around each page of the desk, signing in and out."""

import logging
import re
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

from texting.access import audit
from texting.access.keys import ApiKey, Role
from texting.access.sign_ins import SignIn
from texting.database import Refused, clock
from texting.desk import entries, sessions, words

MAX_FORM = 256 * 1024  # bytes: the ids of all that is looked over, and notes
MAX_FIELDS = 200  # a page's ids, its token and a button are far fewer
PAGES = re.compile("(replies|messages(/[0-9A-Fa-f-]{36})?|do-not-call|keys)?")
"""The pages that a sign-in leads to, relative to the desk's address."""

log = logging.getLogger("web")
blueprint = Blueprint(
    "desk", __name__, template_folder="templates", static_folder="static", static_url_path="/static"
)
for each in words.FILTERS:
    blueprint.add_app_template_filter(each)
blueprint.add_app_template_filter(entries.outcome)
blueprint.add_app_template_global(words.hour_cycle)


# Around each page


@blueprint.before_request
def admit() -> Response | tuple[str, int] | None:
    """Find out who is signed in; refuse strangers and forms without their session's token."""
    if request.environ["PATH_INFO"].startswith("//"):  # Werkzeug's router takes it for one slash
        abort(404)
    request.max_content_length = MAX_FORM
    if request.endpoint == "desk.static":
        return None
    is_form = request.method not in ("GET", "HEAD", "OPTIONS")
    if is_form:
        sessions.check_origin()
        read_form()  # this may be slow, so it comes before any query, also for who is signed in
    find_person()
    audit.signed_in.set(g.person and audit.Actor(g.person.name, g.person.id))
    if is_form:
        # A session that is closed while its key is paused can be ended, or it would open again
        leaves = request.endpoint == "desk.sign_out" and "sign_in" in session
        if g.person is None and request.endpoint != "desk.sign_in" and not leaves:
            return refuse_stranger(
                "You are no longer signed in, so nothing was changed. Please sign in again."
            )
        sessions.check_token()
    elif g.person is None and request.endpoint not in ("desk.waiting", "desk.link"):
        return redirect(url_for(".waiting", next=asked_page()))
    return None


def find_person() -> None:
    """Find out who is signed in, once; nobody is while the database is away."""
    if "person" in g:
        return
    g.person = g.key = None  # as they stay if the database is away
    if sign_in := session.get("sign_in"):
        g.person = g.key = SignIn.find(sign_in, clock.now())


@blueprint.teardown_request
def forget_person(error: BaseException | None) -> None:
    """End what `admit` began: the next request may be another's."""
    audit.signed_in.set(None)


def read_form() -> None:
    """Read the form of the request; abort before parsing it if it has more than MAX_FIELDS."""
    request.max_form_parts = MAX_FIELDS  # which Werkzeug applies to multipart alone
    is_multipart = request.mimetype == "multipart/form-data"
    if not is_multipart and request.get_data().count(b"&") >= MAX_FIELDS:
        abort(413, f"The form has more than {MAX_FIELDS} fields.")
    request.form  # noqa: B018  reads the body


@blueprint.after_request
def protect(response: Response) -> Response:
    """Set the headers that forbid foreign scripts and frames."""
    response.headers["Content-Security-Policy"] = (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    return response


def asked_page() -> str | None:
    """Return the page of this request, relative to the desk's address: "messages?status=sent"."""
    path = request.path.partition(f"{request.blueprint}/")[2]
    query = [(name, value) for name, value in request.args.items() if name != "select"]
    if query:
        path += f"?{urlencode(query)}"
    return path if path and page_of(path) else None


def page_of(path: str) -> str | None:
    """Return the address of a page, given relative to the desk's; None if there is no such page."""
    path, _, query = path.partition("?")
    if not PAGES.fullmatch(path):
        return None
    return url_for(".waiting") + path + (f"?{urlencode(parse_qsl(query))}" if query else "")


@blueprint.app_template_global()
def way_back() -> str | None:
    """Return the page that links to a message, relative to the desk's address."""
    if request.endpoint == "desk.message":
        return request.args.get("back")
    return asked_page()


def operator() -> ApiKey:
    """Return the person who is signed in; abort unless that is an operator."""
    if g.person.role != Role.OPERATOR:
        abort(403, "Only an operator's key opens this page.")
    return g.person


def see(endpoint: str, **address: str | None) -> Response:
    """Answer a form with a redirect, so that a reload of the page does not submit it again."""
    return redirect(url_for(endpoint, **address), 303)


# In and out


@blueprint.get("")
def enter() -> Response:
    """Redirect to the desk's address with a slash.

    Flask's own redirect has an absolute URL, with the client's Host and without the proxy's https.
    """
    return redirect(url_for(".waiting"))


@blueprint.get("/link")
def link() -> str:
    """Show the button of a sign-in link: looking at a link does not use it up.

    The token is in the address's fragment, which no log has. To refresh such an address loads
    nothing, so a script has to load the page again.
    """
    return render_template("arrive.html" if sessions.lacks_cookie() else "link.html")


@blueprint.post("/sign-in")
def sign_in() -> Response | tuple[str, int]:
    """Sign in with a key, or by a link."""
    # No limit on attempts: keys have 256 random bits, so guessing is hopeless
    note = "This key does not open the desk. It may be mistyped, expired, paused or revoked."
    now, before = clock.now(), session.get("sign_in")
    try:
        if "link" in request.form:
            note = "This link was used, is older than ten minutes, or its key has changed."
            token, signer = request.form["link"], current_app.secret_key
            id = SignIn.begin_by_link(token, signer, now, before)
        else:
            id = SignIn.begin(request.form.get("key", "").strip(), now, before)
    except Refused as why:
        id, note = None, f"{why} Ask whoever runs the service for an approver's or operator's key."
    if id is None:
        return refuse_stranger(note)
    sessions.begin(id)
    if "link" in request.form:  # which does not say whose it is
        person = SignIn.find(id, now)
        of_group = f" of {person.group}" if person.group else ""
        flash(f"You are signed in as {person.name}, {person.role}{of_group}.")
    return redirect(page_of(request.form.get("next", "")) or url_for(".waiting"), 303)


def refuse_stranger(problem: str) -> tuple[str, int]:
    """Show the sign-in with a problem; log it like a wrong key of a program."""
    log.info("answered 403 to key - at the sign-in of the desk")
    next = request.form.get("next") or asked_page()
    return render_template("sign_in.html", problem=problem, next=next), 403


@blueprint.post("/sign-out")
def sign_out() -> Response:
    """Sign out, and invalidate every copy of the cookie."""
    SignIn.end(session["sign_in"], clock.now())
    session.clear()
    return see(".waiting")
