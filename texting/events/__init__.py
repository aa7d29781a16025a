"""Webhook events, which tell the keys' systems what became of their messages.

The outbox keeps each event until its receiver has accepted it; delivery sends what is due.
"""
