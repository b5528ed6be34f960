"""The page of an array: its tasks, and the change of some of them."""

from __future__ import annotations

import re

from fastapi.testclient import TestClient

from tests.scheduler.service.pages.conftest import Lived
from tests.scheduler.service.pages.test_operations import fields


def submitted(lived: Lived, array: str) -> str:
    """Submit an array by the form of ada.byron, behind jobs that fill her virtual cluster; its
    id."""
    ada = lived.browser("ada.byron")
    sent = fields(ada.get("/submit").text) | {"command": "train", "array": array, "gpus": "4"}
    where = ada.post("/submit", data=sent).headers["location"]
    lived.settle(1)
    return re.fullmatch(r"/arrays/(\w+)", where)[1]  # type: ignore[index]


def test_half_an_array_is_changed_held_and_cancelled(lived: Lived) -> None:
    ada, grace = lived.browser("ada.byron"), lived.browser("grace.hopper")
    array = submitted(lived, "0-9")
    page = ada.get(f"/arrays/{array}").text
    assert re.findall(r'<th scope="row"><a href="/jobs/(\w+)">', page) == [
        f"{array}_{n}" for n in range(10)
    ]
    assert f'<a href="/arrays/{array}">' in ada.get(f"/jobs/{array}_3").text
    assert grace.get(f"/arrays/{array}").status_code == 404
    assert grace.get(f"/arrays/{array}/act?do=cancel").status_code == 404

    def gpus() -> list[int]:
        rows = {job.job_id: job.gpus for job in lived.see("ada.byron").tasks(array)}
        return [rows[f"{array}_{n}"] for n in range(10)]

    def phases() -> list[str]:
        rows = {job.job_id: job.phase for job in lived.see("ada.byron").tasks(array)}
        return [rows[f"{array}_{n}"] for n in range(10)]

    before, seq = phases(), lived.store.last_seq()
    waits = [n for n in range(5, 10) if before[n] in ("queued", "submitted")]
    assert waits, before
    preview = ada.get(f"/arrays/{array}/act?tasks=5-9&do=change&gpus=2")
    assert preview.status_code == 200
    assert "4 → 2" in preview.text
    assert lived.store.last_seq() == seq, "a preview changes nothing"
    assert fields(preview.text)["jobs"].split() == [f"{array}_{n}" for n in waits]
    sent = fields(preview.text)
    grace.post(
        f"/arrays/{array}/act", data={**sent, "csrf": fields(grace.get("/submit").text)["csrf"]}
    )
    lived.settle(1)
    assert gpus() == [4] * 10, "hers alone"
    assert ada.post(f"/arrays/{array}/act", data=sent).status_code == 303
    lived.settle(1)
    assert gpus() == [2 if n in waits else 4 for n in range(10)]

    for deed, tasks, after in (
        ("hold", "8", "held"),
        ("release", "8", before[8]),
        ("cancel", "7-9", "cancelled"),
    ):
        preview = ada.get(f"/arrays/{array}/act?tasks={tasks}&do={deed}")
        assert ada.post(f"/arrays/{array}/act", data=fields(preview.text)).status_code == 303
        lived.settle(1)
        assert phases()[8] == after or deed == "release", deed
    assert phases()[7:] == ["cancelled"] * 3
    assert "cancelled" not in phases()[:5]


def test_a_preview_says_each_present_value_and_claims_no_cause_of_what_is_left(
    lived: Lived,
) -> None:
    ada, olga = lived.browser("ada.byron"), lived.browser("olga")
    array = submitted(lived, "0-9")

    def done(browser: TestClient, asked: str) -> None:
        preview = browser.get(f"/arrays/{array}/act?{asked}")
        assert browser.post(f"/arrays/{array}/act", data=fields(preview.text)).status_code == 303
        lived.settle(1)

    done(ada, "tasks=8&do=change&gpus=3")
    preview = ada.get(f"/arrays/{array}/act?tasks=8-9&do=change&gpus=2").text
    assert "3 → 2" in preview
    assert "4 → 2" in preview
    done(ada, "tasks=8&do=hold")
    done(olga, "tasks=9&do=hold")
    preview = ada.get(f"/arrays/{array}/act?tasks=8-9&do=release").text
    assert fields(preview)["jobs"] == f"{array}_8"
    assert "Nothing is done to 1 other: running, over, so already, or not allowed." in preview


def test_what_cannot_be_done_to_tasks_is_named(lived: Lived) -> None:
    ada = lived.browser("ada.byron")
    array = submitted(lived, "0-4")
    for asked, wrong in (
        ("tasks=3-1&do=hold", "3-1 holds no number"),
        ("tasks=7&do=hold", "the array has no task 7"),
        ("tasks=x&do=hold", "give numbers as sbatch does"),
        ("tasks=0-4%252&do=hold", "is set as an array is submitted"),
        ("do=dance", "can be held, released or cancelled"),
        ("do=change", "say what is to be different"),
        ("do=change&gpus=0", "GPUs is 0"),
    ):
        answer = ada.get(f"/arrays/{array}/act?{asked}")
        assert answer.status_code == 422, asked
        assert wrong.casefold() in answer.text.casefold(), asked
    assert ada.get("/arrays/nosuch").status_code == 404
