import contextlib, time, sys
from concurrent.futures import ThreadPoolExecutor
import models, psycopg
from models import *
from running import *
from conftest import *
from stored_messages import connection_of
pytest_plugins=["running"]
def timed(*a, **k):
    t=time.time()
    try: r=send(*a, **k)[0]
    except Exception as e: r=repr(e)
    return r, round(time.time()-t,1)
def timedh(*a, **k):
    t=time.time()
    try: r=health(*a, **k)[0]
    except Exception as e: r=repr(e)
    return r, round(time.time()-t,1)
HELLO={"to": NEW_YORK, "message":"x"}
def test_lock(serve, tmp_path):
    url = f"sqlite:///{tmp_path}/messages.db"
    models.connect(url); models.upgrade()
    secret = ApiKey.issue("app", None, clock()); models.disconnect()
    web = serve(url, workers=2)
    for warm in (False, True):
      if warm: print("warm", [timed(web,secret,HELLO) for _ in range(6)])
      with contextlib.closing(connection_of(url)) as writer, ThreadPoolExecutor(20) as pool:
        writer.execute("BEGIN IMMEDIATE")
        a = [pool.submit(timed, web, secret, HELLO) for _ in range(16)]
        time.sleep(0.5)
        h = [pool.submit(timedh, web) for _ in range(2)]
        time.sleep(20)
        writer.execute("ROLLBACK")
        print([x.result() for x in a]); print([x.result() for x in h])
    print(web.output[-1500:])
def test_pglock(serve, postgres):
    url=postgres
    models.connect(url); models.upgrade()
    secret = ApiKey.issue("app"+str(time.time()), None, clock()); models.disconnect()
    web = serve(url, workers=2)
    print("warm", [timed(web,secret,HELLO) for _ in range(6)])
    with psycopg.connect(url) as writer, ThreadPoolExecutor(20) as pool:
        writer.execute("LOCK TABLE message IN ACCESS EXCLUSIVE MODE")
        a = [pool.submit(timed, web, secret, HELLO) for _ in range(4)]
        h = [pool.submit(timedh, web) for _ in range(2)]
        time.sleep(25)
        writer.rollback()
        print([x.result() for x in a]); print([x.result() for x in h])
