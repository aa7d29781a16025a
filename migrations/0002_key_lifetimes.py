"""Keys expire, say when they were used last, and can be rotated."""

from peewee import BigIntegerField, TextField


def up(migrator, db):
    migrator.migrate(
        migrator.add_column("api_key", "expires_at", BigIntegerField(null=True)),
        migrator.add_column("api_key", "last_used_at", BigIntegerField(null=True)),
        migrator.add_column("api_key", "old_digest", TextField(null=True, index=True)),
        migrator.add_column("api_key", "old_expires_at", BigIntegerField(null=True)),
    )
