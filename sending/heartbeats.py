"""Which schedulers are alive: each has a row and adds to it, every few seconds."""

from peewee import IntegerField, UUIDField

from database import InstantField, Table


class Heartbeat(Table):
    """A scheduler that sends: the others watch whether its beats go on."""

    sender = UUIDField(primary_key=True)
    beats = IntegerField(default=0)
    beat_at = InstantField()
