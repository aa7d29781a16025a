"""Give queued messages to a carrier, once each, and record what becomes of them.

The room holds the sender's loop, claims, outcomes, receipts, the state of a carrier and SEND_RATE.
"""
