"""What the program has: its flags, variables, paths and defaults, as it says itself."""

import json
import os
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import dispositions

# Applies to everything that the tests start.
dispositions.default_in_children()

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "target" / "debug" / "latchgate"


def run(arguments, environment=None):
    """Runs the program with nothing in its environment but what is given."""
    return subprocess.run(
        [PROGRAM, *arguments],
        env={"PATH": os.environ["PATH"], **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
    )


@cache
def defaults():
    """The default of every key."""
    return tomllib.loads(run(["config", "default"]).stdout)


@cache
def variables():
    """Every variable that configures a gateway, with the key it sets."""

    def keys(table, prefix):
        for name, value in table.items():
            if isinstance(value, dict):
                yield from keys(value, f"{prefix}{name}.")
            else:
                yield prefix + name

    named = {"LATCHGATE_" + k.upper().replace(".", "_"): k for k in keys(defaults(), "")}
    # This variable names the file with the other settings; `serve --help` lists it.
    named["LATCHGATE_CONFIG"] = None
    return named


@cache
def flags(command):
    """The long flags of a command."""
    helped = run([command, "--help"])
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", helped.stdout)) if helped.returncode == 0 else None


@cache
def paths():
    """Every path that the program serves, as its OpenAPI document has it."""
    return set(json.loads(run(["openapi"]).stdout)["paths"])


def version():
    """What `--version` says."""
    return run(["--version"]).stdout.split()[1]


def effective(environment):
    """The configuration with these variables, as `config check` shows it, over the defaults."""
    checked = run(["config", "check"], environment)
    if checked.returncode != 0:
        raise AssertionError(checked.stderr)
    config = {key: value for key, value in flat(defaults())}
    for key, value in re.findall(r"^  ([a-z_.]+) = (.*)  # ", checked.stdout, re.M):
        config[key] = tomllib.loads(f"value = {value}")["value"]
    return config


def flat(table, prefix=""):
    """The keys of a table with those of its tables."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
