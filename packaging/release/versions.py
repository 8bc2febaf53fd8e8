"""Every place that says which version this is, and that they agree."""

import json
import re
import tomllib

from . import ROOT


def read(path):
    return (ROOT / path).read_text()


def toml(path):
    return tomllib.loads(read(path))


def found(path, pattern):
    """What the group of a pattern matches, all of them, with the place of each."""
    text = read(path)
    places = [
        (f"{path}:{text.count(chr(10), 0, match.start()) + 1}", match[1])
        for match in re.finditer(pattern, text, re.M)
    ]
    return places or [(path, f"nothing that looks like {pattern}")]


def locked(path):
    """What a lock file says of the packages of this repository."""
    return [
        (f"{path}, {package['name']}", package["version"])
        for package in toml(path)["package"]
        if package["name"] in ("latchgate", "latchgate-client", "latchgate-vocabulary") and "source" not in package
    ]


def program():
    """The version that all others are held against."""
    return toml("Cargo.toml")["package"]["version"]


def stated():
    """Every place, with the version that it states."""
    places = [
        ("Cargo.toml", program()),
        ("Cargo.toml, latchgate-client", toml("Cargo.toml")["dependencies"]["latchgate-client"]["version"]),
        ("Cargo.toml, latchgate-vocabulary", toml("Cargo.toml")["dependencies"]["latchgate-vocabulary"]["version"]),
        ("clients/rust/Cargo.toml", toml("clients/rust/Cargo.toml")["package"]["version"]),
        (
            "clients/rust/Cargo.toml, latchgate-vocabulary",
            toml("clients/rust/Cargo.toml")["dependencies"]["latchgate-vocabulary"]["version"],
        ),
        ("crates/vocabulary/Cargo.toml", toml("crates/vocabulary/Cargo.toml")["package"]["version"]),
        ("clients/js/package.json", json.loads(read("clients/js/package.json"))["version"]),
        *(
            (f"packaging/npm/package.json, {name}", stated)
            for package in [json.loads(read("packaging/npm/package.json"))]
            for name, stated in [("latchgate", package["version"]), *package["optionalDependencies"].items()]
        ),
        ("openapi/latchgate.json", json.loads(read("openapi/latchgate.json"))["info"]["version"]),
        *found("clients/python/src/latchgate/version.py", r'^__version__ = "(.*)"$'),
        *found("Dockerfile", r'image\.version="([^"]*)"'),
        *found("compose.yaml", r"image: latchgate:(\S+)$"),
        *found("docs/deploy.md", r"\blatchgate[:_-]v?(\d[\w.+~]*?)(?=-|_|\.t| |`|$)"),
        *found("packaging/chart/README.md", r"latchgate-chart-(\S+)\.tgz"),
        *locked("Cargo.lock"),
        *locked("fuzz/Cargo.lock"),
    ]
    for path in sorted((ROOT / "k8s").rglob("kustomization.yaml")):
        if "newTag" in path.read_text():
            places += found(path.relative_to(ROOT).as_posix(), r"^\s*newTag: (\S+)$")
    # The newest release stands first. A client that comes later has a changelog as well.
    for path in [ROOT / "CHANGELOG.md", *sorted((ROOT / "clients").glob("*/CHANGELOG.md"))]:
        places.append(found(path.relative_to(ROOT).as_posix(), r"^## ([^:\s]+)")[0])
    return places


def disagreements(tag=None):
    """What does not say the version of the program, a line for each."""
    version = program()
    places = stated() + ([("the tag of this commit", tag.removeprefix("v"))] if tag else [])
    return [f"{place} says {other}" for place, other in places if other != version]


def notes():
    """What the changelog says of this version."""
    section = re.search(rf"^## {re.escape(program())}\b.*?\n(.*?)(?=^## |\Z)", read("CHANGELOG.md"), re.M | re.S)
    return section[1].strip() + "\n"
