"""What is in an archive, and archives that are the same bytes for the same files."""

import gzip
import io
import tarfile

from . import ROOT, output

# What whoever runs a gateway reads, starts from or looks up, at the same places as in the repository: the pages
# link to each other. All files of these that git knows.
DOCUMENTS = [
    "README.md", "CHANGELOG.md", "SECURITY.md", "config", "docs", "examples", "openapi/latchgate.json",
    "packaging/monitoring",
]
# The licences of what is built into the program; it is made.
LICENCES = "THIRD-PARTY-LICENCES.txt"
# How hard is packed: as much as possible.
LEVEL = 9
# What a package installs elsewhere, and an archive has beside the program.
BESIDES = ["LICENSE", "packaging/latchgate.service"]


def files(*paths):
    """Those files that git knows, with whether they are programs: {path: mode}."""
    modes = {}
    for line in output("git", "ls-files", "--stage", "--", *paths).splitlines():
        facts, _, path = line.partition("\t")
        modes[path] = 0o755 if facts.startswith("100755") else 0o644
    return modes


def write(path, prefix, contents, time):
    """Writes a .tar.gz of {name: (bytes, mode)}, below `prefix`."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (data, mode) in sorted(contents.items()):
            member = tarfile.TarInfo(f"{prefix}/{name}")
            # Owner and group are 0 and have no names, unless something else is said.
            member.size, member.mode, member.mtime = len(data), mode, time
            archive.addfile(member, io.BytesIO(data))
    path.parent.mkdir(parents=True, exist_ok=True)
    # Neither the time nor the name of what was packed.
    path.write_bytes(gzip.compress(packed.getvalue(), compresslevel=LEVEL, mtime=0))


def of_repository(*paths):
    """{path: (bytes, mode)} of files that git knows."""
    return {path: ((ROOT / path).read_bytes(), mode) for path, mode in files(*paths).items()}


def of_folder(folder):
    """The same of all files of a folder, by their paths in it."""
    return {
        file.relative_to(folder).as_posix(): (file.read_bytes(), 0o755 if file.stat().st_mode & 0o100 else 0o644)
        for file in folder.rglob("*")
        if file.is_file()
    }
