"""Query plans: how the database would run a statement."""

import re

from texting.database import db


def reads_whole(action):
    """The plans of an action's statements that read the whole of a large table."""
    found = plans(action)
    assert found
    return [lines for lines in found if any(_is_whole(line, lines) for line in lines)]


def plans(action, of_keys=False):
    """The plans of the statements that an action sends, on demand also of the small key table."""
    asked = _asked_by(action)
    choices = [sql for sql, _ in asked if sql.startswith("SET LOCAL enable_")]
    return [
        _plan(sql, parameters, choices)
        for sql, parameters in asked
        if sql not in choices
        if of_keys or 'FROM "api_key"' not in sql or '"message"' in sql
    ]


def steps(action):
    """How much SQLite does for an action, in tens of its virtual machine's steps.

    Whatever of an index a plan names, it counts how many rows are looked at.
    """
    taken, connection = 0, db.connection()

    def step():
        nonlocal taken
        taken += 1

    connection.set_progress_handler(step, 10)
    action()
    connection.set_progress_handler(None, 10)
    return taken


def _asked_by(action):
    """The statements that an action sends, with their parameters."""
    asked = []
    db.query_hooks.append(lambda event: asked.append((event.sql, event.params)))
    try:
        action()
    finally:
        db.query_hooks.clear()
    verbs = ("SELECT", "UPDATE", "DELETE", "WITH", "SET LOCAL enable_")
    return [(sql, parameters) for sql, parameters in asked if sql.lstrip().startswith(verbs)]


def _plan(sql, parameters, choices):
    """The lines of a plan; on Postgres, with sequential scans only where no index can serve.

    `choices` are those that the action has made for its plans.
    """
    if db.for_update:
        with db.atomic():
            for choice in ("SET LOCAL enable_seqscan = off", *choices):
                db.execute_sql(choice)
            return [line for (line,) in db.execute_sql(f"EXPLAIN {sql}", parameters).fetchall()]
    explained = db.execute_sql(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()
    return [line for *_, line in explained]


def _is_whole(line, lines):
    # No tables, but constants and subqueries, and the small table of keys
    ours = "CONSTANT|[0-9]|_wrapped|few|named|span|taken|api_key|json_each"
    ours += "|lanes|lowest|walk|placed|pair|copies|.subquery"  # of a claim
    scan = re.match(f"SCAN (?!{ours})(?!.*(?:INDEX|SUBQUERY))(.*)", line)
    of_rows = scan and f"CO-ROUTINE {scan[1]}" not in lines
    return of_rows or re.search("Seq Scan on (message|reply)", line)
