"""Insert the rows of several requests in one statement.

Most of the cost of an insert is waiting for the disk, and ten rows wait no longer than one. Only
requests that create messages wait in this queue.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from texting.database import db, is_outage

log = logging.getLogger("inserts")

MOST = 32  # rows in a statement: other writers wait for it
YIELDS = 3  # how often other greenlets run first, so that their requests can join the batch


class Inserts:
    """A queue of rows, and the thread that inserts them, which is a greenlet under gunicorn.

    `insert_all` takes a list of rows and returns a list of outcomes. What it raises because of one
    row reaches only that row's caller.
    """

    def __init__(self, insert_all: Callable[[list], list]):
        self.insert_all = insert_all
        self._rows = SimpleQueue()
        self._starting = threading.Lock()
        self._process = None  # the id of the process that the thread runs in

    def insert(self, row: Any) -> Any:
        """Insert a row; return its outcome, or raise what inserting it raised.

        In a transaction of the caller, which may yet be rolled back, insert the row alone there.
        """
        if db.in_transaction():
            return self.insert_all([row])[0]
        db.close()  # others use the connection meanwhile
        if self._process != os.getpid():  # a thread does not survive the fork of a web worker
            self._start()
        outcome = Future()
        self._rows.put((row, outcome))
        return outcome.result()

    def _start(self):
        with self._starting:
            if self._process != os.getpid():
                threading.Thread(target=self._run, daemon=True).start()
                self._process = os.getpid()

    def _run(self):
        """Insert rows for ever: no error ends this thread or leaves a caller waiting."""
        try:
            while True:
                batch = [self._rows.get()]
                try:
                    self._fill(batch)
                    self._insert(batch)
                except Exception as error:  # its message may hold a number
                    log.error("a batch of rows failed: unexpected %s", type(error).__name__)
                    _refuse(batch, error)
        finally:
            self._process = None  # the next row starts another thread

    def _fill(self, batch):
        """Add the rows of requests under way."""
        for _ in range(YIELDS):
            time.sleep(0)
        while len(batch) < MOST and not self._rows.empty():
            batch.append(self._rows.get())

    def _insert(self, batch):
        """Insert rows together; if one of them fails, insert each alone."""
        try:
            try:
                outcomes = self.insert_all([row for row, _ in batch])
            finally:
                db.close()
        except Exception as error:
            if len(batch) == 1 or is_outage(error):
                _refuse(batch, error)
                return
            for each in batch:
                self._insert([each])
        else:
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                future.set_result(outcome)


def _refuse(batch, error):
    """Let the callers of rows without an outcome raise an error."""
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
