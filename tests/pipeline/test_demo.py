"""The demo's plan: the same for the same seed, and one its cluster can run."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil

from features.spec import FeatureSpec
from models.bundle import AdditiveModel, Axis, Bundle
from pipeline.demo.plan import CLUSTER, USERS, declared, plan
from pipeline.serving import usable
from scheduler.backends.local.host import Host, read_declared
from scheduler.service.api.schemas import SubmitRequest
from scheduler.service.client import Client


def test_the_same_seed_sends_the_same_jobs() -> None:
    assert plan(50, 2.0, 3) == plan(50, 2.0, 3)
    assert plan(50, 2.0, 3) != plan(50, 2.0, 4)


def test_every_job_can_be_asked_for_and_run(tmp_path: Path) -> None:
    file = tmp_path / "profiles.json"
    file.write_text(json.dumps(list(declared())))
    host = Host.with_fake([8], read_declared(file))
    sent = plan(300, 4.0, 0)
    assert [s.after_s for s in sent] == sorted(s.after_s for s in sent)
    assert sent[0].after_s >= 0
    assert sent[-1].after_s <= 240
    for one in sent:
        asked = SubmitRequest.model_validate(one.asked)
        assert asked.vc in USERS[one.user]
        assert asked.gpus <= CLUSTER["vcs"][asked.vc] * CLUSTER["gpus_per_node"]
        assert host.declared_profile(asked.command) is not None


def test_a_bundle_that_the_service_would_refuse_is_named_and_another_taken(tmp_path: Path) -> None:
    prebuilt = Path(__file__).resolve().parents[2] / "data/prebuilt/bundle"
    model = Bundle.load(prebuilt).duration
    odd = Axis(FeatureSpec("shoe_size", "continuous", "size"))
    mine = AdditiveModel((*model.axes, odd), model.terms, model.intercept, model.link)
    folder = Bundle(duration=mine).save(tmp_path / "bundle")
    found, refused = usable([tmp_path / "nothing", folder, prebuilt])
    assert found == prebuilt
    [line] = refused
    assert line.startswith(f"{folder} is refused: bundle ")
    assert "'shoe_size' that is not kept" in line
    assert usable([folder]) == (None, refused)
    assert usable([prebuilt, folder]) == (prebuilt, [])


def test_what_it_prints_opens_the_door_and_ctrl_c_ends_all(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline.cli", "serve-demo", "--jobs", "4", "--minutes", "0.01",
         "--port", str(port)],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = ""
        while "Stop with Ctrl-C" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        address = re.search(r"Open (http://127\.0\.0\.1:\d+) and log in", said)
        secrets = dict(re.findall(r"^  (\w+) +(pellucid_\S+)  \(sees ", said, re.MULTILINE))
        assert address is not None
        assert set(secrets) == {*USERS, "olga"}
        assert f"export PELLUCID_TOKEN={secrets['olga']}" in said
        assert "4 jobs arrive over 0.01 min." in said
        for who, secret in secrets.items():
            with Client(address[1], secret) as client:
                owners = {job["owner"] for job in client.jobs()}
            assert owners <= (set(USERS) if who == "olga" else {who})
        mine = psutil.Process(process.pid).children(recursive=True)
        assert mine
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().endswith("Stopped; nothing runs on.\n")
        assert process.wait(120) == 0
        assert not psutil.wait_procs(mine, timeout=120)[1]
    finally:
        process.kill()
