"""`flask keys`: who may send, and who may sign in to the desk."""

from datetime import timedelta

import click
from click import Context, Parameter

import models
from cli.base import Commands, Duration, Name, moment, table
from keys import ApiKey, Role, wait_for_leases

keys = Commands("keys", help="API keys: who may send.")


class Lifetime(Duration):
    """A length of time that is not nothing, or "never" for no end."""

    def convert(self, value: str, param: Parameter | None, ctx: Context | None) -> timedelta | None:
        if value == "never":
            return None
        return super().convert(value, param, ctx) or self.fail("must be more than 0", param, ctx)


@keys.command()
@click.argument("name", type=Name())
@click.option("--group", type=Name(), help="Keys of one group share messages marked for it.")
@click.option("--expires", type=Lifetime(), help="Refuse the key after this time, like 90d.")
@click.option(
    "--role",
    type=click.Choice([*map(str, Role)]),
    default=str(Role.SENDER),
    show_default=True,
    help="A sender calls the API; the others sign in to the desk.",
)
def create(name: str, group: str | None, expires: timedelta | None, role: str) -> None:
    """Create an API key and print it: the only time it can be seen."""
    now = models.clock()
    click.echo(ApiKey.issue(name, group, now, expires and now + expires, Role(role)))


@keys.command()
@click.argument("name", type=Name())
@click.option(
    "--overlap",
    type=Duration(),
    default="1d",
    show_default=True,
    help="How long the old one lasts.",
)
def rotate(name: str, overlap: timedelta) -> None:
    """Give a key a new secret and print it; the old one is good for the overlap."""
    click.echo(ApiKey.named(name).rotate(models.clock() + overlap))
    wait_for_leases()  # once it is printed: nobody could ask for it again


@keys.command()
@click.argument("name", type=Name())
@click.option(
    "--expires",
    type=Lifetime(),
    required=True,
    help='Refuse the key after this time from now, like 90d; "never" for no end.',
)
def extend(name: str, expires: timedelta | None) -> None:
    """Let a key, also one that has expired, be good for a time from now on."""
    until = expires and models.clock() + expires
    ApiKey.named(name).extend(until)
    click.echo(f"{name}: good until {moment(until)}" if until else f"{name}: does not expire")


@keys.command("list")
def list_keys() -> None:
    """List the keys: group, role, and when created, last used (to the hour), expired, revoked.

    A key that was rotated shows until when its old secret is good.
    """
    now = models.clock()
    rows = [
        (
            key.name,
            key.group or "-",
            key.role,
            *map(moment, (key.created_at, key.last_used_at, key.expires_at)),
            moment(key.old_expires_at) if now < (key.old_expires_at or now) else "-",
            moment(key.revoked_at),
        )
        for key in ApiKey.select().order_by(ApiKey.name, ApiKey.id)
    ]
    header = ("name", "group", "role", "created", "last used", "expires", "old secret until")
    table((*header, "revoked"), rows)


@keys.command()
@click.argument("name", type=Name())
def revoke(name: str) -> None:
    """Refuse a key from now on, in every process; its name can be used again."""
    done = ApiKey.named(name).revoke(models.clock())
    click.echo(f"{name}: {'revoked' if done else 'was revoked before'}")
