"""The operator's commands: `flask keys`, `dnc`, `messages`, and others for the whole service."""

from flask import Flask

from cli import audit, check, dnc, events, keys, messages, notify, replies, service, usage


def register(app: Flask) -> None:
    """Add the commands to `flask`."""
    commands = (
        *(service.db, keys.keys, dnc.dnc, messages.messages, events.events, notify.notify),
        *(service.carriers, service.stats, service.version, usage.usage, audit.audit),
        *(replies.replies, check.check),
    )
    for command in commands:
        app.cli.add_command(command)
