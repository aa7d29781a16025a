"""`flask keys`: keys of the programs that send and of the people at the desk."""

from datetime import datetime, timedelta

import click

import models
from cli import base
from keys import ApiKey, Role, wait_for_leases

keys = base.Commands("keys", help="API keys: for programs that send, and for people at the desk.")


def lifetime(value: str) -> timedelta | None:
    """Read a length of time above zero, or "never" for no end."""
    length = None if value == "never" else base.duration(value)
    if length == timedelta(0):
        raise click.BadParameter("must be more than 0")
    return length


@keys.command()
@click.argument("name", type=base.name)
@click.option("--group", type=base.name, help="Keys of one group share messages marked for it.")
@click.option("--expires", type=lifetime, help="Refuse the key after this time, like 90d.")
@click.option(
    "--role",
    type=click.Choice([*map(str, Role)]),
    default=str(Role.SENDER),
    show_default=True,
    help="A sender calls the API; the others sign in to the desk.",
)
def create(name: str, group: str | None, expires: timedelta | None, role: str) -> None:
    """Create an API key and print it; it cannot be shown again."""
    now = models.clock()
    click.echo(ApiKey.issue(name, group, now, expires and now + expires, Role(role)))


@keys.command()
@click.argument("name", type=base.name)
@click.option(
    "--overlap",
    type=base.duration,
    default="1d",
    show_default=True,
    help="How long the old secret stays valid.",
)
def rotate(name: str, overlap: timedelta) -> None:
    """Give a key a new secret and print it; the old one stays valid for the overlap."""
    click.echo(ApiKey.named(name).rotate(models.clock() + overlap))
    wait_for_leases()  # after printing: an interrupted wait must not lose the secret


@keys.command()
@click.argument("name", type=base.name)
@click.option(
    "--expires",
    type=lifetime,
    required=True,
    help='Refuse the key after this time from now, like 90d; "never" for no end.',
)
def extend(name: str, expires: timedelta | None) -> None:
    """Make a key, even an expired one, valid for a time from now on."""
    until = expires and models.clock() + expires
    ApiKey.named(name).extend(until)
    click.echo(f"{name}: valid until {base.moment(until)}" if until else f"{name}: does not expire")


@keys.command("list")
def list_keys() -> None:
    """List the keys with group, role, and times of creation, last use (by the hour) and end.

    A rotated key also shows how long its old secret stays valid.
    """
    now = models.clock()
    rows = [
        (
            key.name,
            key.group or "-",
            key.role,
            *map(base.moment, (key.created_at, last_used(key), key.expires_at)),
            base.moment(key.old_expires_at) if now < (key.old_expires_at or now) else "-",
            base.moment(key.revoked_at),
        )
        for key in ApiKey.everyone()
    ]
    header = ("name", "group", "role", "created", "last used", "expires", "old secret until")
    base.table((*header, "revoked"), rows)


def last_used(key: ApiKey) -> datetime | None:
    """Return the hour of a key's last use, but no instant before it was created."""
    return key.last_used_at and max(key.last_used_at, key.created_at)


@keys.command()
@click.argument("name", type=base.name)
def revoke(name: str) -> None:
    """Refuse a key from now on, in every process; its name becomes free."""
    done = ApiKey.named(name).revoke(models.clock())
    click.echo(f"{name}: {'revoked' if done else 'was revoked before'}")
