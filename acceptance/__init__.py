"""Store new messages, subject to limits and idempotency.

`store` keeps one message for good, or raises why it may not.
"""

from acceptance.decisions import AlreadyAnswered, NewMessage
from acceptance.storage import store
