"""The operator's commands: `flask keys`, `dnc`, `messages`, and others for the whole service."""

import pkgutil
import sys

import click
from flask.cli import AppGroup

COMMANDS = {
    **dict.fromkeys(("db", "backup", "carriers", "stats", "check", "version"), "service"),
    **{name: name for name in ("keys", "dnc", "places", "messages", "replies", "events")},
    **{name: name for name in ("notify", "hours", "usage", "audit")},
}
"""The module of each command; only the one that runs is imported, as all of them take 0.2 s."""

ABOUT = (
    "Operate the Text Message Sending Service: set it up, see how it is, and decide what is sent."
)
MORE = "flask COMMAND --help says more of each; docs/commands.md shows them at work."
SECTIONS = {
    "The service": ("db", "check", "stats", "carriers", "notify", "backup", "version"),
    "Texts": ("messages", "replies", "dnc", "places", "hours", "usage"),
    "Who sends": ("keys", "events", "audit"),
}
WHOLE = 1_000
"""Characters that a description may have, so that none is cut."""


class Commands(AppGroup):
    """Find the commands by their names, and describe them in sections."""

    def list_commands(self, ctx: click.Context | None) -> list[str]:
        """Return the names; to Flask's own help, which would list them, show ours instead.

        Flask loads the application while it writes its help, so nothing can change that earlier.
        """
        if ctx and ctx.command is not self and not ctx.resilient_parsing:
            click.echo(self.get_help(ctx))
            sys.exit()  # Flask would print the traceback of click's Exit
        return [*COMMANDS]

    def get_command(self, ctx: click.Context | None, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return pkgutil.resolve_name(f"texting.cli.{COMMANDS[name]}:{name}")

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_text(ABOUT)
        formatter.write_paragraph()
        ctx.command.format_usage(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(MORE)
        for title, names in SECTIONS.items():
            found = {name: self.get_command(ctx, name) for name in names if name in COMMANDS}
            write_commands(formatter, title, found)
        write_commands(formatter, "Flask's own, for development", ctx.command.commands)
        click.Command.format_options(ctx.command, ctx, formatter)


def write_commands(
    formatter: click.HelpFormatter, title: str, commands: dict[str, click.Command]
) -> None:
    """Write a section of commands, each with the whole first sentence of its help."""
    rows = [(name, each.get_short_help_str(WHOLE)) for name, each in commands.items()]
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)
