"""Makes the site of the documents: the pages as they are in the repository, at the same places.

MkDocs, because it comes from PyPI by hash in seconds, follows every link and anchor, and its search needs no server.
Nothing of the site is loaded from elsewhere.
"""

import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

from mkdocs.commands.build import build
from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).resolve().parents[2]
SOURCE, SITE = ROOT / "target/site-source", ROOT / "target/site"
FENCE = re.compile(r"^\s*```")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
CSS = """img { max-width: 100% }
table { display: block; overflow-x: auto }
pre { overflow-x: auto }
"""


def listed():
    """The pages, and everything else that git knows."""
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    files = {path for path in files if path}
    return {path for path in files if path.endswith(".md") and not path.startswith((".", "tests/"))}, files


def target(page, link):
    """The path in the repository to which a link of a page leads, and its anchor; none if it leads elsewhere."""
    path, _, anchor = link.partition("#")
    if "://" in link or link.startswith("mailto:") or not path:
        return None, anchor
    parts = []
    for part in (PurePosixPath(page).parent / path).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts), anchor


def adapted(page, text, pages, needed):
    """A page as Python-Markdown reads it; notes in `needed` which files it links to."""

    def link(match):
        path, anchor = target(page, match[2])
        if path is None:
            return match[0]
        # A folder is its page, as a forge shows it.
        if f"{path}/README.md" in pages:
            return f"{match[1]}{match[2].partition('#')[0].rstrip('/')}/README.md{'#' + anchor if anchor else ''}{match[3]}"
        needed.add(path)
        return match[0]

    lines, inside, indent = [], False, ""
    for line in text.splitlines():
        if FENCE.match(line):
            inside = not inside
            indent = re.match(r" *", line)[0]
        elif not inside:
            indent = re.match(r" *(?=[*-] |\d+\. )", line)[0] if re.match(r" {2,3}([*-] |\d+\. )", line) else ""
            # Text in backticks is no link.
            line = "".join(LINK.sub(link, part) if at % 2 == 0 else part for at, part in enumerate(re.split(r"(`[^`]*`)", line)))
        # What belongs to an item of a list stands four columns to the right there.
        lines.append("    " + line[len(indent):] if 0 < len(indent) < 4 and line.startswith(indent) else line)
    return "\n".join(lines) + "\n"


def anchors_as_on_a_forge(title, _separator):
    kept = re.sub(r"[^\w\- ]", "", title.strip().lower())
    return kept.replace(" ", "-")


def stage():
    """Copies the pages, and the files that they link to."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    pages, files = listed()
    needed = set()
    for page in pages:
        made = SOURCE / page
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(adapted(page, (ROOT / page).read_text(), pages, needed))
    for path in needed - pages:
        if path in files:
            (SOURCE / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, SOURCE / path)
        elif not (ROOT / path).is_dir():
            sys.exit(f"scripts/docs: a page links to {path}, which is not there")
    (SOURCE / "site.css").write_text(CSS)


def navigation():
    """The sections of the index, with their pages."""
    sections = re.split(r"(?m)^## ", (ROOT / "docs/README.md").read_text())[1:]
    made = [{"Latchgate": "README.md"}, {"All pages": "docs/README.md"}]
    for section in sections:
        title, _, text = section.partition("\n")
        found = [target("docs/README.md", link)[0] for link in re.findall(r"^\| \[[^]]*\]\(([^)]*)\)", text, re.M)]
        if entries := [path for path in found if path.endswith(".md")]:
            made.append({title: entries})
    return made


class Complaints(logging.Handler):
    """Keeps what MkDocs only warns of."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.found = []

    def emit(self, record):
        self.found.append(record.getMessage())


def main():
    stage()
    complaints = Complaints()
    logging.getLogger("mkdocs").addHandler(complaints)
    config = MkDocsConfig()
    config.load_dict({
        "site_name": "Latchgate",
        "docs_dir": str(SOURCE),
        "site_dir": str(SITE),
        "nav": navigation(),
        "theme": {"name": "mkdocs", "highlightjs": False, "color_mode": "auto", "user_color_mode_toggle": True, "nav_style": "dark"},
        "extra_css": ["site.css"],
        # A page is read from a file, too.
        "use_directory_urls": False,
        "plugins": ["search"],
        "markdown_extensions": [{"toc": {"slugify": anchors_as_on_a_forge, "toc_depth": 3}}, "pymdownx.superfences"],
        "validation": {
            "omitted_files": "ignore", "not_found": "warn", "absolute_links": "warn", "unrecognized_links": "ignore",
            "anchors": "warn",
        },
    })
    errors, warnings = config.validate()
    if errors or warnings:
        sys.exit(f"scripts/docs: {errors} {warnings}")
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    elsewhere = [
        f"{page.relative_to(SITE)}: {found}"
        for page in SITE.rglob("*.html")
        for found in re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?://[^"]*)"', page.read_text())
    ]
    for text in [*complaints.found, *elsewhere]:
        print(f"scripts/docs: {text}", file=sys.stderr)
    if complaints.found or elsewhere:
        sys.exit(1)
    print(f"scripts/docs: {len(list(SITE.rglob('*.html')))} pages in {SITE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
