"""The operator's commands: `flask keys`, `dnc`, `messages`, and others for the whole service."""

import pkgutil

import click
from flask.cli import AppGroup

COMMANDS = {
    **dict.fromkeys(("db", "carriers", "stats", "check", "version"), "cli.service"),
    **{name: f"cli.{name}" for name in ("keys", "dnc", "messages", "replies", "events", "notify")},
    **{name: f"cli.{name}" for name in ("hours", "usage", "audit")},
}
"""Where each command is; only the one that runs is imported, as all of them take 0.2 s."""


class Commands(AppGroup):
    """Find the commands by their names."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return pkgutil.resolve_name(f"{COMMANDS[name]}:{name}") if name in COMMANDS else None
