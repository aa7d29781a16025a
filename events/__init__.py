"""Webhook events: they tell the systems of keys what became of their messages.

The outbox keeps each event until its receiver has accepted it; deliveries send what is due.
"""
