"""`flask version`."""

import click
from flask import current_app
from flask.cli import with_appcontext

from cli import base


@click.command(cls=base.Command)
@with_appcontext
def version() -> None:
    """Print the version of this service.

    `flask --version` prints the versions of Flask and Python.
    """
    base.say(current_app.config["VERSION"])
