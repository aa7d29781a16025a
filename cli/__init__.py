"""The operator's commands: `flask keys`, `dnc`, `messages`, and others for the whole service."""

from flask import Flask

from cli import dnc, keys, messages, service


def register(app: Flask) -> None:
    """Add the commands to `flask`."""
    for command in (
        *(service.db, keys.keys, dnc.dnc, messages.messages),
        *(service.carriers, service.stats),
    ):
        app.cli.add_command(command)
