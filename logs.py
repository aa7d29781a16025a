"""Lines of the log: text for people, or JSON for machines."""

import logging

from settings import Settings


def formatter(settings: Settings) -> logging.Formatter:
    """How a line of the log looks: text for people, or JSON for machines."""
    fields = "%(asctime)s %(levelname)s %(name)s %(request_id)s %(message)s"
    if settings.log_format == "JSON":
        from pythonjsonlogger.json import JsonFormatter

        return JsonFormatter(fields, defaults={"request_id": None})
    return logging.Formatter(fields, defaults={"request_id": "-"})


def start(settings: Settings) -> logging.Handler:
    """Write one line an event to standard error, from LOG_LEVEL upwards."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(settings))
    # No line shows these, so they need not be found out ("Optimization" in logging's docs); the
    # process is in gunicorn's first lines
    logging.logThreads = logging.logMultiprocessing = False
    logging.basicConfig(level=settings.log_level, handlers=[handler])
    logging.getLogger("peewee").setLevel(logging.WARNING)  # at DEBUG it shows numbers and texts
    return handler
