"""Give queued messages to a carrier, once each, and record what becomes of them.

The room holds the sender's loop, claims, outcomes, the state of a carrier and SEND_RATE.
"""

from sending.carrier_state import CarrierState
from sending.runtime import THIS_MACHINE, TICK, Runtime, Stop, in_own_thread
from sending.sender import TESTERS, Sender

__all__ = [
    "TESTERS",
    "THIS_MACHINE",
    "TICK",
    "CarrierState",
    "Runtime",
    "Sender",
    "Stop",
    "in_own_thread",
]
