"""How a release is made: `scripts/release` calls this."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def fail(text):
    sys.exit(f"scripts/release: {text}")


def run(*command, **options):
    """Runs a command, which must succeed, and gives what it prints if that is asked for."""
    ran = subprocess.run([str(word) for word in command], text=True, cwd=options.pop("cwd", ROOT), **options)
    if ran.returncode != 0:
        said = "".join(text for text in (ran.stdout, ran.stderr) if text)
        fail(f"{said}this fails: {' '.join(str(word) for word in command)}")
    return ran.stdout


def output(*command, **options):
    return run(*command, stdout=subprocess.PIPE, **options).strip()
