"""Insert the rows of several requests in one statement.

Waiting for the disk is most of what an insert costs, and ten rows wait no longer than one. Only
requests that create wait in this queue.
"""

import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from database import db, is_outage

MOST = 32  # rows in a statement: SQLite may take no more than 999 parameters
GATHERING = 0.001  # seconds at most for requests under way to bring their rows
IDLE_TURNS = 3  # of the event loop without a new row, after which none is about to come


class Inserts:
    """A queue of rows, and the thread that inserts them; a greenlet under gunicorn.

    `insert_all` takes a list of rows and returns a list of outcomes. A row of its own error, such
    as a value that the database refuses, does no harm to the others.
    """

    def __init__(self, insert_all: Callable[[list], list]):
        self.insert_all = insert_all
        self._rows = SimpleQueue()
        self._starting = threading.Lock()
        self._process = None  # that the thread runs in

    def insert(self, row: Any) -> Any:
        """Insert a row; return its outcome, or raise what its statement raised.

        Within a transaction of the caller, which may yet be rolled back, insert it there and alone.
        """
        if db.in_transaction():
            return self.insert_all([row])[0]
        db.close()  # others use the connection meanwhile
        if self._process != os.getpid():  # a thread does not survive the fork of a web worker
            self._start()
        outcome = SimpleQueue()
        self._rows.put((row, outcome))
        stored, error = outcome.get()
        try:
            if error:
                raise error
            return stored
        finally:
            del error  # in a cycle with its frames it would keep its connection open

    def _start(self):
        with self._starting:
            if self._process != os.getpid():
                threading.Thread(target=self._run, daemon=True).start()
                self._process = os.getpid()

    def _run(self):
        try:
            self._insert_batches()
        finally:
            self._process = None  # the next row starts another thread

    def _insert_batches(self):
        while True:
            batch = [self._rows.get()]
            waiting, idle, end = 0, 0, time.monotonic() + GATHERING
            while idle < IDLE_TURNS and time.monotonic() < end:
                time.sleep(0)
                idle = idle + 1 if self._rows.qsize() == waiting else 0
                waiting = self._rows.qsize()
            while len(batch) < MOST and not self._rows.empty():
                batch.append(self._rows.get())
            self._insert(batch)

    def _insert(self, batch):
        try:
            try:
                outcomes = self.insert_all([row for row, _ in batch])
            finally:
                db.close()
        except Exception as error:
            if len(batch) > 1 and not is_outage(error):
                for each in batch:
                    self._insert([each])
                return
            while batch:
                batch.pop()[1].put((None, error))
        else:
            for (_, waiting), outcome in zip(batch, outcomes, strict=True):
                waiting.put((outcome, None))
