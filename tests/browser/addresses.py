"""Every page of the service, for the tests that open each; a test keeps the list whole."""

from __future__ import annotations

import re
from collections.abc import Iterator

LIVE = (
    "/", "/?vc=vision", "/list?sort=-gpus", "/causes", "/nodes", "/history?period=all", "/fairness",
    "/models", "/histories", "/forecasts",
)  # fmt: skip
ELSEWHERE = {  # what is no page, and the pages that other tests open
    "/live", "/list.csv", "/static/{name:path}", "/health", "/ready", "/metrics", "/login",
    "/shared/{job_id}/{mark}",
}  # fmt: skip


def addresses(
    waits: str, runs: str, ended: str, array: str, *, operator: bool = True
) -> Iterator[tuple[str, str]]:
    """Name and address of every page that somebody can open.

    Args:
        waits, runs, ended: jobs that do.
        array: an array of jobs.
    """
    yield from ((re.sub(r"\W+", "-", path.strip("/?")) or "now", path) for path in LIVE)
    yield from (("runs", f"/jobs/{runs}"), ("ended", f"/jobs/{ended}"))
    parts = {
        "waits": "",
        "tail": "/tail",
        "blockers": "/blockers",
        "ask": "/ask",
        "share": "/share",
        "histories": "/histories",
    }
    parts |= {"change": "/act?do=change&gpus=2", "cancel": "/act?do=cancel"}
    yield from ((name, f"/jobs/{waits}{rest}") for name, rest in parts.items())
    like = "/jobs?vc=vision&owner=ada&like=waits-long&gpus=8&phase=queued"
    yield "group-hold", like.replace("/jobs?", "/group/act?") + "&do=hold"
    yield from (
        ("group", like),
        ("links", "/links"),
        ("settings", "/settings"),
        ("submit", "/submit"),
    )
    yield from (("array", f"/arrays/{array}"), ("tasks", f"/arrays/{array}/act?do=cancel"))
    yield "missing", "/jobs/nothing-there"
    if operator:
        yield "edit", "/models/edit?feature=gpus&kind=clip&low=-1&high=1&why=test"
        yield "proposals", "/models/proposals"
        yield "compare", "/models/compare"
        yield "moved", "/models/moved?owner=ada"
        yield "drain", "/nodes/change?node=node000&reason=fan"
