"""The desk: web pages for the people who approve texts and run the service."""

import contextlib

from flask import Flask, Response, current_app, render_template, request
from werkzeug.exceptions import MethodNotAllowed, NotFound

from texting import database
from texting.desk import auth, do_not_call, keys, messages, replies, sessions

MODULES = (messages, replies, do_not_call, keys)
"""Their views join the blueprint of `auth` when they are imported."""

OWN_WORDS = {
    NotFound.description: "There is no such page at the desk.",
    MethodNotAllowed.description: "This address only accepts form submissions.",
}
"""What the desk says in place of Werkzeug's descriptions."""


def register(app: Flask) -> None:
    """Add the desk to the application, if SECRET_KEY is set."""
    if app.config["SETTINGS"].secret_key:
        sessions.register(app)
        app.register_blueprint(auth.blueprint, url_prefix=sessions.PREFIX)


def preload(app: Flask) -> None:
    """Compile the templates, so that the first requests do not wait for it."""
    for name in app.jinja_env.list_templates():
        app.jinja_env.get_template(name)


def error_page(status: int, message: str, response: Response) -> Response | None:
    """Return an error below the desk's address as a page; None elsewhere.

    The page keeps the headers of `response`.
    """
    is_there = auth.blueprint.name in current_app.blueprints
    if not (is_there and request.environ["PATH_INFO"].startswith(f"{sessions.PREFIX}/")):
        return None
    with contextlib.suppress(*database.ERRORS):  # which may be why there is an error
        auth.find_person()
    message = OWN_WORDS.get(message, message)
    response.set_data(render_template("error.html", status=status, message=message))
    response.content_type = "text/html; charset=utf-8"
    return auth.protect(response)
