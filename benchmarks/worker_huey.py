"""Send texts by huey, as one would write it in an evening.

`worker_huey.py FILE ADDRESS COUNT` stores so many, and with `work` sends them.
"""

import sys
import threading

import requests
from huey import SqliteHuey

file, address, count = sys.argv[1:]
huey = SqliteHuey(filename=file)
threads = threading.local()


@huey.task(retries=3, retry_delay=60)
def send(to, message):
    if not hasattr(threads, "session"):
        threads.session = requests.Session()
    answer = threads.session.post(address, json={"to": to, "message": message}, timeout=30)
    answer.raise_for_status()
    return answer.json()["sid"]  # huey keeps it as the result


if count == "work":
    huey.create_consumer(workers=32, worker_type="thread").run()
else:
    for number in range(int(count)):
        send(f"+1212{2_000_000 + number}", "Your parcel is here.")
