"""The calibration page of a service that foresaw, served and scored."""

from __future__ import annotations

import re
from collections import Counter
from html import unescape
from random import Random

from sqlalchemy import select

from features.clock import Clock
from scheduler.explain.words import percent
from scheduler.service.analyst.process import Analyst
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import forecasts, jobs
from scheduler.service.pages.figures import GRACE_S, promises
from scheduler.service.pages.queries import PageQueries
from tests.scheduler.service.pages.conftest import Lived, busy_morning


def test_coverage_of_the_jobs_that_were_served_is_published(lived: Lived) -> None:
    url = lived.store.engine.url.render_as_string(hide_password=False)
    analyst = Analyst(
        Store(url, Clock.by(lived.world.now)),
        BundleStore(lived.settings.state_dir / "bundles"), holder="test", samples=9, budget_s=30.0,
        lease_s=1e6,
    )  # fmt: skip
    assert analyst.take_over()
    analyst.clock = Clock.by(lived.world.now)  # leases are of the host's time, years ahead
    settle = lived.settle

    def settled(seconds: float, turns: int = 1000) -> None:
        settle(0.0)
        analyst._rested_at = 0.0  # there is time for forecasts
        analyst.turn()
        settle(seconds, turns)

    lived.settle = settled  # type: ignore[method-assign]
    busy_morning(lived, 25, Random(4))
    settled(4000.0)

    query = (
        select(
            jobs.c.owner, jobs.c.submitted_at, jobs.c.started_at,
            forecasts.c.start_p50, forecasts.c.start_p90,
        )
        .join(forecasts, forecasts.c.job_id == jobs.c.job_id)
        .where(forecasts.c.basis == "submission", jobs.c.started_at.is_not(None))
    )  # fmt: skip
    with lived.store.reading() as connection:
        rows = [r for r in connection.execute(query) if r.start_p90 is not None]
    left_open = [r for r in rows if r.start_p50 < r.start_p90]
    assert len(left_open) > 5
    kept = [r.started_at <= r.start_p90 + GRACE_S for r in left_open]
    share = sum(kept) / len(kept)

    line = next(
        one
        for one in promises(PageQueries(lived.store, lived.viewer("ada.byron"))).lines
        if one.text == "started by the p90 forecast"
    )
    assert (line.kept, line.jobs) == (share, len(kept))
    batches = {(r.owner, r.submitted_at // 3600) for r in left_open}
    told = Counter(k.batch for k in PageQueries(lived.store, lived.viewer("ada.byron")).kept())
    sent = Counter((r.owner, r.submitted_at // 3600) for r in rows)
    assert sorted(told.values()) == sorted(sent.values())
    assert 1.0 <= line.batches <= len(batches)
    page = unescape(lived.browser("ada.byron").get("/forecasts").text)
    row = next(r for r in re.findall(r"<tr>.*?</tr>", page, re.S) if line.among in r and "p90" in r)
    assert percent(share) in row
    assert str(len(kept)) in row
