#!/usr/bin/env python3
"""One idea: a holder that slept through the end of its lease does no harm, because the table refuses it.

    latchgate serve                          # in another terminal
    python3 examples/fenced_write.py report.db hello
    python3 examples/fenced_write.py report.db hello --sleep 5     # too late: exit code 1

Every write carries the fencing token of its lease, and the row keeps the largest it has seen. `--unfenced` leaves that out,
to show what happens then: the sleeper overwrites what was written while it slept, and nobody notices.
"""

import argparse
import json
import os
import sqlite3
import sys
import time
import urllib.request

GATEWAY = os.environ.get("LATCHGATE_URL", "http://localhost:7420")

# With PostgreSQL the parameters are $1, $2 and $3; the statement is the same.
FENCED = "UPDATE report SET body = ?1, fence = ?2 WHERE id = ?3 AND fence <= ?2"
UNFENCED = "UPDATE report SET body = ?1, fence = ?2 WHERE id = ?3"


def call(method, path, body=None, token=None):
    """Sends a request to the gateway and answers what it says."""
    request = urllib.request.Request(GATEWAY + path, method=method)
    request.add_header("Content-Type", "application/json")
    if token:
        request.add_header("Lock-Token", token)
    data = json.dumps(body).encode() if body is not None else None
    with urllib.request.urlopen(request, data, timeout=60) as answer:
        return json.loads(answer.read() or b"null")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("database")
    arguments.add_argument("body")
    arguments.add_argument("--sleep", type=float, default=0, help="seconds between the grant and the write")
    arguments.add_argument("--unfenced", action="store_true")
    asked = arguments.parse_args()

    table = sqlite3.connect(asked.database, isolation_level=None, timeout=10)
    table.execute("CREATE TABLE IF NOT EXISTS report (id TEXT PRIMARY KEY, body TEXT, fence INTEGER NOT NULL DEFAULT 0)")
    table.execute("INSERT OR IGNORE INTO report (id) VALUES ('today')")

    lease = call("POST", "/locks/report", {"ttl_ms": 1000, "wait_ms": 20000})
    print("granted, fencing token", lease["fencing_token"], flush=True)
    # A long garbage collection, a suspended laptop, a slow network: the lease may be over by now.
    time.sleep(asked.sleep)
    statement = UNFENCED if asked.unfenced else FENCED
    written = table.execute(statement, (asked.body, lease["fencing_token"], "today")).rowcount
    if not written:
        sys.exit("too late: somebody with a larger fencing token has been here")
    print("written", flush=True)
    try:
        call("DELETE", "/locks/report", token=lease["token"])
    except urllib.error.HTTPError as error:
        if error.code != 410:
            raise
        print("the lease was over before the work was done")


if __name__ == "__main__":
    main()
