"""Lines of the log: text for people, or JSON for machines."""

import logging
import sys
import threading
import time

log = logging.getLogger("process")


def printable(text: str) -> str:
    """Return a text with characters that control a terminal, or begin a line, escaped."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


class Lines(logging.Formatter):
    """One line per event, whatever text from outside it holds; a traceback has lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


def formatter(log_format: str) -> logging.Formatter:
    """Return the formatter for TEXT or JSON lines, with times in UTC.

    In JSON, what a call passes as `extra` becomes fields: `message_id`, and `key` for its name.
    """
    fields = "%(asctime)s %(levelname)s %(name)s %(request_id)s %(message)s"
    if log_format == "JSON":
        from pythonjsonlogger.json import JsonFormatter

        names = {"asctime": "time", "levelname": "level"}
        made = JsonFormatter(fields, rename_fields=names, defaults={"request_id": None})
    else:
        made = Lines(fields, defaults={"request_id": "-"})
    made.converter = time.gmtime
    made.default_time_format, made.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    return made


def start(level: str, log_format: str) -> logging.Handler:
    """Log to standard error, one line per event; return the handler."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(log_format))
    # No line shows these, so do not collect them ("Optimization" in the docs of logging).
    # gunicorn's first lines name its processes.
    logging.logThreads = logging.logMultiprocessing = logging.logProcesses = False
    logging._srcfile = None
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("peewee").setLevel(logging.WARNING)  # at DEBUG it shows numbers and texts
    if log_format == "JSON":  # Python would write these on several lines
        logging.captureWarnings(True)
        sys.excepthook = _log_exception
        threading.excepthook = lambda args: _log_exception(*args[:3])
    return handler


def _log_exception(kind, error, traceback):
    log.critical("%s", kind.__name__, exc_info=(kind, error, traceback))
