"""How gunicorn serves the application on simple hosting; PORT and WEB_CONCURRENCY are its own."""

import gc
import logging
import os
import re
import shutil

from gunicorn.arbiter import Arbiter
from gunicorn.config import Config
from gunicorn.glogging import Logger
from gunicorn.workers.base import Worker
from werkzeug.middleware.dispatcher import DispatcherMiddleware

import desk
import logs
import recipients
import settings as environment
import webworker
from recipients import calendars

settings = environment.load_or_exit()
METRICS_FOLDER = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
loglevel = settings.log_level

# gunicorn reads these from the environment, but before it was filled in from `.env`
port, workers = os.environ.get("PORT"), os.environ.get("WEB_CONCURRENCY") or "1"
wrong = [
    f"{name}: must be a whole number from 1 to {most}"
    for name, value, most in (("PORT", port or "1", 65_535), ("WEB_CONCURRENCY", workers, 1_000))
    if not (re.fullmatch("[0-9]{1,5}", value) and 1 <= int(value) <= most)
]
if wrong:
    environment.exit_with("\n".join(wrong))
if port:
    bind = f"0.0.0.0:{port}"

# Its threads are for what is read, and for others while the database keeps the first waiting
worker_class = webworker.Worker
threads = 64
preload_app = True  # what all workers need is loaded once, and shared
control_socket_disable = True  # its path is the same for all gunicorns of a user

# No header of a client says where the application is mounted or which scheme was used.
forwarder_headers = ""
secure_scheme_headers = {}


class NoRequestText(logging.Filter):
    """Keep what a client sent out of the log: a malformed header may hold a key."""

    TELLING = ("Invalid request from", "Ignored premature client disconnection")

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str) and record.msg.startswith(self.TELLING):
            record.msg, record.args = record.msg.partition(": ")[0].removesuffix(". %s"), ()
        return True


class logger_class(Logger):  # gunicorn's name for this setting
    """Write gunicorn's lines like all others."""

    def setup(self, cfg: Config) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.addFilter(NoRequestText())
            handler.setFormatter(logs.formatter(settings.log_format))


def on_starting(server: Arbiter) -> None:
    """Load once what all workers share."""
    recipients.preload()
    desk.preload(server.app.wsgi())
    if settings.metrics_token:
        from monitoring import metrics  # noqa: F401 its folder is one for all workers
    if settings.skip_holidays:
        calendars.preload()
    gc.collect()
    gc.freeze()  # the collector would write to the shared pages, and so copy them to each worker


def on_exit(server: Arbiter) -> None:
    """Leave no metrics of this run behind, unless somebody asked for them in a folder."""
    if settings.metrics_token and not METRICS_FOLDER:
        shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)


def post_worker_init(worker: Worker) -> None:
    """Answer 404 outside a stage's prefix, where gunicorn itself would answer 500 in HTML."""
    prefix = os.environ.pop("SCRIPT_NAME", "").strip("/")
    if prefix:
        app = worker.wsgi
        outside = lambda environ, start: app(environ | {"PATH_INFO": "/x"}, start)  # noqa: E731
        worker.wsgi = DispatcherMiddleware(outside, {f"/{prefix}": app})
