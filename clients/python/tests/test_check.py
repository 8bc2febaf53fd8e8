"""Tests that only the answer of a gateway lets a check pass."""

from __future__ import annotations

import pytest
from both import Clients
from rig import Rig

from latchgate import LatchgateError


def test_the_fencing_token_of_a_living_lease_passes(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name, ttl="30s")
    locks.check(name, lease.fencing_token)
    locks.check(name, lease.fencing_token, lasts="20s")
    with pytest.raises(LatchgateError) as too_soon:
        locks.check(name, lease.fencing_token, lasts="31s")
    assert (too_soon.value.status, too_soon.value.code) == (403, "ends-too-soon")
    assert too_soon.value.problem["expires_in_ms"] <= 30_000
    lease.release()
    with pytest.raises(LatchgateError) as stale:
        locks.check(name, lease.fencing_token)
    assert (stale.value.status, stale.value.code) == (403, "stale-fencing-token")


def test_a_lost_answer_is_asked_for_again_and_a_refusal_is_not(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name)
    rig.fault("lose-reply", count=1, path=f"/locks/{name}/check")
    locks.check(name, lease.fencing_token)
    assert len(rig.log("GET", "/check")) == 2
    with pytest.raises(LatchgateError):
        locks.check(name, 1)
    assert len(rig.log("GET", "/check")) == 3


def test_what_is_no_fencing_token_is_not_sent(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    for wrong in ("7", "7\r\nX: y", None, 7.5):
        with pytest.raises((ValueError, TypeError)):
            locks.check(name, wrong)
    assert rig.log("GET", "/check") == []
