"""The output of a job that runs, on its page: its last line is seen, as long as that is wanted."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, Page, Route, expect

import scheduler.service.pages
from tests.browser.conftest import window

STATIC = Path(scheduler.service.pages.__file__).parent / "static"
SCRIPTS = ("vendor/htmx.min.js", "times.js", "app.js")


def part(lines: int) -> str:
    """What the job's page has of its output, as `_job.html` writes it."""
    text = "\n".join(f"step {i}" for i in range(1, lines + 1))
    return (
        '<div id="part-tail" hx-get="/tail" hx-trigger="again from:body" hx-target="this" '
        f'hx-swap="outerHTML"><pre class="output">{text}</pre></div>'
    )


def test_output_is_seen_at_its_end_unless_its_reader_scrolled_up(browser: Browser) -> None:
    lines = [100]
    page = window(browser).new_page()

    def answered(route: Route) -> None:
        name = route.request.url.removeprefix("http://pellucid.test/")
        if name in SCRIPTS:
            route.fulfill(path=STATIC / name, content_type="text/javascript")
        elif name == "style.css":
            route.fulfill(path=STATIC / name, content_type="text/css")
        elif name == "tail":
            lines[0] += 100
            route.fulfill(body=part(lines[0]), content_type="text/html")
        else:
            scripts = "".join(f'<script src="/{one}" defer></script>' for one in SCRIPTS)
            head = f'<link rel="stylesheet" href="/style.css">{scripts}'
            body = f'<p id="gone" hidden></p>{part(lines[0])}'
            html = f"<!doctype html><head>{head}</head><body>{body}</body>"
            route.fulfill(body=html, content_type="text/html")

    page.route("**/*", answered)
    page.goto("http://pellucid.test/")
    assert _below(page) < 2
    _again(page, 200)
    assert _below(page) < 2
    page.locator(".output").evaluate("box => { box.scrollTop = 300; }")
    _again(page, 300)
    assert page.locator(".output").evaluate("box => box.scrollTop") == 300
    page.context.close()


def _again(page: Page, lines: int) -> None:
    page.evaluate("htmx.trigger(document.body, 'again')")
    expect(page.locator(".output")).to_contain_text(f"step {lines}")


def _below(page: Page) -> float:
    """How many pixels of the output are below what is seen of it."""
    found = page.locator(".output").evaluate(
        "box => [box.scrollHeight, box.scrollTop, box.clientHeight]"
    )
    height, top, seen = found
    assert height > 2 * seen, "it is long enough to scroll"
    return float(height - top - seen)
