"""Counts violations of accessibility rules that axe finds on pages, in the system's Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

WIDTHS = (1400, 390)


def violations(addresses: Iterable[str]) -> dict[str, int]:
    """Open each page at several widths. Return the number of violations by page; pages without any
    are left out.

    Raises RuntimeError where Chromium is not installed.
    """
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if found is None:
        raise RuntimeError("no Chromium: make test-browser installs it; --quick does without")
    counted: dict[str, int] = {}
    with sync_playwright() as playwright:
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=found, args=args)
        pages = [browser.new_page(viewport={"width": wide, "height": 900}) for wide in WIDTHS]
        for address in addresses:
            for page in pages:
                page.goto(address)
                counted[address] = counted.get(address, 0) + Axe().run(page).violations_count
        browser.close()
    return {address: count for address, count in counted.items() if count}
