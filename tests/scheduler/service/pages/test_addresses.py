"""The pages that the browser tests open are all the pages there are."""

from __future__ import annotations

from fastapi.routing import iter_route_contexts
from starlette.routing import compile_path

from tests.browser.addresses import ELSEWHERE, addresses
from tests.scheduler.service.pages.conftest import Lived


def test_every_page_is_opened_in_a_browser(lived: Lived) -> None:
    opened = [path.partition("?")[0] for _, path in addresses("waits", "runs", "ended")]
    pages = {
        route.path
        for route in iter_route_contexts(lived.app.routes)
        if route.path and "GET" in (route.methods or ()) and not route.path.startswith("/api/")
    }
    assert len(pages) > 20
    assert pages >= ELSEWHERE
    for page in pages - ELSEWHERE:
        pattern, *_ = compile_path(page)
        assert any(pattern.match(path) for path in opened), f"{page}: add it to addresses.py"
