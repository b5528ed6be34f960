"""A log holds settings, and a snapshot keys, of a release that ordered by something else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from scheduler.assembly import CoreSpec, settings_of
from scheduler.core.cluster import ClusterSpec
from scheduler.core.curves import Predicted
from scheduler.core.estimates import TableEstimator
from scheduler.core.settings import InvalidSettings
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.policies.pellucid.reservation import starving_key
from scheduler.policies.pellucid.settings import PellucidSettings
from scheduler.service.log.header import LogHeader
from scheduler.testing.builders import VC, Desk, a_job, cluster_of, pellucid

WRITTEN: dict[str, Any] = {"counted_s": None, "long_s": 1800.0, "ageing": 0.25}


def test_of_a_logs_settings_those_that_are_retired_are_left_out() -> None:
    spec = CoreSpec.of(ClusterSpec({"a": 1}, 8)).with_settings(WRITTEN)
    assert spec.settings == PellucidSettings(ageing=0.25)
    header = LogHeader(spec=spec, start=5.0)
    body = json.loads(json.dumps(header.body()))
    body["settings"] |= WRITTEN
    assert LogHeader.from_body(body).spec == spec


@pytest.mark.parametrize("name", sorted(PellucidSettings.retired))
def test_nobody_can_set_them(name: str) -> None:
    with pytest.raises(InvalidSettings, match=f"{name}: no such setting"):
        settings_of("pellucid", {name: 3600.0})


def test_keys_of_a_release_that_ordered_by_the_predicted_number_are_made_right() -> None:
    """Jobs that are all predicted to last ten minutes, some of which may last for days."""
    believed = {f"j{i}": Predicted.of(600.0, [0.5, *[0.02 * i] * 15, 1.0]) for i in range(1, 9)}
    chosen: dict[str, Any] = {"max_wait_s": 1e9, "predict_again_s": 0.0}
    desks = []
    for order in ("predicted", "mean"):
        policy = pellucid(order_by=order, **chosen)
        desk = Desk(policy, cluster_of(gpus=8), TableEstimator("given", believed, default=600.0))
        desk.submit(a_job("holds", gpus=8, user="u"))
        desk.submit(*(a_job(name, gpus=4, user="u", at=1.0) for name in believed), now=1.0)
        desks.append(desk)
    before, after = desks
    waiting = list(before.core.queues[VC])
    read = Pellucid(PellucidSettings(**chosen))
    assert isinstance(before.core.policy, Pellucid)
    memory = before.core.policy.learned.remember()
    jobs = {one.job.job_id: one for one in waiting}
    starving = jobs.pop("j8")
    starving.key = starving_key(starving)
    read.learned.restore(memory, {**jobs, "j8": starving})
    assert starving.key == starving_key(starving), "it goes first by when it was submitted"
    due = {one.job.job_id: one for one in after.core.queues[VC] if one.job.job_id != "j8"}
    for name, one in jobs.items():
        assert one.key == pytest.approx(due[name].key)
        assert dict(one.evidence)["counts_s"] == pytest.approx(dict(due[name].evidence)["counts_s"])
    assert [one.job.job_id for one in sorted(waiting) if one is not starving] == [*due]
    keys = {name: one.key for name, one in jobs.items()}
    Pellucid(PellucidSettings(**chosen)).learned.restore(read.learned.remember(), jobs)
    assert {name: one.key for name, one in jobs.items()} == keys, "once is enough"
    for one in jobs.values():  # of a release that also ordered those by the mean
        one.job = replace(one.job, user="")
        Pellucid(PellucidSettings(**chosen)).learned.restore(read.learned.remember(), jobs)
        assert one.key == pytest.approx(600.0 * 2.0 + 0.05), "predicted, and its credit, once"
        assert "counts_s" not in dict(one.evidence)
