"""A real service (the demo's, with fake GPUs and real processes) and a real browser.

Only run when asked for, by `make test-browser`: they take a minute and need Chromium.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

WANTED = os.environ.get("PELLUCID_BROWSER") == "1"
PATIENCE_MS = 1000 * PATIENCE_S
SHOTS = Path("data/browser")
collect_ignore_glob = [] if WANTED else ["test_*.py"]


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def chromium(playwright: Playwright) -> Browser:
    """The system's Chromium, launched."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    assert found, "no Chromium: make test-browser installs it"
    args = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=found, args=args)


if WANTED:
    import uvicorn
    from playwright.sync_api import (
        Browser,
        BrowserContext,
        ConsoleMessage,
        Page,
        Request,
        Response,
        expect,
        sync_playwright,
    )

    from pipeline.demo.plan import JOB, plan
    from pipeline.demo.run import OPERATOR, Running, feed, service, unfinished
    from scheduler.service.log.store.schema import prepare
    from scheduler.service.log.store.store import Store
    from tests.scheduler.service.pages.conftest import begin, submit_many

    Enter = Callable[..., Page]

    expect.set_options(timeout=PATIENCE_MS)  # for what is seen, however busy the machine

    def window(browser: Browser, **options: Any) -> BrowserContext:
        """A browser window that waits for its pages as long as every test waits for anything."""
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        return context

    @dataclass
    class Mortal:
        """A service with the settings it is started again with."""

        running: Running
        config: Path
        process: subprocess.Popen[bytes] | None = None

        def kill(self) -> None:
            """Kill it with all its processes."""
            process = self.process or self.running.process
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

        def start(self) -> None:
            """Start it again, over the same log."""
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.cli", "serve", "--config", self.config],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    @pytest.fixture(scope="session")
    def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
        """The demo's service after its first wave: jobs run, share, wait and are over."""
        told = threading.Event()
        with service(tmp_path_factory.mktemp("demo"), _port()) as found:
            arrivals = [sent for sent in plan(240, 3.0, seed=0) if sent.after_s < 45]
            feeder = threading.Thread(target=feed, args=(found, arrivals, told.is_set))
            feeder.start()
            with found.client() as client:
                until(
                    lambda: _count(client, "running") >= 6 and _count(client, "ended") >= 15,
                    "six running jobs and 15 that ended",
                )
            try:
                yield found
            finally:
                told.set()
                feeder.join()

    @dataclass
    class LinedUp:
        """Ids of a job of ada's that waits, and of one of grace's."""

        mine: str
        strangers: str

    @pytest.fixture
    def lined_up(running: Running) -> Iterator[LinedUp]:
        """More work than vision has GPUs, for as long as the test takes; then it is cancelled."""
        ids = []
        for user in ("ada", "grace") * 4:  # more of each than there are nodes, whoever goes first
            with running.client(user) as client:
                command = [sys.executable, "-I", str(JOB), "--model", "resnet50"]
                command += ["--seconds", "900"]
                job = client.submit(command, gpus=8, vc="vision", name="waits-long", share=False)
                ids.append((user, job["job_id"]))
        with running.client(OPERATOR) as client:

            def waiting() -> dict[str, str] | None:
                jobs = client.jobs(phase="queued", vc="vision")
                queued = {job["job_id"] for job in jobs if job["reason"]}  # it was passed over
                found = {who: job_id for who, job_id in ids if job_id in queued}
                return found if len(found) == 2 else None

            try:
                found = until(waiting, "a job of each to wait")
                assert found is not None
                yield LinedUp(found["ada"], found["grace"])
            finally:
                for job_id in {job_id for _, job_id in ids} & set(unfinished(client)):
                    client.cancel(job_id)

    @pytest.fixture(scope="session")
    def browser() -> Iterator[Browser]:
        """The system's Chromium."""
        with sync_playwright() as playwright:
            launched = chromium(playwright)
            yield launched
            launched.close()

    @pytest.fixture(scope="session")
    def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mortal]:
        """A service that is killed, and started again."""
        folder = tmp_path_factory.mktemp("mortal")
        with service(folder, _port()) as found:
            yield (again := Mortal(found, folder / "service.yaml"))
        if again.process is not None:
            again.process.terminate()
            again.process.wait(120)

    @pytest.fixture(scope="session")
    def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
        """Pages over a log in which 5,000 jobs of Ada's wait."""
        folder = tmp_path_factory.mktemp("crowded")
        store = Store(f"sqlite:///{folder}/pellucid.db")
        prepare(store)
        lived = begin(store, folder)
        asked = [
            {"name": f"sweep-lr{i}-seed{i % 7}", "gpus": (1, 2, 4)[i % 3], "vc": "vision"}
            for i in range(5000)
        ]
        submit_many(lived, "ada.byron", asked)
        server = uvicorn.Server(uvicorn.Config(lived.app, port=_port(), log_level="error"))
        thread = threading.Thread(target=server.run)
        thread.start()
        until(lambda: server.started, "the server to start")
        address = f"http://127.0.0.1:{server.config.port}"
        yield Running(address, lived.secrets, None, folder / "none")  # type: ignore[arg-type]
        server.should_exit = server.force_exit = True
        thread.join(120)
        store.close()

    @pytest.fixture
    def enter(running: Running, browser: Browser) -> Iterator[Enter]:
        """Opens a window, logs somebody in by the form, and minds what the pages do.

        No request may leave the host, no script may fail, nothing may be missing.
        """
        contexts: list[BrowserContext] = []
        wrong: list[str] = []

        def asked(request: Request) -> None:
            if not request.url.startswith(("http://127.0.0.1:", "data:")):
                wrong.append(f"a request left the host: {request.url}")

        def said(message: ConsoleMessage) -> None:
            if message.type == "error" and "status of 404" not in message.text:
                wrong.append(f"the console says {message.text}")

        def answered(response: Response) -> None:
            if response.status >= 400 and response.request.resource_type != "document":
                wrong.append(f"{response.status} for {response.url}")

        def opened(
            who: str = OPERATOR,
            scheme: str = "light",
            width: int = 1280,
            at: Running = running,
            dies: bool = False,
        ) -> Page:
            context = window(
                browser,
                color_scheme=scheme,
                viewport={"width": width, "height": 844 if width < 600 else 900},
                base_url=at.address,
                reduced_motion="reduce",
            )
            contexts.append(context)
            context.on("request", asked)
            page = context.new_page()
            page.on("pageerror", lambda error: wrong.append(f"a script failed: {error}"))
            if not dies:  # a browser says so itself when nobody answers
                page.on("console", said)
                page.on("response", answered)
            return _logged_in(page, at.secrets[who]) if who else page

        yield opened
        for context in contexts:
            context.close()
        assert not wrong, wrong

    def _logged_in(page: Page, secret: str) -> Page:
        page.goto("/")
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_selector("nav[aria-label=Pages]")
        return page

    def shoot(page: Page, name: str) -> None:
        """Keep a screenshot of the whole page."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def _count(client: object, phase: str) -> int:
    return sum(1 for _ in client.jobs(phase=phase))  # type: ignore[attr-defined]
