"""`flask keys`: keys of the programs that send and of the people at the desk."""

import shlex
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import click
from flask import current_app

from texting.access import rules
from texting.access.audit import Action, Audit
from texting.access.keys import MAY_SEND, ApiKey, Role, all_keys, senders
from texting.access.limits import Limit, parse, read_recipient_limit
from texting.access.rules import NO_RULES, KeyRules
from texting.access.sign_ins import SignIn
from texting.carriers import urls
from texting.cli import base
from texting.database import Refused, clock, db
from texting.events import delivery
from texting.events.outbox import Backlog, Event, EventAddress
from texting.messages import decisions
from texting.monitoring import checks
from texting.reports import queue, usage

keys = base.Commands(
    "keys",
    help="Make and change API keys, of programs that send texts and of people at the desk.",
)


def lifetime(value: str) -> timedelta | None:
    """Read a length of time above zero, or "never" for no end."""
    length = None if value == "never" else base.duration(value)
    if length == timedelta(0):
        raise click.BadParameter("must be more than 0")
    return length


def read_limits(ctx: click.Context, parameter: click.Parameter, values: tuple) -> tuple[Limit, ...]:
    """Read limits that were given one by one: 5/s, 1000/d."""
    try:
        return parse(",".join(values))
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


name_argument = click.argument("name", type=base.name)
rule_options = base.options(
    click.option("--hours", metavar="H", help="Override the business hours: mon-fri 09:00-17:00."),
    click.option(
        "--quiet-hours",
        metavar="Q",
        help="Override the quiet hours: 21:00-08:00, by the day, or none.",
    ),
    click.option("--check-dnc", metavar="|".join(rules.CHECKS), help="Override CHECK_DNC."),
    click.option("--expire-after", metavar="T", help="Override EXPIRE_AFTER: 10m."),
    click.option(
        "--urgent/--not-urgent", default=None, help="Send its texts before other keys' texts."
    ),
    click.option(
        "--countries", metavar="US,CA|all", help="Override ALLOWED_COUNTRIES, or allow all."
    ),
    click.option(
        "--recipient-limit",
        metavar="3/24h|none",
        help="Override RECIPIENT_LIMIT, counting this key's texts alone; or none.",
    ),
)


def read_rules(name: str, urgent: bool | None, **options: str | None) -> dict:
    """Return the rules that options set, by column; None for "default".

    Raise Refused, with the name of the key, if one cannot be used.
    """
    changes = {} if urgent is None else {"urgent": urgent}
    for column, text in options.items():
        if text is not None:
            try:
                written = text.strip().lower()
                changes[column] = None if written == "default" else rules.read(column, text)
                if column == "recipient_limit":
                    check_kept(changes[column])
            except ValueError as problem:
                option = column.replace("_", "-")
                raise Refused(f"the key {name!r}: {option}: {problem}") from None
    return changes


def check_kept(own: str | None) -> None:
    """Raise ValueError if texts are forgotten while they still count for a limit of recipients."""
    settings = current_app.config["SETTINGS"]
    for name in ("keep_texts", "keep_messages"):
        kept = getattr(settings, name)
        if own not in (None, rules.NONE) and kept and kept < read_recipient_limit(own).window:
            raise ValueError(
                f"must not have a longer window than {name.upper()}, after which a text counts no "
                "more"
            )


@keys.command()
@name_argument
@click.option(
    "--group", type=base.name, help="Keys of a group share messages sent with available_to_group."
)
@click.option("--events", "url", type=base.address, help="Send webhook events to this address.")
@click.option("--expires", type=lifetime, help="Refuse the key after this time, such as 90d.")
@click.option(
    "--role",
    type=click.Choice([*map(str, Role)]),
    default=str(Role.SENDER),
    show_default=True,
    help="A sender calls the API. So does a tester, but its texts go to the simulator. "
    "The others sign in to the desk.",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    callback=read_limits,
    help="Limit its texts, as in 5/s or 1000/d (UTC), or its parts: 20000p/mo. May be repeated.",
)
@rule_options
def create(
    name: str,
    group: str | None,
    url: str | None,
    expires: timedelta | None,
    role: str,
    limits: tuple[Limit, ...],
    **options: Any,
) -> None:
    """Create an API key and print it; it cannot be shown again.

    Without limits of its own, KEY_LIMITS applies; without a rule, the setting applies.
    """
    now, own = clock.now(), KeyRules(**read_rules(name, **options))
    with db.atomic():  # or a failure would leave a key whose secret nobody saw
        secret = ApiKey.issue(name, group, now, expires and now + expires, Role(role), limits, own)
        if url:
            EventAddress.set(ApiKey.named(name), url, now)
    base.say(secret)
    if role not in MAY_SEND and not current_app.config["SETTINGS"].secret_key:
        base.say(f"desk: {checks.DESK_OFF}, so {name} cannot sign in", err=True)
    if role == Role.APPROVER and not group:
        base.say(f"{name} sees no messages: an approver sees only those of its --group", err=True)
    if role == Role.SENDER and is_unbounded(limits, own):
        base.say(
            f"{name}: if this key leaks, anybody can send any number of texts to any country; "
            "--limit and --countries bound that",
            err=True,
        )


def is_unbounded(limits: tuple[Limit, ...], own: KeyRules) -> bool:
    """Return whether a key with these limits and rules may send without end, and anywhere."""
    allowed = current_app.extensions["rules"].of(own).allowed_countries
    return allowed is None and not (limits or current_app.config["SETTINGS"].key_limits)


@keys.command()
@name_argument
@click.option(
    "--overlap",
    type=base.duration,
    default="1d",
    help="How long the old secret stays valid. Default: 1d.",
)
def rotate(name: str, overlap: timedelta) -> None:
    """Give a key a new secret and print it; the old one stays valid for the overlap.

    While an old one is valid, only --overlap 0 makes another, and ends all others at once.
    """
    now = clock.now()
    base.say(ApiKey.named(name).rotate(now + overlap, now))


@keys.command()
@name_argument
def link(name: str) -> None:
    """Print a link that signs a person in at the desk, and its QR code.

    It works once, for ten minutes. Rotating, revoking or pausing the key voids it.
    """
    import segno  # which takes a tenth of a second

    settings = current_app.config["SETTINGS"]
    needed = {"PUBLIC_URL": settings.public_url, "SECRET_KEY": settings.secret_key}
    if missing := [name for name, value in needed.items() if not value]:
        raise Refused(f"a link needs PUBLIC_URL and SECRET_KEY; missing: {', '.join(missing)}")
    token = SignIn.make_link(ApiKey.named(name), settings.secret_key, clock.now())
    address = f"{settings.public_url}/desk/link#{token}"  # no browser sends the fragment
    base.say(address)
    segno.make_qr(address, error="l").terminal(sys.stdout, border=2, compact=True)


@keys.command()
@name_argument
@click.option(
    "--expires", type=lifetime, required=True, help='A time from now, such as 90d, or "never".'
)
def extend(name: str, expires: timedelta | None) -> None:
    """Make a key, even an expired one, valid for a time from now."""
    now = clock.now()
    until = expires and now + expires
    ApiKey.named(name).extend(until, now)
    base.say(f"{name}: valid until {base.shown(until)}" if until else f"{name}: does not expire")


@keys.command("limit", context_settings={"ignore_unknown_options": True})
@name_argument
@click.argument("limits", nargs=-1, callback=read_limits)
def set_limits(name: str, limits: tuple[Limit, ...]) -> None:
    """Replace the limits of a key, as in 5/s 1000/d; without any, KEY_LIMITS applies again.

    2000p/d and 20000p/mo count parts, which carriers bill. A new number for a unit keeps its count;
    a limit of another unit counts from now on. Every process applies the limits when this returns.
    """
    ApiKey.named(name).limit(limits, clock.now())
    defaults = current_app.config["SETTINGS"].key_limits
    told = ", ".join(map(str, limits or defaults)) or "no limits"
    base.say(f"{name}: {told}{' (KEY_LIMITS)' if defaults and not limits else ''}")


@keys.command("rules")
@name_argument
@rule_options
def set_rules(name: str, **options: Any) -> None:
    """Override settings for one key; "default" removes an override.

    Print all its rules. Every process applies them within a second, also to waiting messages.
    """
    key, now = ApiKey.named(name), clock.now()
    if changes := read_rules(name, **options):
        key.rule(changes, now)
    for rule, text in ApiKey.get_by_id(key.id).rules.written().items():
        base.say(f"{rule}: {text}")


@keys.command("events")
@name_argument
@click.argument("url", type=base.address, required=False)
@click.option(
    "--off", is_flag=True, help="Send no more events, and give up those that are waiting."
)
@click.option("--secret", is_flag=True, help="Print only the signing secret.")
@click.option(
    "--rotate", is_flag=True, help="Create a new signing secret; for a day, both sign events."
)
@click.option("--test", is_flag=True, help="Send a test event now, and print the answer.")
@click.pass_context
def set_events(
    ctx: click.Context,
    name: str,
    url: str | None,
    off: bool,
    secret: bool,
    rotate: bool,
    test: bool,
) -> None:
    """Set the address for a key's events, or show it and how many events are waiting.

    The first address creates the signing secret, which stays when the address changes. The exit
    status of --test is 0 if the receiver answered 2xx.
    """
    if sum(map(bool, (url, off, secret, rotate, test))) > 1:
        raise click.UsageError("Give an address or one option.", ctx)
    key, now = ApiKey.named(name), clock.now()
    if url:
        EventAddress.set(key, url, now)
    if rotate:
        EventAddress.rotate(key, now)
    address = EventAddress.of(key)
    if secret:
        Audit.note(Action.SHOWN_EVENTS, now, key=key.id, key_name=key.name)
        base.say(address.secret)
        return
    if test:
        if address.off:
            raise Refused(f"the address of {name} is switched off: {address.off}")
        accepted, words = delivery.tell_test(address, now)
        if not accepted:
            raise Refused(words)
        base.say(words)
        return
    if off:
        EventAddress.switch_off(key.id, "by an operator", now)
        while Event.give_up(now):
            pass
    address, backlog = EventAddress.of(key), Event.backlogs().get(key.id, Backlog())
    state = f"switched off: {address.off}" if address.off else "on"
    base.say(f"{name}: {urls.masked(address.url)} ({state})")
    base.say(f"{backlog.waiting} waiting, {backlog.given_up} given up")
    if address.old_secret_until and now < address.old_secret_until:
        base.say(f"also signed with the old secret until {base.shown(address.old_secret_until)}")


@keys.command("list")
@base.json_option
def list_keys(as_json: bool) -> None:
    """List the keys with group, role, limits, rules, creation, last use and expiry.

    Each limit shows how much of it is used up; limits from KEY_LIMITS are in parentheses. The last
    use is shown by the hour. A rotated key also shows how long its old secret stays valid.
    """
    now, everyone = clock.now(), all_keys()
    limits = usage.use_of_limits(everyone, now, current_app.config["SETTINGS"].key_limits)
    objects = [as_object(key, limits[key.id], now) for key in everyone]
    if as_json:
        addresses, backlogs = EventAddress.by_key(), Event.backlogs()
        base.print_array(
            shown | {"events": events_of(addresses.get(key.id), backlogs.get(key.id, Backlog()))}
            for key, shown in zip(everyone, objects, strict=True)
        )
        return
    header = ("name", "group", "role", "limits", "rules")
    times = ("created", "last used", "expires", "old secret until", "paused", "revoked")
    base.table((*header, *times), map(row, objects), "No keys")


def as_object(key: ApiKey, limits: list[usage.LimitUse], now: datetime) -> dict:
    """Return a key as an object for JSON, without its secrets."""
    old_secret_until = key.old_expires_at or now
    return {
        **base.fields(key, "name", "group", "role"),
        "limits": [
            {"limit": str(use.limit), "used": use.used, "default": use.is_default} for use in limits
        ],
        "rules": key.rules._asdict(),
        "created_at": key.created_at,
        # An hour, which can begin before the key was created
        "last_used_at": key.last_used_at and max(key.last_used_at, key.created_at),
        "expires_at": key.expires_at,
        "old_secret_expires_at": old_secret_until if now < old_secret_until else None,
        **base.fields(key, "paused_at", "revoked_at"),
    }


def events_of(address: EventAddress | None, backlog: Backlog) -> dict:
    """Return the address of a key's events and how many are waiting, for JSON."""
    return {
        "url": address and urls.masked(address.url),
        "off": address and address.off,
        **base.fields(backlog, "waiting", "given_up"),
    }


def row(key: dict) -> Iterable[Any]:
    """Return a key, given as an object, as a row for people."""
    uses = []
    for use in key["limits"]:
        told = f"{use['used']} of {use['limit']}"
        uses.append(f"({told})" if use["default"] else told)
    rules, last_use = KeyRules(**key["rules"]).differences(NO_RULES), key["last_used_at"]
    shown = {
        "limits": ", ".join(uses) or None,
        "rules": rules or None,
        "last_used_at": last_use and f"{last_use:%Y-%m-%dT%H}h",  # which is all that is known
    }
    return (key | shown).values()


one_or_all = base.options(
    click.argument("name", type=base.name, required=False),
    click.option("--all", "everyone", is_flag=True, help="Do so with every key that sends texts."),
)


def one_or_each(name: str | None, everyone: bool) -> list[ApiKey]:
    """Return the key of a name, or all that send texts and are not revoked, by name."""
    if bool(name) == everyone:
        raise click.UsageError("Give the name of a key, or --all.")
    return [ApiKey.named(name)] if name else senders()


@keys.command()
@one_or_all
@click.pass_context
def pause(ctx: click.Context, name: str | None, everyone: bool) -> None:
    """Refuse a key's requests and let its texts wait until it is resumed.

    Every process does so within a second. Waiting texts still expire. A revoked key cannot be
    paused: --all prints those whose texts wait, and then the exit status is 1.
    """
    for key in one_or_each(name, everyone):
        base.say(f"{key.name}: {'paused' if key.pause(clock.now()) else 'was already paused'}")
    revoked = queue.waiting_of_revoked() if everyone else {}
    for each, texts in revoked.items():
        told = f"revoked, but {base.count(texts, 'text')} of it will be sent"
        base.say(f"{each}: {told}: flask messages cancel --key {shlex.quote(each)}", err=True)
    ctx.exit(bool(revoked))


@keys.command()
@one_or_all
def resume(name: str | None, everyone: bool) -> None:
    """Let a paused key send again, including its waiting texts."""
    for key in one_or_each(name, everyone):
        base.say(f"{key.name}: {'resumed' if key.resume(clock.now()) else 'was not paused'}")


@keys.command()
@name_argument
@click.option("--cancel", is_flag=True, help="Also cancel its texts that wait.")
def revoke(name: str, cancel: bool) -> None:
    """Refuse a key for ever, within a second in every process; its name can be used again.

    Its waiting texts are still sent. Nobody could resume those of a paused key: it is revoked only
    with --cancel while texts wait.
    """
    key = ApiKey.named(name)
    if cancel:
        done, cancelled = decisions.revoke_and_cancel(key, base.SHELL)
        if cancelled:
            base.say(f"{name}: {base.count(cancelled, 'text')} cancelled")
    else:
        done = decisions.revoke(key, clock.now())
    base.say(f"{name}: {'revoked' if done else 'was already revoked'}")
