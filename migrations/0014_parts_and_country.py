"""The parts and the country of a message, by which use is counted.

Null in older rows, and where the version before stores one: `flask usage` fills them in.
"""


def up(migrator, db):
    # Not by add_column, which would rebuild SQLite's table
    db.execute_sql("ALTER TABLE message ADD COLUMN parts INTEGER")
    db.execute_sql("ALTER TABLE message ADD COLUMN country TEXT")
