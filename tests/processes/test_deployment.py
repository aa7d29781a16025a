"""The service as hosts run it: their files, a proxy, and what every process checks at its start."""

import contextlib
import json
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from fnmatch import fnmatch
from types import SimpleNamespace

import psycopg
import pytest
import yaml

from answers import PATH
from carrier_servers import self_signed
from databases import on_postgres
from running import ALWAYS, ROOT, SECRET_KEY, TOOLS, answers, free_port, send, wait_until
from samples import VALID
from texting import database
from texting.access import keys
from texting.database import clock

STOPPED_WITHIN = 30  # seconds that a host gives: Heroku no more
PROCFILE = dict(line.split(": ", 1) for line in (ROOT / "Procfile").read_text().splitlines())
WEB = ("gunicorn", "-c", ROOT / "gunicorn.conf.py", "app:create_app()")


def test_the_procfile_names_the_three_processes():
    assert PROCFILE == {
        "release": "flask db upgrade",
        "web": "gunicorn 'app:create_app()'",
        "scheduler": "python scheduler.py --every 5",
    }


# A proxy

NGINX = "daemon off; error_log stderr; pid nginx.pid; events {{}}\nhttp {{ access_log off; {} }}"


def test_nginx_as_printed_passes_requests_on(shared_web, start, tmp_path):
    nginx = shutil.which("nginx") or pytest.skip("there is no nginx")
    page = (ROOT / "docs" / "deploying.md").read_text()
    (server,) = re.findall(r"^```nginx\n(.*?)^```$", page, re.M | re.S)
    (web, key), port, (_, certificate) = shared_web, free_port(), self_signed(tmp_path)
    for printed, here in {
        "listen 443": f"listen 127.0.0.1:{port}",
        "/etc/letsencrypt/live/texts.example.com/fullchain.pem": f"{certificate}",
        "/etc/letsencrypt/live/texts.example.com/privkey.pem": f"{tmp_path}/key.pem",
        "127.0.0.1:8000": f"127.0.0.1:{web.port}",
    }.items():
        assert printed in server
        server = server.replace(printed, here)
    (tmp_path / "nginx.conf").write_text(NGINX.format(server))
    proxy = start(nginx, "-p", tmp_path, "-c", tmp_path / "nginx.conf")
    headers = {"X-Api-Key": key, "Content-Type": "application/json"}
    url, body = f"https://localhost:{port}{PATH}", json.dumps(VALID).encode()
    request = urllib.request.Request(url, body, headers)
    context = ssl.create_default_context(cafile=certificate)

    def status():
        assert proxy.popen.poll() is None, proxy.output
        with contextlib.suppress(ConnectionError, urllib.error.URLError):
            return urllib.request.urlopen(request, context=context).status

    wait_until(lambda: status() == 201)


# Files for other hosts: read here, and tried nowhere


def dockerfile():
    """Return the instructions of the Dockerfile, as pairs of word and rest."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    return [line.split(" ", 1) for line in lines if line]


def test_the_image_serves_the_web_as_somebody_who_is_not_root():
    words = dict(dockerfile())
    assert json.loads(words["CMD"]) == shlex.split(PROCFILE["web"])
    assert words["USER"] not in ("root", "0")
    order = [word for word, _ in dockerfile()]
    assert order.index("USER") > max(at for at, word in enumerate(order) if word in ("RUN", "COPY"))


def test_the_image_is_healthy_while_the_web_answers(serve, database_url):
    web = serve(database_url, SCRIPT_NAME="/staging")
    (command,) = (json.loads(rest[4:]) for word, rest in dockerfile() if word == "HEALTHCHECK")
    environ = os.environ | {"PORT": str(web.port), "SCRIPT_NAME": "/staging"}
    assert command.pop(0) == "python"
    check = [sys.executable, *command]
    assert subprocess.run(check, env=environ, check=False).returncode == 0
    web.kill()
    assert subprocess.run(check, env=environ, check=False, stderr=subprocess.DEVNULL).returncode


def test_no_secret_and_no_data_get_into_the_image():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    anywhere = [line.removeprefix("**/") for line in ignored if line.startswith("**/")]
    secret = (".env", ".env.production", ".first-key", "messages.db", "messages.db-wal")
    for name in (*secret, "numbers.csv", "server.key", "server.pem", "backup.dump"):
        assert any(fnmatch(name, pattern) for pattern in anywhere), name
    assert [line for line in ignored if line.startswith("!")] == ["!.dockerignore"]


def compose():
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


def test_compose_runs_the_procfile_on_a_postgres():
    services = compose()["services"]
    database = services.pop("database")
    commands = {name: service["command"] for name, service in services.items()}
    commands["release"] = commands.pop("upgrade")
    assert commands == PROCFILE
    password = database["environment"]["POSTGRES_PASSWORD"]
    for service in services.values():
        url = f"postgresql://messages:{password}@database/messages"
        assert service["environment"]["DATABASE_URL"] == url
    assert services["scheduler"]["stop_grace_period"] == f"{STOPPED_WITHIN}s"


def of_compose(server):
    """Make the role and the database as the container of compose.yaml does at its first start."""
    described = compose()
    (mounted,) = described["services"]["database"]["configs"]
    assert mounted["target"].startswith("/docker-entrypoint-initdb.d/")
    assert mounted["target"].endswith(".sql")
    psql = shutil.which("psql") or pytest.skip("there is no psql")
    subprocess.run(
        [psql, "-v", "ON_ERROR_STOP=1", "--no-psqlrc", server.url],
        input=described["configs"][mounted["source"]]["content"],
        env=os.environ | {"POSTGRES_PASSWORD": "s3cret"},
        text=True,
        check=True,
    )


def as_printed(server):
    """Make them by the lines of docs/deploying.md."""
    page = (ROOT / "docs/deploying.md").read_text()
    for line in re.search(r"^```sql\n(CREATE ROLE .*?)^```$", page, re.M | re.S)[1].splitlines():
        server.run(line)


@pytest.mark.parametrize("make", [of_compose, as_printed])
def test_the_service_runs_with_a_role_that_owns_its_database_and_has_no_other_right(
    make, stoppable_postgres, start, serve
):
    server = stoppable_postgres
    make(server)
    url = server.url.replace("postgres@/postgres", "messages:s3cret@/messages")
    assert start("flask", "db", "upgrade", DATABASE_URL=url).wait() == 0
    web = serve(url, **ALWAYS)
    database.connect(url)
    secret = keys.ApiKey.issue("app", None, clock.now())
    database.disconnect()
    assert send(web, secret, VALID)[0] == 201
    one = start("scheduler.py", DATABASE_URL=url, CARRIER_URL="console:", **ALWAYS)
    assert one.wait() == 0
    assert VALID["message"] in one.output
    rights = "rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls"
    with psycopg.connect(url) as connection:
        query = f"SELECT {rights} FROM pg_roles WHERE rolname = current_user"
        assert not any(connection.execute(query).fetchone())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("COPY (SELECT 1) TO PROGRAM 'true'")


def test_nobody_knows_a_password_of_composes_superuser(stoppable_postgres):
    of_compose(stoppable_postgres)
    known = "SELECT string_agg(rolname, ' ') FROM pg_authid WHERE rolpassword IS NOT NULL"
    assert stoppable_postgres.run(known) == "messages"


def test_fly_runs_the_procfile_and_gives_sends_under_way_their_time():
    fly = tomllib.loads((ROOT / "fly.toml").read_text())
    assert fly["processes"] | {"release": fly["deploy"]["release_command"]} == PROCFILE
    assert (fly["kill_signal"], fly["kill_timeout"]) == ("SIGTERM", STOPPED_WITHIN)
    assert fly["http_service"]["internal_port"] == int(fly["env"]["PORT"])
    assert fly["http_service"]["checks"][0]["path"] == "/healthz"


def test_render_runs_the_procfile_and_does_not_pretend_that_it_sends():
    web, scheduler = yaml.safe_load((ROOT / "render.yaml").read_text())["services"]
    assert web["preDeployCommand"] == PROCFILE["release"]
    assert web["startCommand"] == PROCFILE["web"]
    assert scheduler["startCommand"] == PROCFILE["scheduler"]
    assert scheduler["maxShutdownDelaySeconds"] == STOPPED_WITHIN
    asked, same = (each["envVars"][-1] for each in (web, scheduler))
    assert asked == {"key": "CARRIER_URL", "sync": False}
    web_service = {"type": web["type"], "name": web["name"]}
    assert same["fromService"] == web_service | {"envVarKey": "CARRIER_URL"}


def test_app_json_runs_the_procfile_and_does_not_pretend_that_it_sends():
    app = json.loads((ROOT / "app.json").read_text())
    assert {*app["formation"]} == {*PROCFILE} - {"release"}
    assert app["env"]["CARRIER_URL"].keys() == {"description"}  # required, as without a value


def test_systemd_gives_sends_under_way_their_time():
    unit = (ROOT / "systemd/text-messages-scheduler.service").read_text()
    assert re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.M) == [str(STOPPED_WITHIN)]


def test_a_stopped_scheduler_ends_well_before_hosts_kill_it(settings):
    assert settings.shutdown_timeout + 5 <= STOPPED_WITHIN


@on_postgres  # on SQLite, test_run.py runs its processes
def test_a_paas_can_run_the_procfile(empty_database_url, start, tmp_path):
    deployed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    for name in filter(None, deployed):
        (tmp_path / "cwd" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "cwd" / name)
    port = free_port()
    environ = {
        "DATABASE_URL": empty_database_url.replace("postgresql://", "postgres://"),
        "PORT": str(port),
        "WEB_CONCURRENCY": "2",
        "DYNO": "web.1",
        "CARRIER_URL": "console:",
        "PATH": f"{TOOLS}:{os.environ['PATH']}",
        "PYTHONPATH": "",
        "FLASK_APP": "",
    } | ALWAYS
    for _ in range(2):  # a release phase may run twice
        release = start("honcho", "run", *shlex.split(PROCFILE["release"]), **environ)
        assert release.wait() == 0, release.output
    service = start("honcho", "start", "-p", str(port), "web", "scheduler", **environ)
    base = f"http://127.0.0.1:{port}"
    wait_until(lambda: answers(f"{base}/healthz") or service.popen.poll() is not None)
    assert service.popen.poll() is None, service.output
    database.connect(empty_database_url)
    secret = keys.ApiKey.issue("paas", None, clock.now())
    database.disconnect()
    body = VALID | {"message": "Hello from a PaaS"}
    status, answer = send(SimpleNamespace(port=port), secret, body)
    assert (status, answer["status"]) == (201, "queued")
    wait_until(lambda: "'Hello from a PaaS'" in service.output)
    assert service.terminate() in (0, 143, -15)


def test_port_and_workers_may_stand_in_a_file_named_env(start, database_url, tmp_path):
    port = free_port()
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / ".env").write_text(f"PORT={port}\nWEB_CONCURRENCY=2\n")
    web = start(*WEB, DATABASE_URL=database_url)
    wait_until(lambda: answers(f"http://127.0.0.1:{port}/healthz") or web.popen.poll() is not None)
    wait_until(lambda: web.output.count("Booting worker") == 2)
    assert web.terminate() == 0


# What every process checks at its start


def test_a_bad_address_of_people_stops_the_scheduler_in_one_line_without_it(start):
    one = start("scheduler.py", NOTIFY_URL="json://x nosuch://s3cret@host")
    assert one.wait() == 1
    assert one.output == "NOTIFY_URL: Apprise does not know address 2 (nosuch://)\n"


NO_PUBLIC_URL = "PUBLIC_URL is not set"
CARRIER = "twilio://AC5:s3cret@+15005550006?base_url=http://127.0.0.1:1"
COMPLETE = {"CARRIER_URL": CARRIER, "SECRET_KEY": SECRET_KEY, "PUBLIC_URL": "https://a.example"}


@pytest.mark.parametrize(
    ("environ", "line", "is_said"),
    [
        ({"DATABASE_URL": "sqlite:////no/such/a.db"}, "the database: cannot be reached", True),
        ({"DATABASE_URL": "postgresql://u:s3cret@127.0.0.1:1/d"}, "database: cannot be", True),
        ({"DATABASE_URL": "sqlite:///misspelt.db"}, "; flask db upgrade makes it", True),
        ({}, NO_PUBLIC_URL, False),
        ({"CARRIER_URL": CARRIER}, NO_PUBLIC_URL, True),
        ({"SECRET_KEY": SECRET_KEY}, NO_PUBLIC_URL, True),  # the desk's https cannot be told
        (COMPLETE, NO_PUBLIC_URL, False),
        ({}, "desk: off (SECRET_KEY)\n", True),
        ({"SECRET_KEY": SECRET_KEY}, "desk: off", False),
    ],
)
def test_the_web_says_at_its_start_what_will_not_work(environ, line, is_said, start):
    web = start(*WEB, PORT=str(free_port()), **environ)
    wait_until(lambda: "Listening at" in web.output)
    assert (line in web.output.partition("Listening at")[0]) == is_said
    assert "s3cret" not in web.output
    assert web.terminate() == 0


def test_the_web_says_at_its_start_which_keys_of_carriers_do_not_exist(serve, database_url):
    web = serve(database_url, CARRIER_URL="simulator:#keys=shp")
    assert " WARNING web - CARRIER_URL names keys that do not exist: shp\n" in web.output


def test_the_scheduler_says_so_too(start):
    scheduler = start("scheduler.py", "--every", "5", CARRIER_URL=CARRIER)
    wait_until(lambda: f"{NO_PUBLIC_URL}, so twilio cannot call back" in scheduler.output)
    wait_until(lambda: "the scheduler cannot work" in scheduler.output)  # a signal now ends it
    assert scheduler.terminate() == 0


@pytest.mark.parametrize("name", ["SECRET_KEY", "METRICS_TOKEN"])
def test_the_docs_make_secrets_that_are_long_enough(name):
    told = (ROOT / "docs" / "deploying.md").read_text()
    assert f'echo "{name}=$(openssl rand -hex 32)"' in told
