"""The one file: built, run by a bare Python, and beside a follower of the same queue."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from features.codec import encode
from pipeline.onefile.build import ROOTS, build, modules
from scheduler.core.durations import seconds_of
from scheduler.job_rows import job_row
from scheduler.slurm.follow.rows import JobRows
from scheduler.slurm.look import UNSEEN, Direct, NotThere
from scheduler.slurm.read.client import Slurm, SlurmDown, SlurmError
from scheduler.slurm.read.past import past
from scheduler.slurm.read.snapshot import job_of
from scheduler.slurm.read.versions import Release
from tests.scheduler.slurm.follow.test_follow import NOW, SAYS, Scene

FULL = ((0, 1, 2, 3),)
MODULES = 134  # may only fall


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("one"))


def ask(file: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", str(file), *words]
    return subprocess.run(command, capture_output=True, text=True, env={"PATH": path}, check=False)


def test_it_packs_few_modules_of_which_none_needs_a_library(file: Path) -> None:
    with zipfile.ZipFile(file) as content:
        sources = [n for n in content.namelist() if n.endswith(".py")]
        assert len(sources) < MODULES
        loads = re.compile(r"^(?:import|from) (\w+)", re.M)
        named = {one for n in sources for one in loads.findall(content.read(n).decode())}
    assert named - ROOTS <= sys.stdlib_module_names
    assert "models" not in named


def test_it_is_small_and_the_same_twice(file: Path, tmp_path: Path) -> None:
    assert file.stat().st_size < 10_000_000
    assert build(tmp_path).read_bytes() == file.read_bytes()
    names = zipfile.ZipFile(file).namelist()
    assert "scheduler/slurm/look.py" in names
    assert not [n for n in modules() if "follower" in n or n.endswith((".reads", ".tables"))]


def test_a_python_without_libraries_runs_it(file: Path) -> None:
    assert "why a job waits" in ask(file, "--help").stdout
    assert "'soon': give seconds" in ask(file, "why", "1", "--patience", "soon").stderr
    no_slurm = ask(file, "why", "1", path="/nonexistent")
    assert no_slurm.returncode == 2
    assert no_slurm.stderr.count("\n") == 1
    assert "no such command; is Slurm installed here?" in no_slurm.stderr


def test_a_controller_that_does_not_answer_is_a_line(file: Path, tmp_path: Path) -> None:
    for does, says in (
        ("exec /bin/sleep 60", "no answer within 0.2 s"),
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", "contact"),
        ("echo slurm 99.11.0", "99.11 is newer than any that is known"),
        (r"printf 'a \033]0;x\007' >&2; exit 1", r"a \x1b]0;x\x07"),  # no title of a window
    ):
        for name in ("squeue", "scontrol"):
            version = '[ "$1" = --version ] && echo slurm 22.05.8 && exit\n'
            body = does if does.startswith("echo slurm 99") else version + does
            (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
            (tmp_path / name).chmod(0o755)
        found = ask(file, "why", "1", "--patience", "0.2", path=str(tmp_path))
        assert (found.returncode, found.stdout) == (2, "")
        assert says in found.stderr
        assert found.stderr.count("\n") == 1


def test_slurmdbd_that_is_down_stops_no_question_to_slurmctld(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sacctmgr", "sacct"):
        says = "sacctmgr: error: Sending PersistInit msg: Connection refused; Unable to contact"
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{says} slurmdbd' >&2; exit 1\n")
    (tmp_path / "squeue").write_text("#!/bin/sh\necho slurm 24.11.5\n")
    for script in tmp_path.iterdir():
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    slurm = Slurm()
    for command in ("sacctmgr", "sacct"):
        with pytest.raises(SlurmError, match="Unable to contact"):
            slurm.read(command, "show", "user")
    assert slurm.release() == (24, 11)


def scene(**config: str) -> Scene:
    """Two nodes of four GPUs, full; two jobs wait, one is held."""
    made = Scene(None, "slurm", order=False)
    made.slurm.has = [replace(node, cpus=8, types=(("", 4),)) for node in made.slurm.has]
    lines = [f"{name} = {value}" for name, value in config.items()]
    made.slurm.says["scontrol show config"] = "\n".join([SAYS["scontrol show config"], *lines])
    asks: dict[str, Any] = {"gpus": 4, "gpu_types": (("", 4),), "time_limit_s": 7200.0}
    runs = {"state": "RUNNING", "held_gpus": FULL, "start": NOW}
    made.look(
        made.job(1, nodes=("n1",), **asks, **runs),
        made.job(2, nodes=("n2",), **asks, **runs),
        made.job(3, priority=1000, reason="Resources", **asks),
        made.job(4, priority=999, reason="Priority", **asks),
        made.job(5, priority=0, reason="JobHeldUser", **asks),
    )
    return made


def direct(made: Scene, release: Release = (22, 5)) -> Direct:
    def table(columns: str) -> str:
        raise SlurmError("not printed by this test")

    slurm: Any = made.slurm
    slurm.release, slurm.table = lambda: release, table
    return Direct(cast(Slurm, slurm), made.slurm.queue[0].user, made.follower.clock)


def test_reasons_are_those_of_a_service_in_front() -> None:
    made = scene()
    look = direct(made)
    for job_id, reason in made.follower.reasons.items():
        assert look.why(job_id).slurm == replace(reason, own="", partition="main")
    assert {job.job_id for job in look.queue(everybody=True)} == {"1", "2", "3", "4", "5"}
    assert {job.owner for job in look.queue()} == {look.user}
    forecast = look.why("3").forecast
    assert forecast is not None
    assert forecast.start_p50 is not None
    assert forecast.start_p50 > look.now
    with pytest.raises(NotThere, match="no such job"):
        look.why("999")


def test_jobs_stand_as_in_the_tables_of_a_service_in_front() -> None:
    made = scene()
    look = direct(made)
    snapshot, reasons = look._snapshot, {job_id: one.slurm for job_id, one in look._rows.items()}
    why = {job_id: one for job_id, one in reasons.items() if one is not None and not one.started}
    rows = JobRows(snapshot.shape.vc_of).of(snapshot, why, by_slurm=True)
    unset: dict[str, Any] = {"attempt": 0, "cancel_asked": False, "exit_code": None}
    assert {job_id: job_row(unset | row, ()) for job_id, row in rows.items()} == look._rows
    assert {one.phase for one in look._rows.values()} == {"queued", "running", "submitted"}


def test_no_wait_is_without_a_reason_beside_slurms_own() -> None:
    look = direct(scene())
    for job_id in ("3", "4", "5"):
        found = look.why(job_id)
        assert found.slurm is not None
        assert "no reason recorded" not in json.dumps(encode(found))


def test_all_that_wait_are_counted_by_slurms_words() -> None:
    look = direct(scene())
    found = look.causes(everybody=True)
    assert (found.waiting, found.gpus) == (3, 8 + look.job("5").gpus)
    assert {(one.code, one.example) for one in found.causes} == {
        ("Resources", "3"), ("Priority", "4"), ("JobHeldUser", "5")
    }  # fmt: skip
    assert {one.job_id for one in found.waited_for} & {"1", "2"}
    assert look.shares().unavailable
    assert look.causes().waiting == 0  # whoever asks has one job, and it runs
    look.user = look.job("4").owner
    assert [one.example for one in look.causes().causes] == ["4"]


LATE = int(NOW)
PAST = [
    f"2|u2|main|{LATE - 900}|{LATE - 800}|{LATE - 700}|COMPLETED|120|8|gres/gpu=4|squeue has it",
    f"94|u3|main|{LATE - 700}|{LATE - 650}|{LATE - 500}|RUNNING|120|8|gres/gpu=4|is not over",
    f"90|u3|main|{LATE - 900}|{LATE - 800}|{LATE - 700}|COMPLETED|120|8|cpu=8,gres/gpu=4|a",
    f"91|u3|main|{LATE - 700}|{LATE - 650}|{LATE - 500}|CANCELLED by 7|120|8|gres/gpu:a100=4|a|b",
    f"92|u3|main|{LATE - 700}|Unknown|{LATE - 500}|CANCELLED|120|8||never ran",
    "93|u3|main|soon|||COMPLETED|||cpu=x|cannot be read",
    "",
]


def test_the_users_own_past_is_read_where_there_is_accounting() -> None:
    made = scene()
    made.slurm.says["-o"] = "\n".join(PAST)
    read, commands = made.slurm.read, []

    def noted(*command: str) -> str:
        commands.append(command)
        return read(*command)

    made.slurm.read = noted  # type: ignore[method-assign]
    found = past(cast(Slurm, made.slurm), "u3", 30)
    assert [(job.id, job.time_limit_s, job.gpus) for job in found] == [
        ("2", 7200.0, 4), ("90", 7200.0, 4), ("91", 7200.0, 4)
    ]  # fmt: skip
    assert commands[0][:7] == ("sacct", "-n", "-P", "-X", "-u", "u3", "-S")
    look = direct(made)
    asked = [made.job(7, user=name, submit=look.now, gpus=4) for name in ("u3", "u9")]
    known, unknown = (look._planner.memory.predicted(job_of(j, "main"), look.now) for j in asked)
    assert known is not None
    assert unknown is not None
    assert seconds_of(known) < 200.0 < seconds_of(unknown)  # two jobs of u3's ran for 100 and 150 s


def test_a_job_that_depends_on_a_held_one_does_not_start_at_once() -> None:
    made = scene()
    made.look(
        made.job(5, priority=0, reason="JobHeldUser", gpus=1, time_limit_s=600.0),
        made.job(6, reason="Dependency", dependency="afterok:5", gpus=1, time_limit_s=600.0),
    )
    look = direct(made)
    look.user = "root"
    as_it_is = look.sooner("6").as_it_is
    assert as_it_is is None or as_it_is.start_p50 is None
    assert look.sooner("5").unavailable.startswith("it runs or is over, is held")
    look.user = "u1"
    assert "another user's" in look.sooner("6").unavailable


def test_a_site_that_hides_jobs_is_given_no_start() -> None:
    look = direct(scene(PrivateData="jobs,usage"))
    assert [line.startswith("Hidden: ") for line in look.hidden[:2]] == [True, True]
    why = look.why("4")
    assert why.forecast is not None
    assert (why.forecast.start_p50, why.forecast.why_not) == (None, UNSEEN)
    assert why.slurm is not None
    assert (why.slurm.code, why.slurm.places, why.standing) == ("Priority", (), None)
    assert look.eta(["--gres=gpu:1"]).unavailable == look.sooner("4").unavailable == UNSEEN


def test_accounts_that_do_not_answer_leave_what_is_hidden_hidden() -> None:
    made = scene(PrivateData="jobs,usage")
    read, slurm = made.slurm.read, cast(Any, made.slurm)

    def answered(*words: str, **how: Any) -> str:
        if words[-1] == "format=AdminLevel":
            raise SlurmDown("no command is run for 5 s")
        return read(*words, **how)

    slurm.read = answered
    assert [line.startswith("Hidden: ") for line in direct(made).hidden[:2]] == [True, True]


def test_eta_is_overruled_by_sbatch_itself() -> None:
    made = scene()
    look = direct(made)
    options = ["-p", "main", "--gres=gpu:1"]
    (before,) = look.eta(options).tried
    refusal = "allocation failure: Requested node configuration is not available"
    made.slurm.says[f"sbatch {' '.join(options)}"] = refusal
    (after,) = look.eta(options).tried
    assert (before.start_p50 is None, after.start_p50 is None) == (False, True)
    assert "sbatch --test-only refuses it: Requested node configuration" in after.why


def test_a_newer_release_is_refused() -> None:
    with pytest.raises(SlurmError, match=r"99\.11 is newer"):
        direct(scene(), (99, 11))
    with pytest.raises(SlurmError, match=r"99\.11 is newer"):  # behind older commands
        direct(scene(SLURM_VERSION="99.11.0"))


def test_a_job_far_behind_in_line_is_given_no_start_and_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scheduler.slurm.follow.planner.LINE", 1)
    monkeypatch.setattr("scheduler.slurm.look.LINE", 1)
    look = direct(scene())
    first, second = (look.why(job_id).forecast for job_id in ("3", "4"))
    assert first is not None
    assert second is not None
    assert first.start_p50 is not None
    assert (second.start_p50, second.why_not) == (
        None, "starts are estimated of the first 1 in line",
    )  # fmt: skip
