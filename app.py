"""The web application, put together from its parts."""

from flask import Flask

import api
import cli
import database
import desk
import logs
import settings as environment
from access.rules import Rules
from carriers import Carrier, ways
from monitoring import checks, pages
from web import callbacks, errors, requests


def create_app(settings: environment.Settings | None = None) -> Flask:
    """Build the application from the environment, or from the given settings."""
    from_environment = settings is None
    if from_environment:
        settings = environment.load_or_exit()
    checks.start(settings)
    connected = connect_carriers(settings)
    logs.start(settings.log_level, settings.log_format).addFilter(requests.add_request_id)
    if from_environment:
        environment.warn_of_misspelt()
    database.connect(settings.database_url)
    app = Flask(__name__, static_folder=None)
    app.config["SETTINGS"] = settings
    app.config["VERSION"] = environment.VERSION
    app.extensions["rules"] = Rules.from_settings(settings)
    app.extensions["carriers"] = {carrier.name: carrier for carrier in connected}
    app.json.sort_keys = False
    app.url_map.merge_slashes = False  # a redirect would be HTML
    requests.register(app)
    app.register_blueprint(api.blueprint)
    callbacks.register(app)
    pages.register(app)
    desk.register(app)
    errors.register(app, desk.error_page)
    cli.register(app)
    return app


def connect_carriers(settings: environment.Settings) -> list[Carrier]:
    """Return the carriers, which verify callbacks; end the process if CARRIER_URL is invalid."""
    try:
        return ways.connect_all(settings.ways, public_url=settings.public_url, sending=False)
    except ValueError as problems:
        environment.exit_with_each("CARRIER_URL", problems)
