"""Cookies of the desk: signed with SECRET_KEY, for its pages alone.

Flask signs them (itsdangerous), Flask-WTF makes and checks the forms' tokens. Flask-Login would
load a user by an id; that is the one line `SignIn.find` here. What a cookie holds is no more than
the id of a sign-in, a token and a notice; whether the sign-in still holds, the database says.
"""

from flask import Flask, Request, request, session
from flask.sessions import SecureCookieSession, SecureCookieSessionInterface
from flask_wtf.csrf import generate_csrf, validate_csrf
from werkzeug.exceptions import BadRequest
from wtforms import ValidationError

from keys import SignIn
from settings import Settings


class DeskSessions(SecureCookieSessionInterface):
    """Keep sessions for the pages below a prefix; elsewhere, no cookie is read or set."""

    def __init__(self, prefix: str):
        self.prefix = prefix

    def open_session(self, app: Flask, request: Request) -> SecureCookieSession | None:
        below = request.path.startswith(f"{self.prefix}/")
        return super().open_session(app, request) if below else None

    def get_cookie_path(self, app: Flask) -> str:
        return f"{request.script_root}{self.prefix}/"


def register(app: Flask, prefix: str, settings: Settings) -> None:
    """Have the application sign sessions for the pages below a prefix."""
    app.session_interface = DeskSessions(prefix)
    app.config.update(
        SECRET_KEY=settings.secret_key,
        SESSION_COOKIE_NAME="desk",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Strict",
        SESSION_COOKIE_SECURE=(settings.public_url or "").startswith("https:"),
        PERMANENT_SESSION_LIFETIME=SignIn.LASTS,
        WTF_CSRF_TIME_LIMIT=None,  # a token lasts as long as its session
    )
    app.jinja_env.globals["csrf_token"] = generate_csrf


def begin(sign_in: str) -> None:
    """Keep a sign-in in a session of its own: nothing of the one before is left."""
    session.clear()
    session.permanent = True
    session["sign_in"] = sign_in


def check_token() -> None:
    """Refuse a form that does not come from a page of this session."""
    try:
        validate_csrf(request.form.get("csrf_token"))
    except ValidationError:
        raise BadRequest(
            "This form is too old, or comes from elsewhere, or your browser keeps no cookies. "
            "Nothing was changed; please try again."
        ) from None
