import socket, time
from conftest import *
import models

BODY = b'{"to": "+12125550123", "message": "text-secret"}'
def raw(port, data, half_close=False, timeout=5, parts=None):
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as s:
        s.sendall(data)
        if half_close: s.shutdown(socket.SHUT_WR)
        out = b""
        try:
            while chunk := s.recv(65536): out += chunk
        except TimeoutError: out += b"<<TIMEOUT>>"
        except ConnectionError as e: out += b"<<RESET>>"
        return out

def test_raw(serve, database_url, key):
    web = serve(database_url, LOG_LEVEL="DEBUG")
    k = key.encode()
    def req(line=b"POST /v1/text-messages HTTP/1.1", host=b"Host: localhost", headers=(), body=BODY, length=None, auth=True, close=True, ctype=True):
        h = [line]
        if host: h.append(host)
        if auth: h.append(b"X-Api-Key: "+k)
        if ctype: h.append(b"Content-Type: application/json")
        if length is not False: h.append(b"Content-Length: %d" % (len(body) if length is None else length))
        if close: h.append(b"Connection: close")
        h += headers
        return b"\r\n".join(h)+b"\r\n\r\n"+body
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in (BODY[:10], BODY[10:]))+b"0\r\n\r\n"
    cases = {
     "plain": req(),
     "short body": req(length=1000),
     "CL twice same": req(headers=[b"Content-Length: %d" % len(BODY)]),
     "CL twice diff": req(headers=[b"Content-Length: 5"]),
     "CL negative": req(length=-5),
     "CL plus": req(length=False, headers=[b"Content-Length: +5"]),
     "CL huge": req(length=10**30),
     "CL none": req(length=False),
     "CL big no body": req(length=100000, body=b""),
     "TE chunked": req(length=False, headers=[b"Transfer-Encoding: chunked"], body=chunked),
     "TE and CL": req(headers=[b"Transfer-Encoding: chunked"], body=chunked),
     "TE bad chunk": req(length=False, headers=[b"Transfer-Encoding: chunked"], body=b"zz\r\nabc\r\n0\r\n\r\n"),
     "TE cut": req(length=False, headers=[b"Transfer-Encoding: chunked"], body=chunked[:20]),
     "TE big": req(length=False, headers=[b"Transfer-Encoding: chunked"], body=b"11000\r\n"+b" "*0x11000+b"\r\n0\r\n\r\n"),
     "cut head": (b"POST / HTTP/1.1\r\nX-Api-Key: " + k),
     "cut line": (b"POST /" + k),
     "401 bad chunk": req(auth=False, length=False, close=False, headers=[b"Transfer-Encoding: chunked"], body=b"text-secret\r\nabc\r\n0\r\n\r\n"),
     "401 short": req(auth=False, length=500, close=False),
     "TE bad chunk keepalive": req(length=False, close=False, headers=[b"Transfer-Encoding: chunked"], body=b"text-secret\r\nabc\r\n0\r\n\r\n"),
     "TE bad trailer": req(length=False, headers=[b"Transfer-Encoding: chunked"], body=chunked[:-2]+b"X Y: text-secret\r\n\r\n"),
     "TE trailer": req(length=False, headers=[b"Transfer-Encoding: chunked"], body=chunked[:-2]+b"X-Y: text-secret\r\n\r\n"),
     "TE exact": req(length=False, headers=[b"Transfer-Encoding: chunked"], body=b"10000\r\n"+BODY.ljust(65536)+b"\r\n0\r\n\r\n"),
     "TE one more": req(length=False, headers=[b"Transfer-Encoding: chunked"], body=b"10001\r\n"+BODY.ljust(65537)+b"\r\n0\r\n\r\n"),
     "CL exact": req(body=BODY.ljust(65536)),
     "CL one more": req(body=BODY.ljust(65537)),
     "TE unknown": req(length=False, headers=[b"Transfer-Encoding: gzip"], body=chunked),
     "TE gzip, chunked": req(length=False, headers=[b"Transfer-Encoding: gzip, chunked"], body=chunked),
     "huge header": req(headers=[b"X-Big: "+b"a"*9000+k]),
     "many headers": req(headers=[b"X-%d: a" % i for i in range(200)]),
     "long line": req(line=b"POST /v1/text-messages?"+b"a"*9000+b" HTTP/1.1"),
     "expect": req(headers=[b"Expect: 100-continue"]),
     "expect other": req(headers=[b"Expect: tea"]),
     "absolute": req(line=b"POST http://evil/v1/text-messages HTTP/1.1"),
     "options *": req(line=b"OPTIONS * HTTP/1.1"),
     "connect": req(line=b"CONNECT evil:443 HTTP/1.1"),
     "trace": req(line=b"TRACE /v1/text-messages HTTP/1.1"),
     "odd": req(line=b"FOO /v1/text-messages HTTP/1.1"),
     "lower": req(line=b"post /v1/text-messages HTTP/1.1"),
     "method override": req(line=b"GET /v1/text-messages HTTP/1.1", headers=[b"X-HTTP-Method-Override: POST"]),
     "script_name": req(headers=[b"SCRIPT_NAME: /v1", b"Script-Name: /x", b"PATH_INFO: /y"]),
     "forwarded": req(headers=[b"X-Forwarded-For: 1.2.3.4", b"X-Forwarded-Proto: https", b"X-Forwarded-Prefix: /x", b"X-Forwarded-Host: evil", b"Forwarded: host=evil", b"X-Forwarded-Protocol: ssl", b"X-Forwarded-Ssl: on"]),
     "underscore key": req(auth=False, headers=[b"X_Api_Key: "+k]),
     "upgrade": req(headers=[b"Upgrade: h2c", b"HTTP2-Settings: x"]),
     "%00": req(line=b"POST /v1/text-messages%00 HTTP/1.1"),
     "raw ff path": req(line=b"POST /v1/\xff HTTP/1.1"),
     "garbage": b"\x16\x03\x01\x02\x00\x01\x00",
     "nothing": b"\r\n\r\n",
     "gzip body": req(headers=[b"Content-Encoding: gzip"]),
     "pipelined": req(close=False)+req(),
     "proxy": b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n"+req(),
     "no CL, GET-like smuggle": req(length=False, body=b"", close=False)+req(),
     "401 pipelined": req(auth=False, close=False)+req(),
     "413 pipelined": req(body=b" "*70000, close=False)+req(),
     "get healthz with body": req(line=b"GET /healthz HTTP/1.1"),
     "frag": req(line=b"POST /v1/text-messages#x HTTP/1.1"),
     "semi": req(line=b"POST /v1/text-messages;x=1 HTTP/1.1"),
     "query": req(line=b"POST /v1/text-messages?to=x HTTP/1.1"),
    }
    for name, data in cases.items():
        t = time.time()
        out = raw(web.port, data, half_close=name in ("cut head", "cut line", "401 short", "short body","TE cut","CL huge","garbage", "CL big no body"))
        el = time.time()-t
        import re
        print(f"{name:22} {el:5.2f}", re.findall(rb"HTTP/1.[01] (\d+ [^\r]*)", out), out.count(b'"error":true'), b"text/html" in out, out[-150:] if b"text/html" in out or len(out) < 60 or b"<<" in out else b"")
    out = web.output
    print("LEAKS", [s for s in (key, "+12125550123", "2125550123", "text-secret") if s in out])
    print(out[-6000:])
