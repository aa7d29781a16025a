"""Whoever refuses or cancels a message may say why."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE message ADD COLUMN note TEXT")
