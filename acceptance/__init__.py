"""A new message's way into the table: decided by limits and repeats, stored with others.

`store` keeps one message for good, or raises why it may not.
"""

from acceptance.decisions import AlreadyAnswered, KeyChanged, NewMessage
from acceptance.storage import store
