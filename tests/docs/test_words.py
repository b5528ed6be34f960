"""The documentation is short, and in plain words of the field."""

from __future__ import annotations

import re

import pytest

from benchmarks.pages import ROOT, pages

MOST = 30_500  # words of all pages, code and the cells of tables included
DIALECT = re.compile(
    r"\b(told|said|anew|yardsticks?|reckon\w*|whose|foretold|of ours)\b", re.IGNORECASE
)
ITS_OWN = {"docs/reasons.md": {"whose"}}  # a sentence of the code


def test_all_pages_together_are_short() -> None:
    found = sum(len(re.findall(r"\S*\w\S*", page.read_text())) for page in pages())
    assert found <= MOST, f"{found} words; say it shorter, or where it belongs"


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in pages()])
def test_a_page_uses_plain_words(page: str) -> None:
    found = {word.lower() for word in DIALECT.findall((ROOT / page).read_text())}
    assert found <= ITS_OWN.get(page, set())
