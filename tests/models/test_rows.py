"""From a trace through the feature code to a bundle that scores the live row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from features.rows import training_rows
from features.schema import TRACE_SCHEMA
from models.bundle import Bundle
from models.training.duration import fit_duration


@pytest.fixture(scope="module")
def trace() -> pa.Table:
    rng = np.random.default_rng(0)
    start = datetime(2024, 3, 1, tzinfo=UTC)
    jobs = []
    for i in range(600):
        user = int(rng.integers(8))
        submit = start + timedelta(seconds=700.0 * i)
        duration = float(round(np.exp(rng.normal(4 + user / 2, 0.4)), 3))
        jobs.append(
            {
                "job_id": str(i),
                "user": f"u{user}",
                "vc": f"vc{user % 2}",
                "name": f"train-{user}",
                "gpus": int(rng.choice([1, 2, 8])),
                "state": "completed",
                "submit_time": submit,
                "start_time": submit,
                "end_time": submit + timedelta(seconds=duration),
                "duration_s": duration,
            }
        )
    return pa.Table.from_pylist(jobs, schema=TRACE_SCHEMA)


def test_rows_of_a_trace_make_a_bundle_that_scores_rows(trace, tmp_path):
    rows = training_rows(trace)
    cut = float(np.quantile(rows.time, 0.8))
    seen = rows.ended_before(cut)
    fitted = fit_duration(seen.X, seen.y, seen.time, rows.features, seed=0)
    saved = Bundle(duration=fitted.model, metadata=fitted.metadata).save(tmp_path / "bundle")
    model = Bundle.load(saved).duration
    assert model.features == rows.features
    ahead = rows.where(rows.time >= cut)
    scores = model.score_batch(ahead.X)
    live = [model.score(row) for row in ahead.X.itertuples(index=False, name=None)]
    assert live == scores.tolist()
    # eight users, each with a duration of its own: their history has to show
    assert np.corrcoef(scores, np.log1p(ahead.y))[0, 1] > 0.8
