"""The examples of the README that stand alone, as they are written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from rig import Rig

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()
ALONE = [text for text in re.findall(r"^```python\n(.*?)^```$", README, re.M | re.S) if "http://localhost:7420" in text]


def test_with_threads_and_with_asyncio_there_is_one() -> None:
    assert [("asyncio.run" in text) for text in ALONE] == [False, True]


@pytest.mark.parametrize("text", ALONE)
def test_it_runs(rig: Rig, text: str) -> None:
    text = text.replace("http://localhost:7420", rig.a)
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert re.match(r"deploying under fencing token \d+\n", run.stdout)
