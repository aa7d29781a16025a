"""What became of messages, told to the systems that asked for them.

The outbox keeps each event until its receiver has understood it; deliveries send what is due.
"""
