"""Indexes of all that an approver's page of replies looks at."""

STATEMENTS = """
CREATE INDEX reply_group_waiting ON reply (key, may_be_no, at, id, number, due_at)
    WHERE available_to_group AND read_at IS NULL AND NOT opted_out;
CREATE INDEX reply_group_done ON reply (key, at, id, number, due_at)
    WHERE available_to_group AND (read_at IS NOT NULL OR opted_out);
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        if statement.strip():
            db.execute_sql(statement)
