"""The database: connections, errors, and inserts in batches."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial

import pytest

import database
import models
from answers import PATH, refusal
from database import Busy, db, insert_together, run_together
from do_not_call import DoNotCall
from keys import ApiKey
from models import Message
from proxy import Proxy
from running import wait_until
from samples import NEW_YORK
from stored_messages import connection_of, key_named, store


class Doubling:
    """Doubles numbers; remembers what it was given together, and refuses what is no number."""

    def __init__(self):
        self.batches = []

    def __call__(self, numbers):
        self.batches.append(numbers)
        return [number * 2 for number in map(int, numbers)]


@pytest.fixture
def double(tmp_path):
    database.connect(f"sqlite:///{tmp_path}/unused.db")
    yield Doubling()
    database.disconnect()


# Calls that insert together


def insert_each(double, *rows):
    """Insert rows by calls of their own; the outcomes, or errors, in the order of their ends."""
    ended = []

    def insert(row):
        try:
            ended.append(insert_together(double, row))
        except ValueError as error:
            ended.append(error)

    run_together(partial(insert, row) for row in rows)
    return ended


def test_what_calls_insert_is_inserted_together_and_each_gets_its_outcome(double):
    assert insert_each(double, 1, 2, 3) == [2, 4, 6]
    assert double.batches == [[1, 2, 3]]


def test_no_more_are_inserted_together_than_one_statement_takes(double):
    assert insert_each(double, *range(80)) == list(range(0, 160, 2))
    assert [len(batch) for batch in double.batches] == [32, 32, 16]


def test_an_error_reaches_the_calls_of_its_batch_and_no_others(double):
    first, *others = insert_each(double, "bad", *range(40))
    assert isinstance(first, ValueError)
    assert others[:31] == [first] * 31
    assert others[31:] == list(range(62, 80, 2))


def test_calls_may_insert_nothing_or_several_rows(double):
    ended = []

    def insert_twice():
        ended.append(insert_together(double, 1) + insert_together(double, 2))

    run_together([insert_twice, lambda: ended.append("none"), insert_twice])
    assert ended == ["none", 6, 6]
    assert double.batches == [[1, 1], [2, 2]]

    run_together([insert_twice] * 80)
    assert ended[3:] == [6] * 80
    assert max(map(len, double.batches)) == 32


def test_an_exception_of_a_call_reaches_the_caller_and_others_do_not_go_on(double):
    ended = []
    with pytest.raises(ZeroDivisionError):
        run_together([lambda: ended.append(insert_together(double, 1)), lambda: 1 / 0])
    assert (ended, double.batches) == ([], [])


def test_calls_know_nothing_of_one_another(database_url):
    """Not what is in their contexts, nor their transactions and connections."""
    key_named("app")
    db.close()
    name = ContextVar("name")

    def keep(text):
        name.set(text)
        assert ApiKey.select().count() == 1  # on a connection that it leaves open
        store_new(text)
        assert Message.select().where(Message.message == text).exists()
        assert name.get() == text

    def undo():
        with db.atomic() as transaction:
            store_new("undone")
            transaction.rollback()

    run_together([partial(keep, "one"), undo, partial(keep, "two"), undo])
    assert {message.message for message in Message.select()} == {"one", "two"}


# Plain use of peewee


def test_a_view_that_rolls_back_takes_no_other_request_with_it(app, key):
    """Written the plain way: a transaction that something else in the view undoes."""

    @app.get("/plain")
    def plain():
        with db.atomic() as transaction:
            ApiKey.update(group="undone").execute()
            transaction.rollback()
        return "undone"

    def ask(path, **request):
        """Send a request again until it is answered: a busy machine answers 503 now and then."""

        def answered():
            status = app.test_client().open(path, **request).status_code
            return status != 503 and status

        return wait_until(answered)

    def create(text):
        body = {"to": NEW_YORK, "message": text}
        return ask(PATH, method="POST", json=body, headers={"X-Api-Key": key})

    texts = [f"text {number}" for number in range(120)]
    with ThreadPoolExecutor(8) as pool:
        views = [pool.submit(ask, "/plain") for _ in range(60)]
        assert {*pool.map(create, texts)} == {201}
        assert {view.result() for view in views} == {200}
    assert sorted(message.message for message in Message.select()) == sorted(texts)
    assert ApiKey.get().group is None


def test_a_message_stored_in_a_transaction_that_is_rolled_back_is_gone_alone(database_url):
    kept = threading.Event()

    def undo():
        with db.atomic() as transaction:
            store_new("undone")
            kept.wait(60)
            transaction.rollback()
        db.close()

    def keep():
        store_new("kept")
        db.close()

    key_named("app")
    db.close()
    with ThreadPoolExecutor(2) as pool:
        undone = pool.submit(undo)
        if db.obj.for_update:  # SQLite has one writer: the other waits
            pool.submit(keep).result()
        kept.set()
        undone.result()
        if not db.obj.for_update:
            pool.submit(keep).result()
    assert [message.message for message in Message.select()] == ["kept"]


def store_new(text):
    """Store a message as the operation does."""
    now = models.clock()
    Message.store(
        id=models.new_id(now),
        key=key_named("app").id,
        to=NEW_YORK,
        message=text,
        send_at=now,
        status=models.Status.QUEUED,
        manual_mode=False,
        available_to_group=False,
        check_dnc=False,
        max_retries=3,
        created_at=now,
    )


def test_a_misspelt_column_is_refused(database_url):
    with pytest.raises(TypeError):
        Message.store(mesage="Hello")


def test_a_thread_that_ends_without_closing_gives_its_connection_back(database_url, monkeypatch):
    monkeypatch.setattr(database, "PATIENCE", 5)
    for _ in range(3 * db.obj.size):
        thread = threading.Thread(target=lambda: Message.select().count())
        thread.start()
        thread.join()
    assert Message.select().count() == 0


def test_a_thread_that_finds_all_connections_in_use_gets_busy_in_time(database_url, monkeypatch):
    monkeypatch.setattr(database, "PATIENCE", 0.2)
    db.close()
    all_taken, go_on = threading.Barrier(db.obj.size + 1), threading.Event()

    def hold():
        db.connect()
        all_taken.wait(60)
        go_on.wait(60)
        db.close()

    with ThreadPoolExecutor(db.obj.size) as pool:
        holders = [pool.submit(hold) for _ in range(db.obj.size)]
        all_taken.wait(60)
        with pytest.raises(Busy) as busy:
            db.connect()
        assert database.is_outage(busy.value)
        go_on.set()
        for holder in holders:
            holder.result()
    assert Message.select().count() == 0


# What errors mean


def broken_sql():
    db.execute_sql("SELEC 1")


def violated_rule():
    for _ in "12":
        DoNotCall.create(number=NEW_YORK, added_at=models.clock())


def unfit_value():
    Message.update(send_at=None).execute()
    store()
    Message.update(send_at=None).execute()


@pytest.mark.parametrize("bug", [broken_sql, violated_rule, unfit_value])
def test_a_bug_is_no_outage(app, bug, caplog):
    app.add_url_rule("/bug", view_func=bug)
    response = app.test_client().get("/bug")
    assert refusal(response, 500) == {}
    assert "OperationalError" in caplog.text or "Error" in caplog.text
    assert NEW_YORK not in caplog.text


def test_a_lock_that_another_holds_is_an_outage_in_any_language(database_url, monkeypatch):
    """Postgres translates its words; the code stays."""
    key_named("app")
    with contextlib.closing(connection_of(database_url)) as connection:
        if db.obj.for_update:
            db.execute_sql("SET lock_timeout = '100ms'")
            connection.execute("BEGIN")
            connection.execute("LOCK TABLE api_key IN ACCESS EXCLUSIVE MODE")
        else:
            monkeypatch.setattr(database, "PATIENCE", 0.1)
            connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(database.ERRORS) as caught:
            ApiKey.update(group="x").execute()
        connection.execute("ROLLBACK")
    assert database.is_outage(caught.value)


def test_a_server_that_goes_while_a_session_is_set_up_is_an_outage_and_no_more(stoppable_postgres):
    proxy = Proxy(stoppable_postgres.folder / ".s.PGSQL.5432")
    database.connect(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres")
    proxy.hang_up_at = b"set_config"
    for _ in range(db.obj.size + 1):
        with pytest.raises(database.ERRORS) as lost, db.atomic():
            pass
        assert database.is_outage(lost.value)
    proxy.hang_up_at = None
    assert db.execute_sql("SELECT 1").fetchone() == (1,)
    database.disconnect()
    proxy.close()
