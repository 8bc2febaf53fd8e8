#!/usr/bin/env python3
"""One idea: many copies of a program run, and one of them leads as long as its connection lives.

    python3 examples/leader.py one &
    python3 examples/leader.py two &      # leads as soon as the first is gone

The gateway renews the lease while the connection is open, and passes the lock on when it is closed. A leader that has received
no renewal for as long as its lease lasts stops leading: the connection may have been cut.
"""

import http.client
import json
import os
import socket
import sys
import time
import urllib.parse

TRAVEL = 0.5  # seconds
GATEWAY = urllib.parse.urlsplit(os.environ.get("LATCHGATE_URL", "http://localhost:7420"))


def events(answer):
    """The events of a stream: pairs of a kind and its data. A comment is a sign of life, and an event without data."""
    kind, data = "", ""
    for line in answer:
        line = line.decode().rstrip("\r\n")
        if line.startswith("event:"):
            kind = line[6:].strip()
        elif line.startswith("data:"):
            data += line[5:].strip()
        elif not line:
            yield kind, json.loads(data) if data else {}
            kind, data = "", ""


def lead(me):
    connection = http.client.HTTPConnection(GATEWAY.hostname, GATEWAY.port or 80, timeout=60)
    body = json.dumps({"ttl_ms": 6000, "wait_ms": 50000, "owner": me})
    connection.request("POST", "/locks/leader/hold", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status == 423:
        return  # The wait has run out: ask again.
    if answer.status != 200:
        raise SystemExit(f"{answer.status}: {answer.read().decode()}")
    deadline = None
    try:
        for kind, data in events(answer):
            now = time.monotonic()
            if kind in ("granted", "renewed"):
                if deadline is None:
                    print(f"{me} leads, fencing token {data['fencing_token']}", flush=True)
                # Count expires_in_ms from when the event is received, and leave the time that it may have travelled.
                deadline = now + data["expires_in_ms"] / 1000 - TRAVEL
            elif kind in ("lost", "refused", "draining", "released"):
                if deadline is not None:
                    print(f"{me} leads no more: {kind}", flush=True)
                return
            # A heartbeat says that the connection lives, not that the lease does.
            if deadline is not None:
                if now >= deadline:
                    raise TimeoutError
                connection.sock.settimeout(deadline - now)
    except TimeoutError:
        print(f"{me} leads no more: nothing was heard of a renewal", flush=True)
    finally:
        connection.close()


def main():
    me = sys.argv[1] if len(sys.argv) > 1 else socket.gethostname()
    while True:
        try:
            lead(me)
        except (OSError, http.client.HTTPException) as error:
            print(f"{me}: {error}", file=sys.stderr, flush=True)
            time.sleep(1)


if __name__ == "__main__":
    main()
