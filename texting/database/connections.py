"""The one database of this process, and its connections.

Any thread may use `db` and the models as peewee documents it. The first query of a thread takes a
connection from a small pool, and `db.close()` gives it back: at the end of a web request, of a
command, of a scheduler's pass.
"""

from peewee import DatabaseProxy

from texting.database.postgres import open_postgres
from texting.database.sqlite import open_sqlite

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


def disconnect() -> None:
    """Close this thread's connection and the idle ones; the next query opens another."""
    if db.obj is not None:
        db.close()
        db.close_idle()
