"""Reads a Dockerfile: its stages, each a list of instructions."""

import json
import re


def stages(text):
    """Every stage as a list of (instruction, rest), continued lines joined, comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    found = []
    for line in joined.splitlines():
        if not line.strip():
            continue
        instruction, _, rest = line.strip().partition(" ")
        if instruction == "FROM":
            found.append([])
        found[-1].append((instruction, rest.strip()))
    return found


def all_of(stage, instruction):
    """What every such instruction of a stage says."""
    return [rest for name, rest in stage if name == instruction]


def one_of(stage, instruction):
    """What the only such instruction of a stage says."""
    (rest,) = all_of(stage, instruction)
    return rest


def pairs(stage, instruction):
    """The NAME=VALUE pairs of ENV or LABEL."""
    found = {}
    for rest in all_of(stage, instruction):
        for name, quoted, plain in re.findall(r'([\w.]+)=(?:"([^"]*)"|(\S+))', rest):
            found[name] = quoted or plain
    return found


def command(rest):
    """A command in the form that needs no shell."""
    return json.loads(rest)
