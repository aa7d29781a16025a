"""The one database of this process, and its connections.

Any thread may use `db` and the models as peewee documents it. The first query of a thread takes a
connection from a small pool, and `db.close()` gives it back: at the end of a web request, of a
command, of a scheduler's pass.
"""

from peewee import DatabaseProxy, OperationalError

from database.errors import Refused
from database.postgres import Postgres, open_postgres
from database.sqlite import open_sqlite

db = DatabaseProxy()


def connect(url: str) -> None:
    """Point every model at the database of a `sqlite:///` or `postgresql://` URL; open nothing.

    Connections are kept: closing SQLite's last one checkpoints the WAL, which halves the
    throughput, and a new one to Postgres costs a round trip and a process there. The pool of the
    same URL stays.
    """
    if db.obj is not None and db.obj.url == url:
        db.close()
        return
    disconnect()
    if url.startswith("sqlite:"):
        db.initialize(open_sqlite(url.removeprefix("sqlite:///")))
    else:
        db.initialize(open_postgres("postgresql:" + url.partition(":")[2]))
    db.obj.url = url


def on_postgres() -> bool:
    """Say whether the database is a Postgres."""
    return isinstance(db.obj, Postgres)


def disconnect() -> None:
    """Close this thread's connection and the idle ones; the next query opens another."""
    if db.obj is not None:
        db.close()
        db.close_idle()


def bytes_left() -> int | None:
    """Return how many bytes are left for SQLite's file if they are too few, otherwise None."""
    return db.bytes_left()


def scrub() -> None:
    """Rewrite SQLite's files without any trace of redacted values; writers wait meanwhile.

    Raise Refused if traces may be left. `secure_delete` overwrites deleted values, but neither the
    copies that pages keep when they are split nor those in the log.
    """
    try:
        is_clean = db.scrub()
        why = "other connections are using the log"
    except OperationalError as error:
        is_clean, why = False, str(error)
    if not is_clean:
        raise Refused(
            f"erased from the tables, but SQLite's files may still hold copies: {why}. "
            "Run the command again"
        )
