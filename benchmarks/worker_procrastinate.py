"""Send texts by procrastinate, as one would write it in an evening.

`worker_procrastinate.py URL ADDRESS COUNT` stores so many, and with `work` sends them.
"""

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import requests
from procrastinate import App, PsycopgConnector, RetryStrategy

url, address, count = sys.argv[1:]
app = App(connector=PsycopgConnector(conninfo=url))
threads = threading.local()


@app.task(name="send", retry=RetryStrategy(max_attempts=4, wait=60))
def send(to, message):
    if not hasattr(threads, "session"):
        threads.session = requests.Session()
    answer = threads.session.post(address, json={"to": to, "message": message}, timeout=30)
    answer.raise_for_status()
    return answer.json()["sid"]


async def main():
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))
    async with app.open_async():
        if count == "work":
            await app.run_worker_async(concurrency=32, wait=False)
            return
        await app.schema_manager.apply_schema_async()
        numbers = [f"+1212{2_000_000 + number}" for number in range(int(count))]
        texts = [{"to": to, "message": "Your parcel is here."} for to in numbers]
        await send.batch_defer_async(*texts)


asyncio.run(main())
