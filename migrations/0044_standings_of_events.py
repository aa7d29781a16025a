"""How many events of each key wait or were given up, and since when: read from indexes alone."""


def up(migrator, db):
    for name, columns, column in (
        ("event_due", "key_id, next_try_at, at", "next_try_at"),
        ("event_given_up", "given_up_at, key_id", "given_up_at"),
    ):
        db.execute_sql(f"DROP INDEX {name}")
        db.execute_sql(f"CREATE INDEX {name} ON event ({columns}) WHERE {column} IS NOT NULL")
