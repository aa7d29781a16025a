"""The service's tables, all of them: each is defined in the room that keeps it."""

from access.audit import Audit
from access.do_not_call import DoNotCall, DoNotCallHistory, LastReply, OptedOut
from access.keys import ApiKey
from access.limits import KeyUse
from access.sign_ins import SignIn
from access.texted_countries import KeyCountry
from events.outbox import Event, EventAddress
from messages.attempts import Attempt
from messages.early_receipts import EarlyReceipt
from messages.model import Message
from monitoring.dead_web import PublicAddress
from monitoring.notices import Notice
from replies.model import Reply
from replies.opt_outs import IgnoredOptOut, OptOutMessage
from sending.carrier_state import CarrierState
from sending.heartbeats import Heartbeat
from sending.retention import Retention

TABLES = [
    *(ApiKey, SignIn, KeyUse, KeyCountry, Audit),
    *(OptedOut, DoNotCall, DoNotCallHistory, LastReply),
    *(EventAddress, Event),
    *(Message, Attempt, EarlyReceipt, Reply, IgnoredOptOut, OptOutMessage),
    *(CarrierState, Heartbeat, Retention),
    *(Notice, PublicAddress),
]
"""A table comes after those that it refers to."""
