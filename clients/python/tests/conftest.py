"""What the tests share."""

from __future__ import annotations

import uuid
from typing import Iterator

import pytest
from both import KINDS, Clients
from rig import Rig


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
    # What a test left broken must not keep its clients from closing.
    rig.reset()
    clients.close()


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"
