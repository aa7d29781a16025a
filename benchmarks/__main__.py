"""The figures of this folder's README: `make bench`, or `make bench ONLY="create idle"`.

Rounds of what is compared take turns, and medians are quoted, because machines are noisy. wrk
(a package of Debian and Homebrew) makes the load. BENCH_ROUNDS=3 is quicker, and noisier.
"""

import os
import platform
import shutil
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

import of_peers  # noqa: E402
import of_scheduler  # noqa: E402
import of_stored  # noqa: E402
import of_web  # noqa: E402
from machinery import SCRATCH, postgres  # noqa: E402

from texting import database  # noqa: E402

FIGURES = (
    *(of_web.create, of_web.limited, of_web.silent, of_web.flooded, of_web.start),
    of_web.replies,
    *(of_scheduler.idle, of_scheduler.send, of_scheduler.many, of_scheduler.promote),
    *(of_scheduler.turns, of_scheduler.events, of_peers.beside, of_peers.before),
    *(of_stored.dnc, of_stored.growth, of_stored.desk, of_stored.usage, of_stored.purge),
)


def main(names):
    if shutil.which("wrk") is None:
        sys.exit("wrk is needed: apt install wrk, or brew install wrk")
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{'figure':<52}{'measured':<34}{'target':<18}compared with")
    try:
        with postgres() as server:
            for figure in FIGURES:
                if not names or figure.__name__ in names:
                    figure(server)
    finally:
        database.disconnect()
        shutil.rmtree(SCRATCH, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
