"""The documentation as a site (`make docs`): readable by everybody, at any width, offline."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import window
from tests.browser.test_walk import accessible, fits

SITE = Path("docs/_build/html")
PAGES = sorted(page.relative_to(SITE) for page in SITE.rglob("*.html") if page.stem != "index")


def test_the_site_was_built() -> None:
    assert len(PAGES) > 30, "make docs builds it"


@pytest.mark.parametrize(("width", "scheme", "every"), [(1400, "light", 2), (390, "dark", 5)])
def test_the_pages_of_the_site_are_accessible(
    browser: Browser, width: int, scheme: str, every: int
) -> None:
    context = window(
        browser,
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    left: list[str] = []
    context.on("request", lambda asked: left.append(asked.url))
    try:
        page = context.new_page()
        for name in (*PAGES[::every], Path("search.html")):
            page.goto((SITE / name).resolve().as_uri())
            accessible(page, str(name))
            fits(page, str(name))
    finally:
        context.close()
    assert not [url for url in left if not url.startswith(("file:", "data:"))]
