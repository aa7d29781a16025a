"""The service's tables, all of them: each is defined in the room that keeps it."""

from texting.access.audit import Audit
from texting.access.do_not_call import DoNotCall, DoNotCallHistory, LastReply, OptedOut
from texting.access.keys import ApiKey
from texting.access.limits import KeyUse
from texting.access.places import KnownPlace
from texting.access.sign_ins import SignIn
from texting.access.texted_countries import KeyCountry
from texting.events.outbox import Event, EventAddress
from texting.messages.attempts import Attempt
from texting.messages.early_receipts import EarlyReceipt
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import Message
from texting.monitoring.changed_settings import SettingInForce
from texting.monitoring.clocks import WrongClock
from texting.monitoring.dead_web import PublicAddress
from texting.monitoring.notices import Notice, OutgoingNotice
from texting.replies.model import Reply
from texting.replies.opt_outs import IgnoredOptOut, OptOutMessage
from texting.sending.carrier_state import CarrierState
from texting.sending.retention import Retention

TABLES = [
    *(ApiKey, SignIn, KeyUse, KeyCountry, Audit),
    *(OptedOut, DoNotCall, DoNotCallHistory, LastReply, KnownPlace),
    *(EventAddress, Event),
    *(Heartbeat, Message, Attempt, EarlyReceipt, Reply, IgnoredOptOut, OptOutMessage),
    *(CarrierState, Retention),
    *(Notice, OutgoingNotice, PublicAddress),
    *(SettingInForce, WrongClock),
]
"""A table comes after those that it refers to."""
