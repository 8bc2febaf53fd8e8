"""Says what of a release goes where, and by which command. Publishes nothing."""

import shlex

from . import ROOT, output
from .packages import CRATES


def words(*command):
    return shlex.join(str(word) for word in command)


def steps(release, files):
    """(what, where, commands) of each, in their order."""
    version, out = release.version, release.out
    tag = f"v{version}"
    yield f"the tag {tag}", "the repository", [
        words("git", "tag", "--annotate", "--message", f"Latchgate {version}", tag, release.commit),
        words("git", "push", "origin", tag),
    ]
    # A page has no folders; what is in one goes to a registry.
    of_page = [file for file in files if file.parent == out and file.name != "notes.txt"]
    yield "programs, Debian packages, bills of materials and checksums", "its page of releases", [
        words(
            "gh", "release", "create", tag, "--verify-tag", "--title", f"Latchgate {version}",
            "--notes-file", out / "notes.txt", *of_page,
        )
    ]
    image = f"REGISTRY/latchgate:{version}"
    yield "the image", "your registry of images", [
        words("docker", "build", "--build-arg", f"REVISION={release.commit}", "--tag", image, "."),
        words("docker", "push", image),
    ]
    yield "the Helm chart", "your registry of images", [
        words("helm", "push", file, "oci://REGISTRY/charts") for file in files if file.parent.name == "helm"
    ]
    yield "the Rust client and its vocabulary", "crates.io, which takes no file: cargo makes the same ones again", [
        words("cargo", "publish", "--locked", "--package", crate) for crate in CRATES
    ]
    # The launcher comes last, so that it never names a package that is not there. `public`: npm takes a package with a
    # scope for a private one.
    launcher = f"latchgate-{version}.tgz"
    of_npm = sorted((file for file in files if file.parent.name == "npm"), key=lambda file: file.name == launcher)
    yield "the JavaScript client @latchgate/client, and the program as latchgate", "npm", [
        words("npm", "publish", "--access", "public", file) for file in of_npm
    ]
    yield "the Python client latchgate-client, and the program as latchgate", "PyPI", [
        words("python3", "-m", "twine", "upload", *(file for file in files if file.parent.name == "python"))
    ]
    for file in files:
        if file.parent.name == "github-action":
            yield "the GitHub action", "the root of its own repository, which is at ACTION", [
                words("tar", "--extract", "--gzip", "--strip-components=1", "--directory=ACTION", f"--file={file}"),
                words("git", "-C", "ACTION", "add", "--all"),
                words("git", "-C", "ACTION", "commit", "--message", f"Latchgate {version}"),
                words("git", "-C", "ACTION", "tag", tag),
                words("git", "-C", "ACTION", "tag", "--force", tag.partition(".")[0]),
                # `+`: the tag of all versions alone may move.
                words("git", "-C", "ACTION", "push", "origin", "HEAD", tag, f"+refs/tags/{tag.partition('.')[0]}"),
            ]


def plan(release, files):
    """The text of all that."""
    lines = ["Nothing is published. To publish it, from this folder and in this order:", ""]
    for number, (what, where, commands) in enumerate(steps(release, files), 1):
        lines.append(f"{number}. {what}: to {where}")
        lines += [f"     {command}" for command in commands]
    missing = []
    if ".invalid" in (ROOT / "Cargo.toml").read_text():
        missing.append("the address of the maintainer in Cargo.toml ([package.metadata.deb]): nobody has it")
    if not output("git", "remote"):
        missing.append("a remote named origin: this repository has none")
    if missing:
        lines += ["", "Before that:", *(f"* {what}" for what in missing)]
    return "\n".join(lines)
