"""Commands as processes of their own, several at once, beside a busy service."""

import contextlib

from databases import on_both, on_postgres
from running import ROOT, answers, begin_web, free_port, wait_until
from samples import DAY, TUESDAY_NOON
from stored_messages import connection_of, look, store_many
from texting import database
from texting.access.do_not_call import DoNotCall
from texting.messages.model import Message, Status


@on_both
def test_several_purges_at_once_beside_a_scheduler_delete_each_message_once(database_url, start):
    store_many(1500, status=Status.SENT, finished_at=TUESDAY_NOON)
    store_many(200, status=Status.SCHEDULED, send_at=TUESDAY_NOON + 365_000 * DAY)
    purge = ("flask", "messages", "purge", "--older-than", "30", "--yes")
    purges = [start(*purge, DATABASE_URL=database_url) for _ in range(2)]
    assert start("scheduler.py", DATABASE_URL=database_url).wait() == 0
    assert [each.wait() for each in purges] == [0, 0], [each.output for each in purges]
    assert sum(int(each.output.split()[-2]) for each in purges) == 1500
    assert Message.select().count() == 200


@on_postgres
def test_two_processes_that_add_the_same_numbers_wait_for_one_another(
    database_url, start, tmp_path
):
    numbers = [f"+1212555{n:04}" for n in range(100, 200)]
    (tmp_path / "numbers").write_text("\n".join(reversed(numbers)))
    insert = "INSERT INTO do_not_call VALUES (%s, 0, 'import')"
    with contextlib.closing(connection_of(database_url)) as other, other.transaction():
        other.execute(insert, [numbers[0]])
        words = ("dnc", "import", tmp_path / "numbers")
        importing = start("flask", *words, DATABASE_URL=database_url)
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
        wait_until(lambda: look(database_url, waiting))
        other.execute(insert, [numbers[-1]])
    assert importing.wait() == 0
    assert "98 added, 2 already listed" in importing.output
    assert {row.number for row in DoNotCall.select()} == set(numbers)


@on_both
def test_two_upgrades_at_once_end_well(empty_database_url, start):
    upgrades = [start("flask", "db", "upgrade", DATABASE_URL=empty_database_url) for _ in range(2)]
    assert [upgrade.wait() for upgrade in upgrades] == [0, 0]
    outputs = sorted(upgrade.output.splitlines() for upgrade in upgrades)
    assert outputs == [
        [f"applied {path.stem}" for path in sorted(ROOT.glob("migrations/[0-9]*.py"))],
        ["the tables are up to date"],
    ]


@on_both
def test_no_process_starts_on_the_tables_of_a_draft(empty_database_url, start):
    database.connect(empty_database_url)
    database.upgrade()
    database.db.execute_sql(
        "UPDATE schema_migration SET name = '0001_initial' WHERE name = '0001_tables'"
    )
    database.disconnect()
    processes = [
        start("scheduler.py", DATABASE_URL=empty_database_url),
        start("flask", "db", "upgrade", DATABASE_URL=empty_database_url),
        begin_web(start, empty_database_url, free_port()),
    ]
    for each in processes:
        assert each.wait() != 0
        assert each.output.count("this database was made by a draft of before 1.0.0") == 1


def test_before_the_first_upgrade_every_process_says_what_to_run_and_makes_nothing(start, tmp_path):
    file = tmp_path / "none.db"
    url, told = f"sqlite:///{file}", f"there is no database at {file}; flask db upgrade makes it"
    web = begin_web(start, url, free_port())
    single = start("scheduler.py", DATABASE_URL=url)
    assert single.wait() == 1
    assert told in single.output
    wait_until(lambda: told in web.output and answers(f"{web.url}/openapi.json"))
    assert not answers(f"{web.url}/healthz")
    assert not file.exists()
    upgrades = [start("flask", "db", "upgrade", DATABASE_URL=url) for _ in range(2)]
    assert [upgrade.wait() for upgrade in upgrades] == [0, 0]
    wait_until(lambda: answers(f"{web.url}/healthz"))
