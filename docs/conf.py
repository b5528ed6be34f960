"""How `make docs` builds these pages as a site, and the commands as a man page: Sphinx, offline."""

import re
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

project = "Pellucid"
author = "Pellucid"
release = installed("pellucid")
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = [
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**.md", "deploy/**.md",
    "reproductions/README.md",
]  # fmt: skip
exclude_patterns = ["docs/_build/html", "docs/_build/man"]
suppress_warnings = ["misc.highlighting_failure"]
myst_heading_anchors = 4  # a heading is linked by its words, as on a forge
html_theme = "furo"
html_title = "Pellucid"
html_extra_path = ["index.html"]
html_copy_source = False
_SUMMARY = "a scheduler for GPU clusters that can say why"
man_pages = [("docs/_build/commands", "pellucid", _SUMMARY, "", 1)]

_INDEX = Path(__file__).with_name("README.md")
_LINK = re.compile(r"\]\(([\w./-]+)\.md\)")


def _contents() -> str:
    """The tables of contents of the site: what `docs/README.md` links, under its headings."""
    chapters = {"Reference": ["docs/_build/commands"]}
    chapters["Reference"] += [
        "CHANGELOG",
        "SECURITY",
        "deploy/slurm/README",
        "reproductions/README",
    ]
    named = set(chapters["Reference"])
    heading = ""
    for line in _INDEX.read_text().splitlines():
        if found := re.fullmatch(r"\*\*(.+)\*\*", line):
            heading = found[1]
        for link in _LINK.findall(line) if heading else ():
            page = f"docs/{link}".replace("docs/../", "")
            if page not in named:
                named.add(page)
                chapters.setdefault(heading, []).append(page)
    root = _INDEX.parents[1]
    rest = (str(path.relative_to(root))[:-3] for path in sorted(_INDEX.parent.rglob("*.md")))
    chapters["Reference"] += [page for page in rest if page not in named]
    tables = (
        f"```{{toctree}}\n:hidden:\n:caption: {chapter}\n" + "\n".join(pages) + "\n```"
        for chapter, pages in sorted(chapters.items(), key=lambda item: item[0] == "Reference")
    )
    return "\n\n" + "\n\n".join(tables) + "\n"


def _read(app: Any, page: str, source: list[str]) -> None:
    """Add what a forge does on its own: contents, the list of decisions, examples as code."""
    if page == root_doc:
        source[0] += _contents()
    elif page == "docs/README":
        source[0] = source[0].replace("](decisions/)", "](decisions/0001-plain-python-engine.md)")
    elif page == "docs/_build/commands":
        source[0] = re.sub(r"^  (?=pellucid |\w+=)", "    ", source[0], flags=re.MULTILINE)


# what axe finds in pages of the theme: landmarks and headings without a name or a level, code that
# scrolls and cannot be reached by keyboard, a heading without words above a first column
_MENDS = (
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">'),
    ('<aside class="toc-drawer', '<aside aria-label="On this page" class="toc-drawer'),
    ('role="heading"', 'role="heading" aria-level="2"'),
    ("<pre>", '<pre tabindex="0">'),
    ('<th class="head"><p></p></th>', '<td class="head"></td>'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
)


def _accessible(app: Any, failed: Exception | None) -> None:
    if failed is None and app.builder.format == "html":
        for page in Path(app.outdir).rglob("*.html"):
            text = page.read_text()
            for found, mended in _MENDS:
                text = text.replace(found, mended)
            if "<h1" not in text:  # the page that searches
                text = re.sub(r'(<article role="main"[^>]*>)', r"\1<h1>Search</h1>", text)
            page.write_text(text)


def setup(app: Any) -> None:
    app.connect("source-read", _read)
    app.connect("build-finished", _accessible)
