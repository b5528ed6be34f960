"""The documentation is short, and in plain words of the field."""

from __future__ import annotations

import re

import pytest

from benchmarks.pages import ROOT, pages

MOST = 30_000  # words of all pages, code and the cells of tables included
DIALECT = re.compile(
    r"\b(told|said|anew|yardsticks?|reckon\w*|whose|foretold|of ours)\b", re.IGNORECASE
)
ITS_OWN = {"docs/reasons.md": {"whose"}}  # a sentence of the code
CODE = "scheduler", "pipeline", "features", "models", "profiler"
IN_CODE = re.compile(  # also within a name: `_told`
    r"(?<![a-z])(un|fore)?(told|said|anew|yardsticks?|reckon\w*)(?![a-z])", re.IGNORECASE
)
LEFT = 6  # names of recorded files and fields, and a sentence; may only fall


def test_all_pages_together_are_short() -> None:
    found = sum(len(re.findall(r"\S*\w\S*", page.read_text())) for page in pages())
    assert found <= MOST, (
        f"{found} words, {found - MOST} above the limit: shorten the page that you add to"
    )


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in pages()])
def test_a_page_uses_plain_words(page: str) -> None:
    found = {word.lower() for word in DIALECT.findall((ROOT / page).read_text())}
    assert found <= ITS_OWN.get(page, set())


def test_the_code_uses_plain_words() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in CODE
        for kind in ("*.py", "*.html")
        for path in (ROOT / folder).rglob(kind)
        for line in path.read_text().splitlines()
        if IN_CODE.search(line)
    ]
    assert len(found) <= LEFT, "\n".join(found)
