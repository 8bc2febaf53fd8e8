"""The licences of what is built into the program, which whoever gets the program must get as well."""

import json
import re
from pathlib import Path

from . import output

FILES = re.compile(r"^(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE|AUTHORS)\b.*$", re.I)
LINE = "=" * 80
# Of the C library that a static program has in it; it comes with Rust, without this.
MUSL = """Copyright (C) 2005-2020 Rich Felker, et al.

Permission is hereby granted, free of charge, to any person obtaining
a copy of this software and associated documentation files (the
"Software"), to deal in the Software without restriction, including
without limitation the rights to use, copy, modify, merge, publish,
distribute, sublicense, and/or sell copies of the Software, and to
permit persons to whom the Software is furnished to do so, subject to
the following conditions:

The above copyright notice and this permission notice shall be
included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND,
EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT.
IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY
CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT,
TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE
SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""


def texts(folder):
    """What the files say that hold a licence, by their names."""
    found = (file for file in folder.iterdir() if FILES.match(file.name) and file.is_file())
    return [file.read_text(errors="replace").strip() for file in sorted(found)]


def third_party(bill, triple, is_static):
    """All of them for a target, each text once, under the names of all that have it."""
    metadata = json.loads(
        output("cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", triple)
    )
    folders = {
        (package["name"], package["version"]): Path(package["manifest_path"]).parent
        for package in metadata["packages"]
        if package["source"]
    }
    users, silent = {}, []
    for component in sorted(json.loads(bill)["components"], key=lambda c: (c["name"], c["version"])):
        folder = folders.get((component["name"], component["version"]))
        if not folder:
            continue
        name = f"{component['name']} {component['version']} ({component['licenses'][0]['expression']})"
        said = texts(folder)
        if not said:
            silent.append(name)
        for text in said:
            users.setdefault(text, []).append(name)
    if is_static:
        users[MUSL] = ["musl (MIT)"]
    parts = [
        "The parts of this program that others wrote, with their licences. Its own licence is Apache-2.0, and so is that of the\n"
        "standard library of Rust (by the contributors of the Rust project)."
    ]
    if silent:
        parts.append("These come without a text of their licence:\n" + "\n".join(f"  {name}" for name in silent))
    for text, names in users.items():
        parts.append("\n".join([LINE, *names, LINE, "", text]))
    return "\n\n".join(parts) + "\n"
