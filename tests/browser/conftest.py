"""A real service (the demo's, with fake GPUs and real processes) and a real browser.

Only run when asked for, by `make test-browser`: they take a minute and need Chromium.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

WANTED = os.environ.get("PELLUCID_BROWSER") == "1"
SHOTS = Path("data/browser")
collect_ignore = [] if WANTED else ["test_site.py", "test_walk.py"]

if WANTED:
    from playwright.sync_api import (
        Browser,
        BrowserContext,
        ConsoleMessage,
        Page,
        Request,
        Response,
        sync_playwright,
    )

    from pipeline.demo.plan import plan
    from pipeline.demo.run import OPERATOR, Running, feed, service

    Enter = Callable[..., Page]

    @pytest.fixture(scope="session")
    def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
        """The demo's service after its first wave: jobs run, share, wait and are over."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        told = threading.Event()
        with service(tmp_path_factory.mktemp("demo"), port) as found:
            arrivals = [sent for sent in plan(240, 3.0, seed=0) if sent.after_s < 45]
            feeder = threading.Thread(target=feed, args=(found, arrivals, told.is_set))
            feeder.start()
            with found.client() as client:
                _until(lambda: _count(client, "running") >= 6 and _count(client, "ended") >= 15)
            try:
                yield found
            finally:
                told.set()
                feeder.join()

    @pytest.fixture(scope="session")
    def browser() -> Iterator[Browser]:
        """The system's Chromium."""
        chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
        assert chromium, "no Chromium: make test-browser installs it"
        with sync_playwright() as playwright:
            launched = playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox"] if os.geteuid() == 0 else []
            )
            yield launched
            launched.close()

    @pytest.fixture
    def enter(running: Running, browser: Browser) -> Iterator[Enter]:
        """Opens a window, logs somebody in by the form, and minds what the pages do.

        No request may leave the host, no script may fail, nothing may be missing.
        """
        contexts: list[BrowserContext] = []
        wrong: list[str] = []

        def asked(request: Request) -> None:
            if not request.url.startswith((running.address, "data:")):
                wrong.append(f"a request left the host: {request.url}")

        def said(message: ConsoleMessage) -> None:
            if message.type == "error" and "status of 404" not in message.text:
                wrong.append(f"the console says {message.text}")

        def answered(response: Response) -> None:
            if response.status >= 400 and response.request.resource_type != "document":
                wrong.append(f"{response.status} for {response.url}")

        def opened(who: str = OPERATOR, scheme: str = "light", width: int = 1280) -> Page:
            context = browser.new_context(
                color_scheme=scheme,  # type: ignore[arg-type]
                viewport={"width": width, "height": 844 if width < 600 else 900},
                base_url=running.address,
                reduced_motion="reduce",
            )
            contexts.append(context)
            context.on("request", asked)
            page = context.new_page()
            page.on("pageerror", lambda error: wrong.append(f"a script failed: {error}"))
            page.on("console", said)
            page.on("response", answered)
            page.goto("/")
            page.get_by_label("Token").fill(running.secrets[who])
            page.get_by_role("button", name="Log in").click()
            page.wait_for_selector("nav[aria-label=Pages]")
            return page

        yield opened
        for context in contexts:
            context.close()
        assert not wrong, wrong

    def shoot(page: Page, name: str) -> None:
        """Keep a screenshot of the whole page."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def _count(client: object, phase: str) -> int:
    return sum(1 for _ in client.jobs(phase=phase))  # type: ignore[attr-defined]


def _until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.3)
