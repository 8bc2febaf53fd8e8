"""Takes a lock through its life with the client that openapi-python-client makes: `try_client.py URL`."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from latchgate_client import AuthenticatedClient as Client
from latchgate_client.api.locks import acquire_lock, acquire_locks, inspect_lock, list_locks, release_lock, renew_lock
from latchgate_client.models import (
    AcquireBody,
    AcquireGroupBody,
    GroupLease,
    Lease,
    Lock,
    LockOfGroup,
    Page,
    Problem,
    ProblemCode,
    RenewBody,
)

NAME = "generated/python"


def main(url: str) -> None:
    # A gateway without API keys ignores it.
    client = Client(base_url=url, token="lgk_none")
    lease = acquire_lock.sync(NAME, client=client)
    assert isinstance(lease, Lease) and lease.fencing_token > 0, lease
    refused = acquire_lock.sync(NAME, client=client, body=AcquireBody(owner="second"))
    assert isinstance(refused, Problem) and refused.code is ProblemCode.LOCKED, refused
    assert refused.status == 423 and refused.holders, refused
    renewed = renew_lock.sync(NAME, client=client, lock_token=lease.token, body=RenewBody(ttl_ms=60_000))
    assert isinstance(renewed, Lease) and renewed.ttl_ms == 60_000, renewed
    page = list_locks.sync(client=client, prefix="generated/")
    assert isinstance(page, Page) and NAME in [lock.name for lock in page.locks], page
    pool, patient = ThreadPoolExecutor(), Client(base_url=url, token="lgk_none")
    waiting = pool.submit(acquire_lock.sync, NAME, client=patient, body=AcquireBody(wait_ms=25_000))
    deadline = time.monotonic() + 20
    while not (isinstance(shown := inspect_lock.sync(NAME, client=client), Lock) and shown.waiter_count == 1):
        assert time.monotonic() < deadline, shown
        time.sleep(0.05)
    released = release_lock.sync_detailed(NAME, client=client, lock_token=lease.token)
    assert released.status_code == 204, released
    granted = waiting.result()
    assert isinstance(granted, Lease) and granted.fencing_token > lease.fencing_token, granted
    lost = renew_lock.sync(NAME, client=client, lock_token=lease.token)
    assert isinstance(lost, Problem) and lost.code is ProblemCode.LEASE_LOST, lost
    assert release_lock.sync_detailed(NAME, client=client, lock_token=granted.token).status_code == 204
    # In place of a name, an object asks for one lock of several in a mode of its own.
    several = AcquireGroupBody(names=[NAME, LockOfGroup(name="generated:pool-of-python", limit=2)])
    group = acquire_locks.sync(client=client, body=several)
    assert isinstance(group, GroupLease), group
    assert [(lease.mode, lease.slot) for lease in group.leases] == [("exclusive", None), ("shared", 0)], group


main(sys.argv[1])
