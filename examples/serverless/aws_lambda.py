"""AWS Lambda: settles the invoices of a customer, never twice at once.

Package it with the client: `pip install -t . clients/python`.
"""

import os
import urllib.request

from latchgate import Latchgate, LockHeld

# Made once for each execution environment, so that calls share its connections. One that broke while the function was
# frozen is replaced.
locks = Latchgate(os.environ["LATCHGATE_URL"], key=os.environ.get("LATCHGATE_KEY"))

WORK_MS = 8_000  # What the work may take.
RELEASE_MS = 6_000  # What the release may take if its first answer is lost. The rest of the time of a call is for the wait.


def handler(event, context):
    customer = event["customer"]
    wait = max(context.get_remaining_time_in_millis() - WORK_MS - RELEASE_MS, 0)
    try:
        # A function that runs out of time is killed and releases nothing: a short TTL ends its lease soon after.
        with locks(f"invoices:{customer}", wait=wait, ttl="10s", owner=context.aws_request_id) as lease:
            settle(customer, lease)
    except LockHeld:
        # Whoever calls (a state machine, a queue) calls again.
        return {"state": "again"}
    return {"state": "done", "fencing_token": lease.fencing_token}


def settle(customer, lease):
    """Sends the fencing token with each write: the ledger refuses a smaller one than the largest it has seen."""
    lease.check()  # Raises if the lease is over, also if the function was frozen meanwhile.
    request = urllib.request.Request(
        f"{os.environ['LEDGER_URL']}/settle/{customer}",
        method="POST",
        headers={"Fencing-Token": str(lease.fencing_token)},
    )
    urllib.request.urlopen(request, timeout=WORK_MS / 1000).close()
