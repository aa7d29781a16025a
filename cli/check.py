"""`flask check`: is the service set up as it has to be?"""

import click
from flask import current_app
from flask.cli import with_appcontext

from cli import base
from database import Refused
from monitoring import checks


@click.command(cls=base.Command)
@with_appcontext
@click.pass_context
def check(ctx: click.Context) -> None:
    """Check settings, database, tables, clock, carrier and public address.

    The exit status is 1 if there is a problem. No text is sent.
    """
    base.say("settings: can be used")  # or this process would have ended
    failed = set()
    for name, look in checks.LOOKS.items():
        if name in ("tables", "clock") and "database" in failed:
            continue
        try:
            lines = look(current_app.config["SETTINGS"]).splitlines()
        except Refused as problem:
            failed.add(name)
            base.say(f"PROBLEM: {name}: {problem}")
            continue
        for line in lines:
            base.say(f"{name}: {line}")
    ctx.exit(1 if failed else 0)
