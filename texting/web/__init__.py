"""What HTTP needs besides the views: JSON, bodies and tokens, errors, callbacks, gunicorn's worker.

Nothing here knows what a message is, except the callbacks of carriers.
"""
