"""A key's own limit of each recipient."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE api_key ADD COLUMN recipient_limit TEXT")
