"""The web application, put together from its parts."""

from flask import Flask

import api
import carriers
import cli
import database
import desk
import logs
import settings as environment
from access.rules import Rules
from carriers import Carrier
from monitoring import checks, pages
from web import callbacks, errors, requests


def create_app(settings: environment.Settings | None = None) -> Flask:
    """Build the application from the environment, or from the given settings."""
    from_environment = settings is None
    if from_environment:
        settings = environment.load_or_exit()
    checks.start(settings)
    carrier = connect_carrier(settings)
    logs.start(settings.log_level, settings.log_format).addFilter(requests.add_request_id)
    if from_environment:
        environment.warn_of_misspelt()
    database.connect(settings.database_url)
    app = Flask(__name__, static_folder=None)
    app.config["SETTINGS"] = settings
    app.config["VERSION"] = environment.VERSION
    app.extensions["rules"] = Rules.from_settings(settings)
    app.extensions["carrier"] = carrier
    app.json.sort_keys = False
    app.url_map.merge_slashes = False  # a redirect would be HTML
    requests.register(app)
    app.register_blueprint(api.blueprint)
    app.register_blueprint(callbacks.blueprint)
    pages.register(app)
    desk.register(app)
    errors.register(app, desk.error_page)
    cli.register(app)
    return app


def connect_carrier(settings: environment.Settings) -> Carrier | None:
    """Return the carrier that verifies callbacks; end the process if CARRIER_URL is invalid."""
    if not settings.carrier_url:
        return None
    try:
        return carriers.connect(settings.carrier_url, public_url=settings.public_url, sending=False)
    except ValueError as problem:
        environment.exit_with(f"CARRIER_URL: {problem}")
