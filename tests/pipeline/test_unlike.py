"""What of the last day of a trace is unlike the weeks before is in its evaluation and report."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from features.watch import Seen
from pipeline.report.models import drift_facts
from pipeline.stages.evaluate import unlike_before
from tests.features.test_watch import day_of


def trace(jobs: list[Seen]) -> pa.Table:
    times = pa.array([int(job.submitted * 1000) for job in jobs], pa.timestamp("ms", "UTC"))
    return pa.table(
        {
            "submit_time": times,
            "duration_s": [job.seconds for job in jobs],
            "gpus": [job.gpus for job in jobs],
            "vc": [job.vc for job in jobs],
            "user": [job.user for job in jobs],
            "gpu_type": [job.gpu_type for job in jobs],
        }
    )


@pytest.mark.parametrize("times", [1.0, 60.0])
def test_a_unit_that_changed_on_the_last_day_is_in_the_report(times: float) -> None:
    random, jobs = Random(0), list[Seen]()
    for number in range(15):
        factor = times if number == 14 else 1.0
        jobs += [job._replace(seconds=factor * job.seconds) for job in day_of(number, random)]
    found = unlike_before(trace(jobs))
    assert any("last longer" in line for line in found) == (times > 1.0)
    drift = {"features": {"gpus": 0.01}, "rows": 500, "warnings": ["gpus: stability index 0.3"]}
    facts = drift_facts({"drift": drift, "unlike": found}, None)
    assert facts is not None
    assert len(facts.warnings) == len(found)
    assert all(line.startswith("Unlike the weeks before: ") for line in facts.warnings)
