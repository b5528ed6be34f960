"""How `make docs` builds these pages as a site, and the commands as a man page: Sphinx, offline."""

import re
from collections.abc import Iterable
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from features.spec import FeatureSpec
from features.state import features_of
from scheduler.core.settings import describe
from scheduler.policies import POLICIES

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


def _table(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heading, ("---",) * len(heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def settings_of(policy: str) -> str:
    """The table of a policy's settings; sections in bold."""
    return _table(
        ("setting", "default", "unit", "accepts", "what it is"),
        (
            (f"**`{one.name}`**" if one.section else f"`{one.name}`",
             f"`{one.written}`", one.unit, one.accepts, one.description)
            for one in describe(POLICIES[policy].Settings)
        ),
    )  # fmt: skip


# features of a key stand once for all keys, with KEY for its name
_KEYS = {
    "user_gpus": "this user with this many GPUs",
    "user": "this user",
    "template": "this template",
    "vc": "this VC",
}


def _feature(spec: FeatureSpec) -> tuple[str, ...]:
    name, text = spec.name, spec.text
    if spec.family in (*_KEYS, "running"):
        key = next(key for key in _KEYS if name.startswith(f"{key}_"))
        name, text = name.replace(key, "KEY", 1), text.replace(_KEYS[key], "this KEY")
    return f"`{name}`", spec.kind, spec.unit, text


def features_in(families: str) -> str:
    """The table of the features of some families, named with spaces between."""
    rows = dict.fromkeys(_feature(spec) for spec in features_of(families.split()))
    return _table(("feature", "kind", "unit", "meaning"), rows)


def written(text: str) -> str:
    """A page with the tables that code has, in the place of their marks."""
    text = re.sub(r"^<!-- settings: (\S+) -->$", lambda m: settings_of(m[1]), text, flags=re.M)
    return re.sub(r"^<!-- features: (.+) -->$", lambda m: features_in(m[1]), text, flags=re.M)


def _read(app: Any, page: str, source: list[str]) -> None:
    """Add what a forge does on its own (contents, the list of decisions, examples as code), and
    tables that code has."""
    source[0] = written(source[0])
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
