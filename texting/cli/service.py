"""`flask db`, `backup`, `carriers`, `stats`, `check` and `version`: the service as a whole."""

import os
import sys
import time
from datetime import timedelta
from typing import Any

import click
from flask import current_app

from texting import database
from texting.access import do_not_call
from texting.carriers import Carrier, CarrierError, Outgoing
from texting.cli import base
from texting.database import Refused, clock
from texting.events.outbox import Event
from texting.messages import model, receipts
from texting.messages.model import Status
from texting.monitoring import checks, clocks, health
from texting.replies import opt_outs
from texting.reports import queue

TEST_TEXT = "A test of the text message service."
TEST_LASTS = 600  # seconds
ACCEPTS, REFUSES, CANNOT_BE_ASKED = range(3)  # exit statuses of `carriers check`

say = base.say
db = base.Commands("db", help="Create or migrate the tables of the database.")
carriers = base.Commands(
    "carriers", help="Ask the carriers in CARRIER_URL whether they would accept texts."
)


@db.command()
def upgrade() -> None:
    """Create or migrate the tables; do nothing if they are up to date."""
    applied = database.upgrade()
    for line in [f"applied {name}" for name in applied] or ["the tables are up to date"]:
        base.say(line)


@base.command
@click.argument("file", type=click.Path(), metavar="FILE")
@click.option("--force", is_flag=True, help="Replace FILE if it exists, once the copy is complete.")
def backup(file: str, force: bool) -> None:
    """Copy the database to a new file, also while the service runs; only you can read the copy.

    Of Postgres, this prints the command that makes the copy, with exit status 1, as no file was
    written.
    """
    if line := database.db.dump_line(file):
        base.say(line)
        raise Refused("no file was written: run this command, which asks for the password")
    if os.path.lexists(file) and not force:
        raise Refused(f"{file} exists already; name a new file, or replace it with --force")
    database.db.connect(reuse_if_open=True)  # or its own error says why not
    hidden = not sys.stderr.isatty()
    with (
        base.replacing(file) as written,
        click.progressbar(length=100, label="copying", file=sys.stderr, hidden=hidden) as bar,
    ):
        try:
            messages = database.db.copy(
                written, lambda left, all: bar.update(100 - 100 * left // all - bar.pos)
            )
        except database.ERRORS as error:
            raise Refused(f"no file was written: {error}") from None
        size = os.path.getsize(written)
    base.say(f"wrote {file}: {size / 1e6:,.1f} MB, {base.count(messages)}")


@carriers.command("check")
@base.to_options("Send a test text to this number and print the answer.")
@click.option("--carrier", "name", help="Only this carrier.")
@click.pass_context
def check_carriers(ctx: click.Context, name: str | None, to: str | None) -> None:
    """Ask each carrier whether it accepts texts, and for its balance; or send a text (--to).

    Exit status: 0 all accept, 1 one refuses, 2 none can be checked without sending a text.
    """
    settings = current_app.config["SETTINGS"]
    if not settings.carrier_url:
        raise Refused("CARRIER_URL is not set, so texts wait")
    configs = [config for config in settings.carrier_configs if name in (None, config.name)]
    if not configs:
        raise Refused("CARRIER_URL has no carrier of this name")
    if to and len(configs) > 1:
        raise Refused("--to sends a text through one carrier: name it with --carrier")
    if to and do_not_call.is_listed(to):
        raise Refused("this number is on the Do Not Call list")
    answers = {ask(carrier, to) for carrier in checks.connected(settings, configs)}
    ctx.exit(next(status for status in (REFUSES, ACCEPTS, CANNOT_BE_ASKED) if status in answers))


def ask(carrier: Carrier, to: str | None) -> int:
    """Ask a carrier, or send it a text, print its answer, and return the exit status for it."""
    if carrier.warning:
        base.say(carrier.warning, err=True)
    try:
        if to:
            message_id = str(model.new_id(clock.now()))
            with carrier.session():
                test = Outgoing(to, TEST_TEXT, message_id, message_id, TEST_LASTS)
                said = carrier.send(test)
            base.say(f"{carrier.name} accepted the text" + (f": {said}" if said else ""))
        else:
            balance = carrier.balance()
            left = f", balance {balance}" if balance else ""
            base.say(f"{carrier.name} accepts texts{left}")
    except CarrierError as error:
        base.say(f"Error: {carrier.name}: {error}", err=True)
        return REFUSES
    except NotImplementedError:
        base.say(f"{carrier.name} cannot be asked without sending a text; --to sends one", err=True)
        return CANNOT_BE_ASKED
    finally:
        carrier.close()
    return ACCEPTS


@base.command
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.option(
    "--all", "everything", is_flag=True, help="Also count all messages that ever ended (slow)."
)
@click.pass_context
def stats(ctx: click.Context, as_json: bool, everything: bool) -> None:
    """Show how many messages are waiting, how many ended recently, and what is wrong.

    The exit status is 1 if a PROBLEM is shown.
    """
    now, settings = clocks.now(), current_app.config["SETTINGS"]
    hour_ago, day_ago = now - health.HOUR, now - timedelta(days=1)
    state = health.read(now, settings)
    began = time.perf_counter()
    told: dict[str, Any] = {"messages": queue.by_status() if everything else queue.waiting()}
    if everything:
        told["counted_in_seconds"] = round(time.perf_counter() - began, 1)
    told |= {
        "last_hour": queue.ended_since(hour_ago),
        "last_day": queue.ended_since(day_ago),
        "awaiting_approval": queue.awaiting_approval(),
        "events": {name: backlog._asdict() for name, backlog in Event.by_name().items()},
        "receipts_unmatched": receipts.unmatched(day_ago, now),
        "opt_outs_ignored": opt_outs.ignored_opt_outs(day_ago),
        **state_as_object(state),
    }
    if as_json:
        base.print_json(told)
        return
    show_counts(told)
    show_state(state, told)
    for each in state.arrivals:
        if each.taken or each.ended:
            say(f"{each.carrier}, {each.of_taken}")
            say(f"{each.carrier}, {each.of_ended}")
    for key, backlog in told["events"].items():
        waiting, given_up, oldest = backlog.values()
        since = f" since {base.shown(oldest)}" if oldest else ""
        say(f"events of {key}: {waiting} waiting{since}, {given_up} given up")
    for problem in told["problems"]:
        say(f"PROBLEM: {problem}")
    ctx.exit(1 if told["problems"] else 0)


def state_as_object(state: health.Health) -> dict[str, object]:
    """Return the state of the service as a JSON object."""
    told = state._asdict()
    for name in (
        "now",
        "stalled_after",
        "expected_since",
        "under_way",
        "answered_at",
        "stuck",
        "wrong_clocks",
    ):
        del told[name]
    told["problems"] = [each.sentence for each in state.problems()]
    for name in ("carriers", "arrivals"):
        told[name] = [each._asdict() for each in told[name]]
    return told


def show_counts(told: dict[str, Any]) -> None:
    """Print a table of messages by status, with bars."""
    totals, hour, day = told["messages"], told["last_hour"], told["last_day"]
    most = max(totals.values()) or 1
    rows = []
    for status in Status:
        bar = "█" * -(-totals.get(status, 0) * 20 // most)
        rows.append((status, totals.get(status), bar, hour.get(status, ""), day.get(status, "")))
    base.table(("status", "messages", "", "last hour", "last day"), rows)
    if "counted_in_seconds" in told:
        say(f"counted in {told['counted_in_seconds']} s")
    say()


def show_state(state: health.Health, told: dict[str, Any]) -> None:
    """Print the state of sending, and how many receipts and replies matched nothing."""
    now, due = state.now, state.oldest_due
    say(f"awaiting approval: {told['awaiting_approval']}")
    say(f"retrying: {state.retrying}")
    say(f"last text sent: {_ago(state.last_sent_at, now)}")
    say(f"last scheduler run: {_ago(state.last_pass_at, now)}")
    say(f"unmatched receipts in the last day: {told['receipts_unmatched']}")
    say(f"ignored STOP and START replies in the last day: {told['opt_outs_ignored']}")
    waited = f"waiting since {base.shown(due)} ({health.span(now - due)})" if due else "none"
    say(f"oldest due message: {waited}")


@base.command
@click.pass_context
def check(ctx: click.Context) -> None:
    """Check settings, database, clock, time zones, disk, keys, receivers, carrier and addresses.

    The exit status is 1 if there is a problem. No text is sent.
    """
    base.say("settings: valid")  # otherwise, this process would have ended
    failed = set()
    for name, look in checks.ALL.items():
        if name in checks.NEED_TABLES and failed & {"database", "tables"}:
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


@base.command
def version() -> None:
    """Print the version of this service.

    `flask --version` prints the versions of Flask and Python.
    """
    base.say(current_app.config["VERSION"])


def _ago(instant, now):
    return f"{base.shown(instant)} ({health.span(now - instant)} ago)" if instant else "never"
