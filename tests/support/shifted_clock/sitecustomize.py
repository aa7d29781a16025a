"""Have a process's clock be ahead by as many seconds as the file SHIFTED_BY says by then."""

import datetime
import os
import time
from pathlib import Path

FILE = Path(os.environ["SHIFTED_BY"])
unshifted = time.time


def shifted():
    return unshifted() + float(FILE.read_text())


class Kind(type):
    def __instancecheck__(cls, value):
        return isinstance(value, Original)


class Shifted(datetime.datetime, metaclass=Kind):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(shifted(), tz)


Original = datetime.datetime
time.time, datetime.datetime = shifted, Shifted
