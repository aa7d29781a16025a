"""The web application, put together from its parts."""

import logging

import click
from flask import Flask

from texting import cli, database, logs
from texting.access.rules import Rules
from texting.carriers import configs
from texting.monitoring import checks
from texting.settings import VERSION, Settings, exit_if_invalid, load_or_exit, warn_of_misspelt


def create_app(settings: Settings | None = None) -> Flask:
    """Build the application from the environment, or from the given settings."""
    from_environment = settings is None
    if from_environment:
        settings = load_or_exit()
    checks.start(settings)
    with exit_if_invalid("CARRIER_URL"):  # of carriers that verify callbacks
        connected = configs.connect_all(
            settings.carrier_configs, public_url=settings.public_url, sending=False
        )
    handler = logs.start(settings.log_level, settings.log_format)
    if from_environment:
        warn_of_misspelt()
    database.connect(settings.database_url)
    app = Flask(__name__, static_folder=None)
    app.config["SETTINGS"] = settings
    app.config["VERSION"] = VERSION
    app.extensions["rules"] = Rules.from_settings(settings)
    app.extensions["carriers"] = {carrier.name: carrier for carrier in connected}
    app.json.sort_keys = False
    app.url_map.merge_slashes = False  # a redirect would be HTML
    app.cli = cli.Commands(app.name)
    if not looks_for_a_command():
        serve(app, handler)
    return app


def looks_for_a_command() -> bool:
    """Return whether `flask` builds the application only to find one of our commands in it.

    Then no request will come. `flask run` builds it in the context of its own command.
    """
    context = click.get_current_context(silent=True)
    return context is not None and context.parent is None


def serve(app: Flask, handler: logging.Handler) -> None:
    """Add all that answers requests; importing that takes as long as a whole command, 0.2 s."""
    import api
    import schemas
    from texting import desk
    from texting.monitoring import pages
    from texting.web import callbacks, errors, requests

    handler.addFilter(requests.add_request_id)
    requests.register(app)
    app.register_blueprint(api.blueprint)
    callbacks.register(app)
    pages.register(app)
    desk.register(app)
    errors.register(app, schemas.FIELDS, desk.error_page)
