"""Lines of the log: text for people, or JSON for machines."""

import logging
import os
import sys
import threading
import time
from typing import NoReturn

import settings as environment
from settings import Settings, SettingsError

STDOUT = 1

log = logging.getLogger("settings")


def formatter(log_format: str) -> logging.Formatter:
    """Return the formatter of the log's lines, TEXT or JSON, with times in UTC."""
    fields = "%(asctime)s %(levelname)s %(name)s %(request_id)s %(message)s"
    if log_format == "JSON":
        from pythonjsonlogger.json import JsonFormatter

        made = JsonFormatter(fields, defaults={"request_id": None})
    else:
        made = logging.Formatter(fields, defaults={"request_id": "-"})
    made.converter = time.gmtime
    made.default_time_format, made.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    return made


def start(settings: Settings) -> logging.Handler:
    """Write one line an event to standard error, from LOG_LEVEL upwards."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(settings.log_format))
    # No line shows these, so they need not be found out ("Optimization" in logging's docs); the
    # process is in gunicorn's first lines
    logging.logThreads = logging.logMultiprocessing = logging.logProcesses = False
    logging._srcfile = None
    logging.basicConfig(level=settings.log_level, handlers=[handler])
    logging.getLogger("peewee").setLevel(logging.WARNING)  # at DEBUG it shows numbers and texts
    if settings.log_format == "JSON":  # what is otherwise written in several lines
        logging.captureWarnings(True)
        sys.excepthook = _log_exception
        threading.excepthook = lambda args: _log_exception(*args[:3])
    for warning in environment.misspelt():
        log.warning(warning)
    return handler


def load_settings() -> Settings:
    """Load the settings; where they cannot be used, end the process with a line per problem."""
    try:
        return environment.load()
    except SettingsError as problems:
        end(str(problems))


def end(problems: str) -> NoReturn:
    """End the process because of its settings: each line of `problems` is one of the log's."""
    if os.environ.get("LOG_FORMAT", "").upper() != "JSON":
        sys.exit(problems)
    handler = logging.StreamHandler()
    handler.setFormatter(formatter("JSON"))
    log.handlers, log.propagate = [handler], False
    for line in problems.splitlines():
        log.critical(line)
    sys.exit(1)


def discard_output() -> None:
    """Let standard output lead nowhere, or what is still to be written would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)


def _log_exception(kind, error, traceback):
    log.critical("%s", kind.__name__, exc_info=(kind, error, traceback))
