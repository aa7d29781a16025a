"""What a limit in parts has refused, because the rest was too small."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE key_use ADD COLUMN refused_parts INTEGER")
