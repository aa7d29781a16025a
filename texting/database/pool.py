"""How many connections a process keeps, and how long a thread waits for one."""

PATIENCE = 5  # seconds that a thread waits for a connection, or for another's lock
POOL = {"max_connections": 4, "timeout": PATIENCE}  # a PaaS' smallest Postgres allows 20 in all
