"""What went first after a pause, what ends a trouble, which texts were refused as the account."""


def up(migrator, db):
    # Not by add_column, which would rebuild SQLite's tables
    uuid = "UUID" if db.param == "%s" else "TEXT"
    for column in (
        f"probed {uuid}",
        "taken_at BIGINT",
        "by_texts BOOLEAN NOT NULL DEFAULT false",
        "serves BOOLEAN NOT NULL DEFAULT false",
    ):
        db.execute_sql(f"ALTER TABLE carrier_state ADD COLUMN {column}")
    db.execute_sql("ALTER TABLE message ADD COLUMN refused_at BIGINT")
