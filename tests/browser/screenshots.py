"""The screenshots of docs/pages.md, taken anew from a demo: `make screenshots`."""

from __future__ import annotations

import argparse
import io
import re
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from pipeline.demo.plan import JOB, plan
from pipeline.demo.run import OPERATOR, Running, feed, service
from scheduler.service.client import Client
from tests.browser.conftest import _port, chromium
from tests.waiting import until

WIDTHS = {1400: 1500, 390: 1600}  # the highest picture of each width, pixels
MOST_BYTES = 200 * 1024
COLOURS = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    out: Path = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder, service(Path(folder, "demo"), _port()) as demo:
        arrivals = [sent for sent in plan(240, 3.0, seed=0) if sent.after_s < 45]
        stopping = threading.Event()
        feeder = threading.Thread(target=feed, args=(demo, arrivals, stopping.is_set))
        feeder.start()
        feeder.join()
        try:
            with sync_playwright() as playwright:
                browser = chromium(playwright)
                _walk(demo, browser, out)
                browser.close()
        finally:
            stopping.set()


def _walk(demo: Running, browser: Browser, out: Path) -> None:
    job = _sweep(demo)
    for width in WIDTHS:
        ada, olga = (_enter(demo, browser, who, width) for who in ("ada", OPERATOR))

        def shot(page: Page, path: str, name: str, shown: str = "main", width: int = width) -> Page:
            for patience_ms in (15_000, 15_000, 60_000):  # what the analyst says may take its time
                page.goto(path)
                page.wait_for_selector(".live[data-state=live]")
                with suppress(PlaywrightTimeout):
                    page.wait_for_selector(shown, timeout=patience_ms)
                    break
            else:
                raise TimeoutError(f"{path}: no {shown}")
            page.wait_for_timeout(500)
            _keep(page, out / f"page-{name}-{width}.png", WIDTHS[width])
            return page

        shot(ada, f"/jobs/{job}", "job", "#part-blockers .finish")
        shot(ada, "/", "now", ".groups")
        shot(ada, "/?vc=vision", "vc", "svg.runs")
        shot(olga, "/nodes", "nodes")
        shot(olga, "/models", "models", "#main .drawing svg")
        ada.goto(f"/jobs/{job}/share")
        ada.get_by_role("button", name="Make a link").click()
        guest = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="light")
        guest.goto(ada.locator("[data-link]").input_value())
        guest.wait_for_selector("svg.runs")
        _keep(guest, out / f"page-shared-{width}.png", WIDTHS[width])


def _sweep(demo: Running) -> str:
    """More of Ada's jobs than vision has GPUs, among others'. The id of one that waits."""
    with demo.client("ada") as ada, demo.client("grace") as grace:
        for i in range(36):
            _send(ada, f"sweep-lr{i}", (8, 4, 2)[i % 3], 60 + 5 * i)
            if i % 3 == 0:
                _send(grace, f"detect-{i}", 4, 90)

        def found() -> list[str]:
            waiting = [j for j in ada.jobs(phase="queued", vc="vision") if j["gpus"] == 8]
            return [j["job_id"] for j in waiting if j["start_p90"] and j["start_p50"] > time.time()]

        return until(found, "a job that waits as it should")[0]


def _send(client: Client, name: str, gpus: int, seconds: float) -> None:
    command = [sys.executable, "-I", str(JOB), "--model", "resnet50", "--seconds", str(seconds)]
    client.submit(command, gpus=gpus, vc="vision", name=name, time_limit_s=900.0)


def _enter(demo: Running, browser: Browser, who: str, width: int) -> Page:
    page = browser.new_page(
        base_url=demo.address, viewport={"width": width, "height": 900}, color_scheme="light"
    )
    page.goto("/")
    page.get_by_label("Token").fill(demo.secrets[who])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_selector("nav[aria-label=Pages]")
    return page


def _keep(page: Page, path: Path, most: int) -> None:
    """Save what fits of a page, in few colours, so that it is small."""
    shown = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    shown = shown.crop((0, 0, shown.width, min(shown.height, most)))
    shown.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    wide = int(re.findall(r"\d+", path.stem)[-1])
    assert size < MOST_BYTES, f"{path}: {size:,} bytes"
    assert shown.width == wide, f"{path}: {shown.width} px wide"
    print(f"{path}: {shown.width} x {shown.height}, {size // 1024} KiB")


if __name__ == "__main__":
    main()
