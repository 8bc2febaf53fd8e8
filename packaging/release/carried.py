"""The packages of npm and PyPI that carry the program: `npx latchgate` and `uvx latchgate`.

npm picks the package of its platform among the optional dependencies of `latchgate`; pip picks a wheel by its tags. The
program in them is static, so that it needs no other package.
"""

import base64
import hashlib
import io
import json
import time
import zipfile

from . import ROOT, archive

# What Node calls a machine, by Rust's name of it.
NODE = {"x86_64": "x64", "aarch64": "arm64"}
# A static program runs with every C library. These are the oldest that pip knows for both machines.
TAGS = ("manylinux2014", "manylinux_2_17", "musllinux_1_1")
NPM, WHEEL = "packaging/npm", "packaging/wheel"
SUMMARY = "A lock gateway: distributed locks over plain HTTP and JSON. The program, and a gateway for tests in one line"


def of_folder(folder):
    """{path below the folder: (bytes, mode)} of the files there that git knows."""
    return {path.removeprefix(f"{folder}/"): file for path, file in archive.of_repository(folder).items()}


def licence():
    return (ROOT / "LICENSE").read_bytes()


# npm.


def npm_platform(folder, machine, program, licences, version, moment):
    """The package that has the program of one platform, and nothing that runs when it is installed."""
    cpu = NODE[machine]
    manifest = {
        "name": f"@latchgate/linux-{cpu}", "version": version, "license": "Apache-2.0",
        "description": f"The program of latchgate for Linux on {cpu}; install latchgate",
        # pnpm and yarn run nothing of it in a zip.
        "preferUnplugged": True,
        "os": ["linux"], "cpu": [cpu],
    }
    contents = {
        "package.json": (json.dumps(manifest, indent=2).encode() + b"\n", 0o644),
        "README.md": (f"The program of `latchgate` for Linux on {cpu}. Install `latchgate`.\n".encode(), 0o644),
        "LICENSE": (licence(), 0o644), archive.LICENCES: (licences, 0o644),
        "latchgate": (program, 0o755),
    }
    archive.write(folder / f"latchgate-linux-{cpu}-{version}.tgz", "package", contents, moment)


def npm_launcher(folder, version, moment):
    """The package `latchgate`, which finds and starts the program."""
    contents = of_folder(NPM) | {"LICENSE": (licence(), 0o644)}
    archive.write(folder / f"latchgate-{version}.tgz", "package", contents, moment)


# PyPI.


def wheel(folder, machine, program, licences, version, moment):
    """The wheel of a machine."""
    tags = [f"py3-none-{tag}_{machine}" for tag in TAGS]
    info = f"latchgate-{version}.dist-info"
    contents = {name: file for name, file in of_folder(WHEEL).items() if name != "README.md"}
    contents |= {
        "latchgate_program/latchgate": (program, 0o755),
        f"{info}/licenses/LICENSE": (licence(), 0o644),
        f"{info}/licenses/{archive.LICENCES}": (licences, 0o644),
        f"{info}/METADATA": (metadata(version).encode(), 0o644),
        f"{info}/WHEEL": (lines("Wheel-Version: 1.0", "Generator: latchgate", "Root-Is-Purelib: false",
                                *(f"Tag: {tag}" for tag in tags)), 0o644),
        f"{info}/entry_points.txt": (lines("[console_scripts]", "latchgate = latchgate_program:main", "",
                                           "[pytest11]", "latchgate = latchgate_program.pytest_plugin"), 0o644),
    }
    record = [f"{name},sha256={checksum(data)},{len(data)}" for name, (data, _) in sorted(contents.items())]
    contents[f"{info}/RECORD"] = (lines(*record, f"{info}/RECORD,,"), 0o644)
    name = f"latchgate-{version}-py3-none-{'.'.join(f'{tag}_{machine}' for tag in TAGS)}.whl"
    write_zip(folder / name, contents, moment)


def metadata(version):
    return (
        f"Metadata-Version: 2.4\nName: latchgate\nVersion: {version}\nSummary: {SUMMARY}\n"
        "License-Expression: Apache-2.0\n"
        f"License-File: LICENSE\nLicense-File: {archive.LICENCES}\n"
        "Keywords: lock,distributed lock,lease,mutex,semaphore,testing\n"
        "Classifier: Framework :: Pytest\nClassifier: Operating System :: POSIX :: Linux\n"
        "Classifier: Topic :: System :: Distributed Computing\n"
        "Requires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n"
        + (ROOT / WHEEL / "README.md").read_text()
    )


def lines(*each):
    return "".join(f"{line}\n" for line in each).encode()


def checksum(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write_zip(path, contents, moment):
    """Writes {name: (bytes, mode)}; the metadata last, as the format of wheels advises."""
    packed = io.BytesIO()
    # A zip knows no time zone, only even seconds, and no year before 1980.
    when = time.gmtime(max(moment - moment % 2, 315532800))[:6]
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=archive.LEVEL) as made:
        for name, (data, mode) in sorted(contents.items(), key=lambda item: (".dist-info/" in item[0], item[0])):
            member = zipfile.ZipInfo(name, when)
            member.create_system, member.external_attr = 3, (0o100000 | mode) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            made.writestr(member, data)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(packed.getvalue())
