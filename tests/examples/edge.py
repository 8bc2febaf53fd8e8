"""What the tests of the recipes for proxies share: each recipe with its servers, and a holder that pauses itself.

As a program, `edge.py GATEWAY KEY PORT LOCK ROUNDS TTL_MS` is that holder: in each round it acquires the lock, writes
the first half, stops itself until somebody lets it go on, writes the second half and prints the status of that write.
"""

import http.client
import json
import os
import signal
import sys

HALVES = ("one", "two")


def put(port, lock, file, text, fence=None, path=None, **headers):
    """Writes a file through a proxy, as a client that is signed in elsewhere: the status."""
    headers = {"Authorization": "Bearer of-the-client", "Cookie": "of=the-client", **headers}
    if fence is not None:
        headers["Fencing-Token"] = str(fence)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("PUT", path or f"/files/{lock}/{file}", text, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def hold(gateway, key, port, lock, rounds, ttl_ms):
    for number in range(int(rounds)):
        text = f"of the paused holder, {number}"
        while True:
            connection = http.client.HTTPConnection(gateway, timeout=70)
            body = json.dumps({"ttl_ms": int(ttl_ms), "wait_ms": 50_000})
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            connection.request("POST", f"/locks/{lock}", body, headers)
            answer = connection.getresponse()
            lease = json.loads(answer.read())
            connection.close()
            # On a slow machine so short a lease may be over before it is granted or used: then this is no round.
            if answer.status == 201 and put(int(port), lock, HALVES[0], text, lease["fencing_token"]) < 300:
                break
            assert answer.status in (201, 504), lease
        print("half", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        print(put(int(port), lock, HALVES[1], text, lease["fencing_token"]), flush=True)


if __name__ == "__main__":
    hold(*sys.argv[1:])
