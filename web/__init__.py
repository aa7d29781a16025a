"""What HTTP needs besides the views: bodies and tokens, errors, callbacks, gunicorn's worker.

Nothing here knows what a message is, but for the callbacks of carriers.
"""
