"""The demo's plan: the same for the same seed, and one its cluster can run."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.demo.plan import CLUSTER, USERS, declared, plan
from scheduler.backends.local.host import Host, read_declared
from scheduler.service.api.schemas import SubmitRequest


def test_the_same_seed_sends_the_same_jobs() -> None:
    assert plan(50, 2.0, 3) == plan(50, 2.0, 3)
    assert plan(50, 2.0, 3) != plan(50, 2.0, 4)


def test_every_job_can_be_asked_for_and_run(tmp_path: Path) -> None:
    file = tmp_path / "profiles.json"
    file.write_text(json.dumps(list(declared())))
    host = Host.with_fake(1, 8, read_declared(file))
    sent = plan(300, 4.0, 0)
    assert [s.after_s for s in sent] == sorted(s.after_s for s in sent)
    assert sent[0].after_s >= 0
    assert sent[-1].after_s <= 240
    for one in sent:
        asked = SubmitRequest.model_validate(one.asked)
        assert asked.vc in USERS[one.user]
        assert asked.gpus <= CLUSTER["vcs"][asked.vc] * CLUSTER["gpus_per_node"]
        assert host.declared_profile(asked.command) is not None
