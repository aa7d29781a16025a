"""The desk: the service's own pages for the people who approve texts and look after them."""

from flask import Flask, Response, current_app, render_template, request

from desk import sessions, views

PREFIX = "/desk"


def register(app: Flask) -> None:
    """Give the application its desk, where SECRET_KEY is set; without it there is none."""
    settings = app.config["SETTINGS"]
    if settings.secret_key:
        sessions.register(app, PREFIX, settings)
        app.register_blueprint(views.blueprint, url_prefix=PREFIX)


def preload(app: Flask) -> None:
    """Compile the templates, which the first request for each page would wait for otherwise."""
    for name in app.jinja_env.list_templates():
        app.jinja_env.get_template(name)


def serves_request() -> bool:
    """Say whether the present request is for the desk, also where it leads nowhere there."""
    is_there = views.blueprint.name in current_app.blueprints
    return is_there and request.path.startswith(f"{PREFIX}/")


def render_error(status: int, message: str, response: Response) -> Response:
    """Render an error as a page for people; keep the headers of `response`."""
    response.set_data(render_template("error.html", status=status, message=message))
    response.content_type = "text/html; charset=utf-8"
    return views.protect(response)
