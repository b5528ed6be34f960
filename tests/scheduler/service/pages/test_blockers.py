"""Who must finish before a waiting job starts, as bars on its page."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from scheduler.explain.answer import Analysis, InTheWay, ShutNode
from scheduler.service.pages.blockers import blockers_page
from tests.scheduler.service.pages.conftest import Lived


def test_bars_of_what_is_in_the_way() -> None:
    broken = ShutNode(name="gpu3", drained=True, why="fan broken")
    analysis = Analysis(
        at=1000.0,
        holders=[
            InTheWay("running job", "mine", ran_s=90.0, past_s=60.0, ends_in_s=50.0),
            InTheWay("running job", ends_in_s=200.0, ran_s=5.0),
            InTheWay("waiting job"),
            InTheWay("waiting job"),
            InTheWay("waiting job", "second"),
            InTheWay("closed node", node=3, closed=broken),
            InTheWay("closed node", node=4),
        ],
        in_all=9,
    )
    page = blockers_page(analysis)
    assert page.runs == [
        (analysis.holders[1], 100.0),
        (analysis.holders[0], 25.0),
    ]
    assert page.besides == [
        "waiting job second",
        "node gpu3, drained: fan broken",
        "node 4, which is closed",
        "2 waiting jobs of others",
        "2 more",
    ]
    assert blockers_page(Analysis(unavailable="no analyst is running")).runs == []
    soon, late = (InTheWay("running job", ends_in_s=seconds) for seconds in (0.2, 200.0))
    over = InTheWay("running job", ends_in_s=0.0)
    bars = [width for _, width in blockers_page(Analysis(holders=[soon, late])).runs]
    assert bars == [100.0, 1.0], "what ends at once is seen"
    assert blockers_page(Analysis(holders=[over])).runs == [(over, 1.0)]


def test_the_page_says_who_must_finish(lived: Lived, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = lived.submit("grace.hopper", name="secret", gpus=4, vc="vision", profile=False)
    lived.settle(1)
    job = lived.submit("ada.byron", gpus=4, vc="vision", profile=False)
    lived.settle(1)
    ada = lived.browser("ada.byron")
    assert "no analyst is running" in ada.get(f"/jobs/{job}/blockers").text
    assert f'href="/jobs/{job}/blockers"' in ada.get(f"/jobs/{job}").text
    analyst = lived.analysed(monkeypatch)
    page = unescape(ada.get(f"/jobs/{job}/blockers").text)
    for seen in (
        page,
        ada.get("/").text,
        ada.get("/?vc=vision").text,
        ada.get(f"/jobs/{job}").text,
    ):
        assert re.search(r"[Aa]s of <time datetime=.\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ.>", seen)
    assert "<rect width=" in page
    assert "a job of another user" in page
    assert runs not in page
    assert "secret" not in page
    assert re.search(r"It needs 4 GPUs; 0 of 4 are free now[.,]", page)
    part = ada.get(f"/jobs/{job}/blockers", headers={"HX-Target": "part-blockers"}).text
    part, _, beside = part.partition('<div id="silent"')
    assert part.strip() in ada.get(f"/jobs/{job}/blockers").text
    assert 'hx-swap-oob="true"' in beside, "it says whether the service is silent, too"
    assert (
        f'<a href="/jobs/{runs}">{runs}</a>'
        in lived.browser("olga").get(f"/jobs/{job}/blockers").text
    )
    strange = lived.browser("grace.hopper").get(f"/jobs/{job}/blockers").text
    assert f"There is no such job of yours: {job}." in strange
    assert "does not wait" in lived.browser("grace.hopper").get(f"/jobs/{runs}/blockers").text

    async def many(kind: str, body: dict[str, Any], *_: object) -> dict[str, Any]:
        ahead = [{"kind": "waiting job", "job": f"w{n}"} for n in range(9)]
        return {**analyst.reply(kind, body), "holders": ahead, "in_all": 9}

    monkeypatch.setattr(lived.app.state.questions, "ask", many)
    folded = ada.get(f"/jobs/{job}/blockers").text
    seen, _, rest = folded.partition('<details id="more-besides"><summary>')[2].partition("<p>")
    assert seen.startswith("In its way: waiting job w0, waiting job w1, waiting job w2 and 6 oth")
    assert rest.startswith("waiting job w3, ")
