"""How gunicorn serves the application on simple hosting; PORT and WEB_CONCURRENCY are its own.

Its gevent worker gives each connection a greenlet, so a silent or slow client costs memory alone.
"""

from gevent import monkey

monkey.patch_all()  # before anything else is imported: preload_app imports it in the master

# ruff: noqa: E402
import gc
import logging
import os
import resource
import shutil
import tempfile
from collections.abc import Iterable

from gunicorn.arbiter import Arbiter
from gunicorn.workers.ggevent import GeventWorker
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from texting import database, desk, recipients
from texting.carriers import Carrier
from texting.database import Refused
from texting.monitoring import changed_settings, checks, clocks, dead_scheduler
from texting.recipients import calendars
from texting.replies import meaning
from texting.settings import load_or_exit

HEALTH_LASTS = 1  # seconds; /healthz needs no key, so anybody may ask all the time

settings = load_or_exit()
loglevel = settings.log_level

# gunicorn reads these from the environment before `.env` is loaded into it
workers = settings.web_concurrency
if settings.port:
    bind = f"0.0.0.0:{settings.port}"

keepalive = 5  # seconds for the head of a request to arrive
graceful_timeout = 25  # seconds for requests under way; some hosts kill after 30
preload_app = True  # workers share the memory of what the master has loaded

# Each connection takes a file descriptor. A worker that has none left accepts no client.
_, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
worker_connections = min(4_000, most_files * 3 // 4)

worker_class, logger_class = "texting.web.worker.Worker", "texting.web.worker.Log"
control_socket_disable = True  # its path is the same for all gunicorns of a user

# The folder of all workers' metrics; prometheus_client needs it when it is imported
named_folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
if settings.metrics_token:
    folder = named_folder or tempfile.mkdtemp(prefix="metrics-")
    os.makedirs(folder, exist_ok=True)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder

# gunicorn reads a head from its first byte whenever a part of it arrives. The longest signature of
# a carrier has less than a kilobyte, the desk's cookie three at most. The worker bounds the whole.
limit_request_fields, limit_request_field_size = 40, 4_094

# No header of a client says where the application is mounted or which scheme was used.
forwarder_headers = ""
secure_scheme_headers = {}


def on_starting(server: Arbiter) -> None:
    """Load what all workers share before they fork."""
    recipients.preload()
    meaning.preload()
    desk.preload(server.app.wsgi())
    if settings.skip_holidays:
        calendars.preload()
    report(server.app.wsgi().extensions["carriers"].values())
    if not settings.secret_key:
        logging.getLogger("web").info("desk: %s", checks.DESK_OFF)
    # Without PORT, 127.0.0.1 says nothing: a proxy may be in front. `make run` sets it
    alone = settings.port and {host for host, *_ in server.cfg.address} <= {"127.0.0.1", "::1"}
    if settings.secret_key and not settings.public_url and not alone:
        logging.getLogger("web").warning(
            "PUBLIC_URL is not set: the desk's cookie is for https only, except on this machine "
            "and in local networks; set PUBLIC_URL to the address that people open"
        )
    gc.collect()
    gc.freeze()  # the collector would write to shared pages, which copies them to each worker


def report(connected: Iterable[Carrier]) -> None:
    """Log what `flask check` would say of the database, and of carriers' keys and callbacks.

    Only the tables of a draft end the process: a database may come up later, and requests get 503
    until then.
    """
    checks.end_with_draft()
    log = logging.getLogger("web")
    for name in ("database", "tables", "keys"):
        try:
            found = checks.ALL[name](settings)
        except (Refused, *database.ERRORS) as problem:
            log.error("the %s: %s", name, problem)
            break
        if found.startswith("warning: "):
            log.warning(found.removeprefix("warning: "))
    database.disconnect()  # no worker may share the connection
    for warning in checks.warnings(settings, connected):
        log.warning(warning)


def on_exit(server: Arbiter) -> None:
    """Leave no metrics of this run behind, unless somebody asked for them in a folder."""
    if settings.metrics_token and not named_folder:
        shutil.rmtree(folder, ignore_errors=True)


def post_worker_init(worker: GeventWorker) -> None:
    """Read the health once a second at most; answer 404 outside a stage's prefix.

    gunicorn itself would answer 500 there, in HTML. Start to look for dead schedulers, and
    at the clock.
    """
    worker.wsgi.extensions["health"].lasts = HEALTH_LASTS
    dead_scheduler.start(settings)
    clocks.start("web", lambda: changed_settings.note(settings, clocks.now()))
    prefix = os.environ.pop("SCRIPT_NAME", "").strip("/")
    if prefix:
        app = worker.wsgi

        def answer_404(environ, start_response):
            return app(environ | {"PATH_INFO": "/x"}, start_response)

        worker.wsgi = DispatcherMiddleware(answer_404, {f"/{prefix}": app})
