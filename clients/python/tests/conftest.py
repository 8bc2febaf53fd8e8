"""Fixtures that all tests share."""

from __future__ import annotations

import faulthandler
import os
import uuid
from typing import Iterator

import pytest
from both import KINDS, Clients
from rig import Rig


#: The time limit of a test in seconds: ten times the time of the slowest test.
DEADLINE = 120
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    # The original standard error is kept, because captured output would be lost when the process ends.
    config.stash[STDERR] = os.dup(2)


@pytest.fixture(autouse=True)
def deadline(pytestconfig: pytest.Config) -> Iterator[None]:
    """Ends the process if a test hangs, and prints where it hangs."""
    faulthandler.dump_traceback_later(DEADLINE, exit=True, file=pytestconfig.stash[STDERR])
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def rig_of_worker() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.stop()


@pytest.fixture
def rig(rig_of_worker: Rig) -> Iterator[Rig]:
    rig_of_worker.reset()
    yield rig_of_worker


@pytest.fixture(params=KINDS)
def clients(request: pytest.FixtureRequest, rig: Rig) -> Iterator[Clients]:
    clients = Clients(request.param)
    yield clients
    # The faults of a test are removed first, because they could keep its clients from closing.
    rig.reset()
    clients.close()


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"
