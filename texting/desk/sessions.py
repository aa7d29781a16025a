"""The desk's cookies: signed with SECRET_KEY and sent to the desk's pages only.

Flask signs them (itsdangerous); Flask-WTF makes and checks the forms' tokens. Flask-Login would
load a user by id, which is one line here: `SignIn.find`. A cookie holds the id of a sign-in, a
token and notices. The database knows whether the sign-in is still valid.
"""

import ipaddress
import re
from urllib.parse import urlsplit

from flask import Flask, Request, current_app, request, session
from flask.sessions import SecureCookieSession, SecureCookieSessionInterface
from flask_wtf.csrf import generate_csrf, validate_csrf
from werkzeug.exceptions import BadRequest, Forbidden
from wtforms import ValidationError

from texting.access.sign_ins import SignIn

PREFIX = "/desk"


class DeskSessions(SecureCookieSessionInterface):
    """Sessions for the pages below PREFIX; other pages read and set no cookie."""

    def open_session(self, app: Flask, request: Request) -> SecureCookieSession | None:
        below = request.environ["PATH_INFO"].startswith(f"{PREFIX}/")
        return super().open_session(app, request) if below else None

    def get_cookie_secure(self, app: Flask) -> bool:
        """Return whether the cookie is for https only: yes, unless the desk is known to lack it."""
        if public_url := app.config["SETTINGS"].public_url:
            return public_url.startswith("https:")
        return not _is_local(re.sub(":[0-9]*$", "", request.host).strip("[]").lower())

    def get_cookie_name(self, app: Flask) -> str:
        """Return a name that keeps others of the domain from setting the cookie.

        Browsers take `__Host-` for a whole host only; a stage's prefix shares its host.
        """
        if not self.get_cookie_secure(app):
            return "desk"
        return "__Secure-desk" if request.script_root else "__Host-desk"

    def get_cookie_path(self, app: Flask) -> str:
        is_whole_host = self.get_cookie_name(app).startswith("__Host-")
        return "/" if is_whole_host else f"{request.script_root}{PREFIX}/"


def register(app: Flask) -> None:
    """Set up the application's sessions."""
    app.session_interface = DeskSessions()
    app.config.update(
        SECRET_KEY=app.config["SETTINGS"].secret_key,
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Strict",
        PERMANENT_SESSION_LIFETIME=SignIn.LASTS,
        SESSION_REFRESH_EACH_REQUEST=False,  # or a late answer brings back an old cookie
        WTF_CSRF_TIME_LIMIT=None,  # a token lasts as long as its session
    )
    app.jinja_env.globals["csrf_token"] = generate_csrf


def lacks_cookie() -> bool:
    """Return whether a link of another site led here, to which browsers add no Strict cookie.

    To set one would sign out who has one. A page of ours that loads this one again brings it.
    """
    is_linked = request.headers.get("Sec-Fetch-Site") == "cross-site"
    name = current_app.session_interface.get_cookie_name(current_app)
    return is_linked and name not in request.cookies


def _is_local(host):
    """Return whether a host is this machine or in its network, where https is rare."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local"))  # RFC 6761, RFC 6762


def begin(sign_in: str) -> None:
    """Begin a new session for a sign-in; nothing of the previous session remains."""
    session.clear()
    session.permanent = True
    session["sign_in"] = sign_in


def check_origin() -> None:
    """Raise Forbidden if the browser says that the form comes from another site.

    Without Sec-Fetch-Site, which browsers send over HTTPS only, Origin must name the host of the
    request or that of PUBLIC_URL.
    """
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site in ("same-origin", "none"):
        return
    public_url = current_app.config["SETTINGS"].public_url or ""
    hosts = {_host(f"//{request.host}"), _host(public_url)} - {""}
    if site or (origin is not None and _host(origin) not in hosts):
        raise Forbidden(
            "This form comes from another site, so nothing was changed. If it is a page of this "
            "desk, PUBLIC_URL must be set to the address in your browser."
        )


def _host(url):
    """Return the host and port of a URL, without a default port; "" if it has none."""
    try:
        return re.sub(":(80|443)$", "", urlsplit(url).netloc.lower())
    except ValueError:  # brackets that are no IPv6 address
        return ""


def check_token() -> None:
    """Raise BadRequest unless the form comes from a page of this session."""
    try:
        validate_csrf(request.form.get("csrf_token"))
    except ValidationError:
        raise BadRequest(
            "This form has expired or comes from another site, or your browser blocks cookies. "
            "Nothing was changed. Please try again."
        ) from None
