"""Opt-outs that were believed, so as to believe them once; no tokens in the audit's addresses."""

from urllib.parse import urlsplit

from peewee import BigIntegerField, Model, TextField


def up(migrator, db):
    class OptOutMessage(Model):
        id = TextField(primary_key=True)
        at = BigIntegerField()

        class Meta:
            table_name = "opt_out_message"

    class Audit(Model):
        what = TextField()
        details = TextField(null=True)

        class Meta:
            table_name = "audit"

    db.bind([OptOutMessage, Audit])
    db.create_tables([OptOutMessage])
    told = Audit.details.contains("@") | Audit.details.contains("?")
    addresses = Audit.select(Audit.details).distinct()
    for row in list(addresses.where(Audit.what == "events address set", told)):
        same = (Audit.what == "events address set") & (Audit.details == row.details)
        Audit.update(details=masked(row.details)).where(same).execute()


def masked(address):
    """Return an address without user, password and the values of its query."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "***"
    _, login, host = parts.netloc.rpartition("@")
    pairs = (each.partition("=") for each in parts.query.split("&"))
    query = "&".join(f"{name}=***" if equals else name and "***" for name, equals, _ in pairs)
    return parts._replace(netloc=f"{login and '***@'}{host}", query=query).geturl()
