"""The fixture `latchgate_url`, which pytest finds by itself where this package is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from latchgate_program import gateway


@pytest.fixture(scope="session")
def latchgate_url() -> Iterator[str]:
    """The address of a Latchgate gateway that ends with the test run."""
    with gateway() as url:
        yield url
