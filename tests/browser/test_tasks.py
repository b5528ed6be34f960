"""Tasks that people come with, each done as somebody new would: by what the pages say."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from playwright.sync_api import Page, expect

from pipeline.demo.run import OPERATOR, Running
from tests.browser.conftest import Enter, LinedUp
from tests.browser.test_walk import accessible, fits
from tests.waiting import until

SAYS = """
import time
for i in range(600):
    print(f'epoch {i}/600', flush=True)
    time.sleep(1)
"""
CRASHES = "import sys; sys.exit('torch.OutOfMemoryError: CUDA out of memory.')"


@pytest.fixture
def mine(running: Running, request: pytest.FixtureRequest) -> str:
    """The id of ada's job, which runs the program that the test names."""
    with running.client("ada") as client:
        command = [sys.executable, "-c", request.param]
        job_id = client.submit(command, gpus=1, vc="language", name="ten-tasks")["job_id"]
        until(lambda: client.job(job_id)["started_at"], "it to start")
    return str(job_id)


def go(page: Page, name: str) -> None:
    page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()


def find(page: Page, job_id: str) -> None:
    go(page, "Jobs")
    page.get_by_label("ID or name").fill(job_id)
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name=job_id, exact=True).click()


def test_why_and_sooner(enter: Enter, lined_up: LinedUp) -> None:
    page = enter("ada")
    find(page, lined_up.mine)
    expect(page.locator("main")).to_contain_text("It needs 8 GPUs")
    expect(page.locator("main")).to_contain_text(re.compile("It would start if"))


@pytest.mark.parametrize("mine", [SAYS], indirect=True, ids=["prints"])
def test_the_output_is_live(enter: Enter, running: Running, mine: str) -> None:
    page = enter("ada")
    find(page, mine)
    expect(page.locator(".output")).to_contain_text("epoch 3/600")
    expect(page.locator(".output")).to_contain_text("epoch 6/600")
    expect(page.locator(".progress .meter").first).to_be_visible()
    with running.client("ada") as client:
        client.cancel(mine)


@pytest.mark.usefixtures("lined_up")
def test_half_an_array_is_cancelled(running: Running) -> None:
    with running.client("ada") as client:
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        array = client.submit_array(command, "0-3", gpus=8, vc="vision", name="half")["array_id"]
        pellucid = [sys.executable, "-m", "pipeline.cli", "cancel", f"{array}_[0-1]"]
        known = {"PELLUCID_SERVER": running.address, "PELLUCID_TOKEN": running.secrets["ada"]}
        subprocess.run(pellucid, env=os.environ | known, check=True)

        def left() -> set[str]:
            return {job["job_id"] for job in client.jobs(over=False) if job["name"] == "half"}

        # A job is over once the decider has read the request.
        until(lambda: left() == {f"{array}_2", f"{array}_3"}, "the first two to be over")
        assert not any(client.job(job_id)["cancel_asked"] for job_id in left())
        for job_id in left():
            client.cancel(job_id)


@pytest.mark.usefixtures("lined_up")
def test_half_an_array_is_changed_on_its_page(enter: Enter, running: Running) -> None:
    with running.client("ada") as client:
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        array = client.submit_array(command, "0-9", gpus=8, vc="vision", name="half")["array_id"]
        until(lambda: client.job(f"{array}_9")["phase"] == "queued", "it to wait")
        page = enter("ada")
        find(page, f"{array}_3")
        page.get_by_role("link", name=array, exact=True).click()
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            fits(page, "array")
            accessible(page, "array")
        page.get_by_role("textbox", name="Tasks").fill("5-9")
        page.locator("input[name=gpus]").fill("2")
        page.get_by_role("button", name="Change", exact=True).click()
        expect(page.locator("main")).to_contain_text("8 → 2")
        accessible(page, "tasks")
        page.get_by_role("button", name="Change 5 tasks").click()
        expect(page.get_by_role("heading", name="half")).to_be_visible()
        asked = [client.job(f"{array}_{n}")["gpus"] for n in range(10)]
        assert asked == [8] * 5 + [2] * 5
        for n in range(10):
            client.cancel(f"{array}_{n}")


@pytest.mark.parametrize("mine", [CRASHES], indirect=True, ids=["crashes"])
def test_after_a_crash_of_memory_it_is_run_again_alone(enter: Enter, mine: str) -> None:
    page = enter("ada")
    find(page, mine)
    expect(page.locator("main")).to_contain_text("ran out of memory")
    page.get_by_role("link", name=re.compile("Run it again")).click()
    page.get_by_label("May share GPUs").select_option("no")
    expect(page.get_by_label("Name")).to_have_value("ten-tasks")


@pytest.mark.usefixtures("lined_up")
def test_who_waits_longest_and_why(enter: Enter) -> None:
    page = enter(OPERATOR)
    expect(page.locator("main")).to_contain_text("longest wait now")
    page.get_by_role("link", name="As a table, to search, sort and filter").click()
    page.get_by_label("State").select_option("queued")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="since").click()
    first = page.locator("table[aria-label=Jobs] tbody tr").first
    expect(first).to_contain_text(re.compile("GPUs? (is|are) free|waits|before it"))


def test_three_nodes_are_drained_at_once_after_a_preview(enter: Enter) -> None:
    page = enter(OPERATOR)
    go(page, "Nodes")
    boxes = page.locator("input[name=node]")
    for i in range(3):
        boxes.nth(i).check()
    page.get_by_label("Reason").fill("fans")
    page.get_by_role("button", name="Drain the selected").click()
    expect(page.locator("main")).to_contain_text("Nothing new starts there; what runs goes on.")


def test_a_job_is_found_by_its_id_whether_it_runs_or_is_over(
    enter: Enter, running: Running
) -> None:
    with running.client(OPERATOR) as client:
        over = next(iter(client.jobs(over=True)))["job_id"]
    page = enter(OPERATOR)
    find(page, over)
    assert page.url.endswith(f"/jobs/{over}")


def test_who_uses_a_part_of_the_gpus_only(enter: Enter) -> None:
    page = enter(OPERATOR)
    go(page, "Fairness")
    table = page.locator("table", has=page.get_by_role("columnheader", name="of GPUs used"))
    expect(table.get_by_role("link", name="ada").first).to_be_visible()
    expect(table.locator("tbody tr").first).to_contain_text("%")
