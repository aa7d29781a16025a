"""When messages were to be sent at first, also where a version before migration 0003 ended them."""


def up(migrator, db):
    db.execute_sql("UPDATE message SET first_send_at = send_at WHERE first_send_at IS NULL")
