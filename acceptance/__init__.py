"""Store new messages, subject to limits and idempotency.

`store` keeps the message of one request for good, or raises why it may not; `stored_before` finds
what a request with the same idempotency key has stored.
"""

from acceptance.decisions import AlreadyAnswered, NewMessage, Request
from acceptance.storage import store, stored_before
