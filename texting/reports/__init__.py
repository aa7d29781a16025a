"""What people and monitoring ask about messages: the health of the queue, listings, usage.

Nothing here changes a message.
"""
