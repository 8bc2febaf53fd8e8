"""Tests that the published wheel and sdist contain all files that belong to them, and no others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from rig import ROOT

import latchgate

PROJECT = Path(__file__).resolve().parents[1]
MODULES = {str(path.relative_to(PROJECT / "src")) for path in (PROJECT / "src").rglob("*.py")}
TESTS = {str(path.relative_to(PROJECT)) for path in (PROJECT / "tests").rglob("*") if path.suffix in (".py", ".txt")}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The distributions that ``python -m build`` makes; ``scripts/clients-python`` has made them before the tests."""
    made = os.environ.get("LATCHGATE_DIST")
    if made:
        return Path(made)
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(PROJECT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return directory


def test_the_wheel_holds_the_package_with_its_types(dist: Path) -> None:
    version = latchgate.__version__
    wheel = dist / f"latchgate_client-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"latchgate_client-{version}.dist-info/METADATA").decode()
    info = {f"latchgate_client-{version}.dist-info/{it}" for it in ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE")}
    assert names == MODULES | {"latchgate/py.typed"} | info
    assert re.findall(r"^Requires-Dist: (.*)$", metadata, re.M) == ["httpx<1,>=0.27; extra == 'aio'"]
    assert "Requires-Python: >=3.9\n" in metadata and "License-Expression: Apache-2.0\n" in metadata


def test_the_sdist_holds_the_sources_and_their_tests(dist: Path) -> None:
    prefix = f"latchgate_client-{latchgate.__version__}"
    with tarfile.open(dist / f"{prefix}.tar.gz") as archive:
        names = {name[len(prefix) + 1 :] for name in archive.getnames()}
    files = {"PKG-INFO", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore"}
    assert names - {".gitignore"} == ({f"src/{it}" for it in MODULES} | TESTS | files | {"src/latchgate/py.typed"}) - {
        ".gitignore"
    }


def test_the_licence_is_that_of_the_project() -> None:
    assert (PROJECT / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_the_changelog_has_the_version() -> None:
    assert f"\n## {latchgate.__version__}\n" in (PROJECT / "CHANGELOG.md").read_text()


def test_the_client_with_threads_needs_the_standard_library_only() -> None:
    # The package is imported without site-packages, so that only the standard library is available.
    code = f"import sys; sys.path.append({str(PROJECT / 'src')!r}); import latchgate; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True)
    assert "latchgate.blocking.client" in run.stdout.split() and "asyncio" not in run.stdout.split()


def test_the_asyncio_client_says_what_it_needs() -> None:
    code = f"import sys; sys.path.append({str(PROJECT / 'src')!r}); import latchgate.aio"
    run = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert run.returncode != 0 and "pip install 'latchgate-client[aio]'" in run.stderr


def test_every_shared_case_has_a_test() -> None:
    cases = re.findall(r"^\* \*\*C(\d\d)\*\*", (ROOT / "clients" / "conformance.md").read_text(), re.M)
    tests = re.findall(r"^def test_c(\d\d)_", Path(__file__).with_name("test_conformance.py").read_text(), re.M)
    assert len(cases) == 39
    assert sorted(set(tests)) == sorted(cases)
