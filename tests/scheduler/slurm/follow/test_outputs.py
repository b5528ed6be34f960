"""What jobs of Slurm print of how far they are, read where that is allowed."""

from __future__ import annotations

import getpass
import json
import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import select

from benchmarks.printed.__main__ import MOMENTS, NEAR, Played, drawn, good, play
from features.amounts import Work
from features.commands import of_command
from features.progress import Progress
from profiler.progress import apart
from profiler.progress.wire import Answer, line_of, work_in
from scheduler.core.durations import seconds_of
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs as job_rows
from scheduler.slurm.follow import outputs as outputs_of
from scheduler.slurm.follow.outputs import LONGEST, OPTED_OUT, Outputs, filled_in, submitted
from scheduler.slurm.read.client import Slurm, SlurmDown
from scheduler.slurm.read.parse import SlurmJob
from tests import hung
from tests.scheduler.slurm.follow.test_follow import EVERYTHING, NOW, Told, twin

ME = getpass.getuser()


def job(number: str = "7", **more: object) -> SlurmJob:
    asked = {"user": ME, "name": "a", "partition": "main", "submit": NOW, "start": NOW, **more}
    return SlurmJob(number, str(asked.pop("state", "RUNNING")), **asked)  # type: ignore[arg-type]


@pytest.fixture
def slurm(tmp_path: Path) -> Told:
    found = Told()
    found.paths = {number: str(tmp_path / f"slurm-{number}.out") for number in ("7", "8")}
    return found


def read(slurm: Told, *jobs: SlurmJob, until_s: int = 600) -> dict[str, Progress]:
    """The news of looks of a minute, as they print ten steps each in a file of their own."""
    outputs, found = Outputs(cast(Slurm, slurm)), dict[str, Progress]()
    files = [path for path in map(Path, slurm.paths.values()) if path.name.endswith(".out")]
    for path in files:
        path.unlink(missing_ok=True)  # what was printed before is no part of it
    for at in range(0, until_s + 1, 60):
        for path in files:
            with path.open("a") as file:
                file.write(f"step {at // 6}/1000\n")
        found |= outputs.look(jobs, NOW + at)
        assert outputs.reading.settle(30.0)
    found |= outputs.look(jobs, NOW + until_s)
    outputs.close()
    return found


def test_how_far_a_job_is_is_read_where_that_is_allowed(slurm: Told, tmp_path: Path) -> None:
    found = read(slurm, job(), job("8"))
    assert set(found) == {"7", "8"}
    assert found["7"].total_s == pytest.approx(6000.0, rel=0.1)
    assert not read(slurm, job(comment=f"mine {OPTED_OUT}"))
    assert not read(slurm, job(user="nobody"))  # the file is another's
    assert not read(slurm, job(user="who-is-not-there"))
    assert not read(slurm, job(state="PENDING", start=None))
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(slurm.paths["8"])
    os.mkfifo(pipe)  # nobody writes: it would be waited for
    for path in (link, pipe, tmp_path, tmp_path / "none/7", Path("relative"), Path("/dev/null")):
        slurm.paths["7"] = str(path)
        assert not read(slurm, job()), path


def test_whoever_runs_many_jobs_keeps_nobody_elses_from_being_read(
    slurm: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs_of, "MOST", 3)
    slurm.paths |= {number: str(tmp_path / number) for number in ("1", "2", "3", "4")}
    many = [job(number, user="nobody") for number in ("1", "2", "3", "4")]
    outputs, mine = Outputs(cast(Slurm, slurm)), Path(slurm.paths["7"])
    outputs.look(many, NOW)
    found = dict[str, Progress]()
    for at in range(0, 601, 60):
        with mine.open("a") as file:
            file.write(f"step {at // 6}/1000\n")
        found |= outputs.look([*many, job()], NOW + at)
        assert outputs.reading.settle(30.0)
    assert set(found | outputs.look([*many, job()], NOW + 600)) == {"7"}
    outputs.close()


def test_many_that_begin_at_once_hold_no_look_up(
    slurm: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs_of, "AT_ONCE", 2)
    whose = {"n": "nobody", "m": ME}
    many = [job(f"{number}{of}", user=whose[of]) for of in whose for number in range(5)]
    slurm.paths |= {one.id: str(tmp_path / one.id) for one in many}
    asked = list[str]()

    def script(number: str) -> str:
        asked.append(number)
        return ""

    monkeypatch.setattr(slurm, "script", script)
    outputs = Outputs(cast(Slurm, slurm))
    for looks in range(1, 8):
        outputs.look(many, NOW + looks)
        assert len(asked) == min(2 * looks, len(many))
    outputs.close()
    assert {number[-1] for number in asked[:2]} == {"n", "m"}
    assert len({*asked}) == len(many)


def test_the_room_is_dealt_out_evenly_and_those_that_are_read_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outputs_of, "MOST", 5)
    whose = {(f"a{n}", 0.0): "ann" for n in range(9)} | {("b0", 0.0): "bob", ("b1", 0.0): "bob"}
    dealt = [run[0] for run in outputs_of._dealt(whose)]
    assert dealt == ["a0", "b0", "a1", "b1", "a2"]
    assert len(outputs_of._dealt(dict.fromkeys([*whose][:5], "ann"))) == 5


def test_what_the_script_asks_for_is_known_of_a_job_of_slurm(slurm: Told) -> None:
    outputs = Outputs(cast(Slurm, slurm))
    slurm.says["script 7"] = "#!/bin/bash\ncd a\nsrun python train.py --max_steps 1000\n"
    slurm.says["script 8"] = "#!/bin/bash\ncd a\nsrun python train.py\n"
    found = dict[str, Progress]()
    for at in range(0, 601, 60):
        for path in slurm.paths.values():
            with Path(path).open("a") as file:
                file.write(f"step: {at // 6} loss: 2.1\n")
        found |= outputs.look([job(), job("8")], NOW + at)
        assert outputs.reading.settle(30.0)
    found |= outputs.look([job(), job("8")], NOW + 601)
    outputs.close()
    assert set(found) == {"7"}
    assert found["7"].total_s == pytest.approx(6000.0, rel=0.1)


def test_what_it_was_submitted_with_is_known_of_a_job_of_slurm(slurm: Told) -> None:
    """Its script cannot be read, or passes on what it was given."""
    slurm.says["submitted 7"] = "sbatch -t 60 --gres=gpu:1 train.sh --max_steps 1000"
    slurm.says["script 8"] = '#!/bin/bash\nsrun python train.py "$@"\n'
    slurm.says["submitted 8"] = "sbatch train.sh --max_steps 500"
    slurm.paths["9"] = str(Path(slurm.paths["7"]).with_name("slurm-9.out"))
    slurm.says["script 9"] = "#!/bin/bash\nsrun python train.py --max_steps 250\n"
    slurm.says["submitted 9"] = "sbatch train.sh --max_steps 9000"  # which it does not pass on
    outputs, found = Outputs(cast(Slurm, slurm)), dict[str, Progress]()
    jobs = [job(), job("8"), job("9")]
    for at in range(0, 601, 60):
        for path in slurm.paths.values():
            with Path(path).open("a") as file:
                file.write(f"step: {at // 6} loss: 2.1\n")
        found |= outputs.look(jobs, NOW + at)
        assert outputs.reading.settle(30.0)
    found |= outputs.look(jobs, NOW + 601)
    outputs.close()
    assert {job_id: one.total_s for job_id, one in found.items()} == {
        "7": pytest.approx(6000.0, rel=0.1),
        "8": pytest.approx(3000.0, rel=0.1),
        "9": pytest.approx(1500.0, rel=0.1),
    }


@pytest.mark.parametrize("name", ["Lightning", "transformers", "Megatron", "nnU-Net", "Horovod"])
def test_the_same_is_said_in_front_of_slurm(name: str, slurm: Told) -> None:
    """Logs of the benchmark, read as the service without Slurm reads them, and from the output of a
    job of Slurm whose script runs the command.
    """
    command, run = next(
        (command, run) for case, command, run in drawn("reported", 1, name) if case.name == name
    )
    alone = play(run.parts, run.now, of_command(shlex.split(command)))
    slurm.says["script 7"] = f"#!/bin/bash\n#SBATCH --gpus=1\nmodule load cuda\nsrun {command}\n"
    outputs, output = Outputs(cast(Slurm, slurm)), Path(slurm.paths["7"])
    said, asked_at, at, i = list[tuple[float, Progress]](), 0.0, 0.0, 0
    while at < run.now:
        at += max(1.0, min(60.0, 0.02 * at))
        while i < len(run.parts) and run.parts[i][0] <= at:
            with output.open("a") as file:
                file.write(run.parts[i][1])
            i += 1
        news = outputs.look([job()], NOW + at)  # of what it asked for the time before
        said += [(asked_at, news["7"])] if news else []
        assert outputs.reading.settle(30.0)
        asked_at = at
    news = outputs.look([job()], NOW + at)
    outputs.close()
    in_front = Played(run.now, said + [(asked_at, one) for one in news.values()], 0.0)
    for share in MOMENTS:
        one, other = alone.at(share), in_front.at(share)
        assert (one is None) == (other is None)
        if one and other:
            # the process reads some time after it was asked, in a run that is played faster
            assert 1 / NEAR < other.total_s / one.total_s < NEAR
            assert good(other, run.now) == good(one, run.now)
    assert sum(in_front.at(share) is not None for share in MOMENTS) >= 3


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sbatch -N 2 --time=5 a.sh --epochs 3", ["a.sh", "--epochs", "3"]),
        ("sbatch -n1 --wrap=python a.py --epochs 3", ["python", "a.py", "--epochs", "3"]),
        ("sbatch --wrap python a.py", ["python", "a.py"]),
        ("sbatch --new-option=3 a.sh 7", ["sbatch", "--new-option=3", "a.sh", "7"]),
        ("sbatch a.sh " + "x" * LONGEST, []),
        ("", []),
    ],
)
def test_behind_the_options_is_what_a_line_runs(line: str, words: list[str]) -> None:
    assert submitted(line) == words


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("/home/a/slurm-31.out", "/home/a/slurm-31.out"),
        ("/home/%u/%x-%j.out", "/home/eve/train-33.out"),
        ("/logs/%A_%3a.%N%%", "/logs/31_002.n1%"),
        ("/logs/%s.out", ""),  # of a step
        ("/logs/a\\%j", ""),
        ("", ""),
    ],
)
def test_the_name_of_an_output_is_filled_in_as_slurm_does(path: str, file: str) -> None:
    one = job("31_2", user="eve", name="train", nodes=("n1.cluster", "n2"))
    assert filled_in(one, "33", path) == file


def test_a_file_system_that_hangs_keeps_its_own_jobs_from_being_read_and_no_other(
    slurm: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.paths["8"] = str(hung.pretended(monkeypatch, tmp_path / "hung") / "slurm-8.out")
    outputs, found = Outputs(cast(Slurm, slurm)), dict[str, Progress]()
    for at in range(0, 601, 60):
        with Path(slurm.paths["7"]).open("a") as file:
            file.write(f"step {at}/1000\n")
        found |= outputs.look([job("8"), job()], NOW + at)
        assert outputs.reading.settle(60.0)
    found |= outputs.look([job("8"), job()], NOW + 601)
    assert set(found) == {"7"}
    assert outputs.unread == {"8": apart.HANGS}
    outputs.close()


def test_who_waits_behind_a_job_hears_when_it_says_it_ends(store: Store, slurm: Told) -> None:
    """Slurm has no limit for it, and nothing like it has ended."""
    scene = twin(store)
    outputs = scene.follower._outputs = Outputs(cast(Slurm, slurm))
    runs = job(gpus=8, **EVERYTHING)
    waits = scene.job(5, gpus=4, gpu_types=(("", 4),), reason="Resources", time_limit_s=60.0)
    scene.now, path = NOW, Path(slurm.paths["7"])
    for step in range(0, 110, 10):  # what is read during a look counts at the next one
        path.write_text(f"{path.read_text() if step else ''}step {step}/1000\n")
        scene.look(runs, waits, after_s=60.0)
        assert outputs.reading.settle(30.0)
    with store.reading() as connection:
        query = select(job_rows.c.detail).where(job_rows.c.job_id == "7")
        detail = connection.execute(query).scalar_one()
    assert detail.startswith("its own progress says 1000 steps of")
    again = replace(runs, start=scene.now)  # put back, and begun again: nothing is known of it yet
    start = scene.pages().forecast("5")
    assert start is not None
    assert start.start_p50 == pytest.approx(NOW + 6000.0, abs=1000.0)
    scene.look(again, waits)
    assert scene.follower._planner.progress == {}


SCRIPT = "#!/bin/bash\n#SBATCH --gpus=1\nsrun python train.py --lr 0.1 --epochs {}\n"


def test_what_the_script_of_a_waiting_job_asks_for_is_read_once_where_that_is_allowed(
    slurm: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_of, script = list[str](), slurm.script

    def counted(number: str) -> str:
        read_of.append(number)
        return script(number)

    monkeypatch.setattr(slurm, "script", counted)
    slurm.says |= {f"script {number}": SCRIPT.format(30) for number in ("7", "8_1", "9")}
    slurm.says |= {"script 6": "#!/bin/bash\npython train.py --epochs $1\n"}
    slurm.says |= {"submitted 6": "sbatch a.sh 40", "script 5": "python a.py --epochs 3\n" * 2}
    waits = {"state": "PENDING", "start": None}
    jobs = [job(number, **waits) for number in ("7", "8_1", "8_2", "6", "5")]
    jobs += [job("9", comment=OPTED_OUT, **waits), job("4", state="COMPLETED")]
    outputs = Outputs(cast(Slurm, slurm))
    found = {one.id: one for one in outputs.with_work(jobs)}
    assert list(found) == [one.id for one in jobs]
    amounts = {number: one.work and one.work.amount for number, one in found.items()}
    assert amounts == {"7": 30, "8_1": 30, "8_2": 30, "6": 40, "5": None, "9": None, "4": None}
    assert sorted(read_of) == ["5", "6", "7", "8_1"]  # one of the array
    again = outputs.with_work(jobs)
    assert len(read_of) == 4
    assert all(one is found[one.id] for one in again)  # what has not changed is the same
    outputs.with_work([])
    outputs.with_work(jobs[:1])
    assert len(read_of) == 5  # it was gone: another may have its number
    outputs.close()


def test_a_script_that_slurm_does_not_give_just_now_is_asked_for_again(
    slurm: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, down = slurm.script, ["7"]

    def answered(number: str) -> str:
        if number in down:
            raise SlurmDown("scontrol: no answer within 5 s")
        return script(number)

    monkeypatch.setattr(slurm, "script", answered)
    slurm.says |= {f"script {number}": SCRIPT.format(30) for number in ("7", "8")}
    jobs = [job(number, state="PENDING", start=None) for number in ("7", "8")]
    outputs = Outputs(cast(Slurm, slurm))
    assert [one.work and one.work.amount for one in outputs.with_work(jobs)] == [None, 30]
    runs = job("7")
    assert outputs.look([runs], NOW) == {}
    down.clear()
    assert [one.work and one.work.amount for one in outputs.with_work(jobs)] == [30, 30]
    outputs.close()


def test_a_task_whose_user_opted_out_has_no_amount_of_its_array(slurm: Told) -> None:
    slurm.says["script 8_1"] = SCRIPT.format(30)
    waits = {"state": "PENDING", "start": None}
    jobs = [job("8_1", **waits), job("8_2", comment=OPTED_OUT, **waits)]
    outputs = Outputs(cast(Slurm, slurm))
    assert [one.work and one.work.amount for one in outputs.with_work(jobs)] == [30, None]
    outputs.close()


def test_an_amount_that_takes_its_time_is_known_at_a_later_look(
    slurm: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs_of, "PATIENCE_S", 0.0)
    slurm.says["script 7"] = SCRIPT.format(30)
    outputs, waits = Outputs(cast(Slurm, slurm)), job(state="PENDING", start=None)
    assert [one.work for one in outputs.with_work([waits])] == [None]
    outputs.with_work([waits])  # while it is asked for
    assert outputs.reading.settle(30.0)
    assert [one.work and one.work.amount for one in outputs.with_work([waits])] == [30]
    outputs.close()


def test_whose_scripts_end_the_reader_lose_nobody_elses(
    slurm: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ends = apart._Reader.ask, list[str]()

    def ask(
        self: apart._Reader, what: Mapping[str, Any], files: Mapping[str, int]
    ) -> Answer | None:
        if "asked" in files and b"ends" in os.pread(files["asked"], 4096, 0):
            ends.append("")
            self.process.kill()
        return asked(self, what, files)

    monkeypatch.setattr(apart._Reader, "ask", ask)
    waits = {"state": "PENDING", "start": None}
    bad = [job(f"{number}", user="nobody", **waits) for number in range(10, 30)]
    good = [job(f"{number}", **waits) for number in range(30, 50)]
    slurm.says |= {f"script {one.id}": "ends" for one in bad}
    slurm.says |= {f"script {one.id}": SCRIPT.format(30) for one in good}
    outputs = Outputs(cast(Slurm, slurm))
    known = 0
    for _ in range(3):
        found = outputs.with_work([*bad, *good])
        assert outputs.reading.settle(30.0)
        known = sum(one.work is not None for one in found)
        time.sleep(apart.AGAIN_S + 0.1)
    outputs.close()
    assert known == len(good)
    assert 1 <= len(ends) <= 3  # one a look, after all others


def test_a_second_run_is_foreseen_by_what_its_script_asks_for(store: Store, slurm: Told) -> None:
    scene = twin(store)
    scene.follower._outputs = Outputs(cast(Slurm, scene.slurm))
    scene.slurm.says |= {"script 7": SCRIPT.format(30), "script 8": SCRIPT.format(90)}
    scene.now = NOW
    runs = job(gpus=8, **EVERYTHING)
    scene.look(runs, after_s=3000.0)
    over = replace(runs, state="COMPLETED", end=NOW + 3000.0)
    waits = scene.job(8, gpus=8, user=ME, start=None)
    scene.look(over, waits, after_s=60.0)
    foreseen = scene.follower.memory.of("8")
    assert foreseen is not None
    assert foreseen.predicted_s is not None
    assert seconds_of(foreseen.predicted_s) == pytest.approx(9000.0, rel=0.15)
    scene.follower._outputs.close()
    scene.restart()  # it learns from what was written of the one that has ended
    scene.slurm.says |= {"script 9": SCRIPT.format(90)}
    scene.follower._outputs = Outputs(cast(Slurm, scene.slurm))
    scene.look(replace(waits, id="9"), after_s=60.0)
    foreseen = scene.follower.memory.of("9")
    assert foreseen is not None
    assert foreseen.predicted_s is not None
    assert seconds_of(foreseen.predicted_s) == pytest.approx(9000.0, rel=0.15)
    scene.follower._outputs.close()


def test_what_a_script_asks_for_is_known_until_its_job_is_shown_no_more(slurm: Told) -> None:
    slurm.says |= {"script 7": SCRIPT.format(30), "script 8": SCRIPT.format(30)}
    outputs = Outputs(cast(Slurm, slurm))
    for state in ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "COMPLETED"):
        (found,) = outputs.with_work([job(state=state)])
        assert found.work is not None, state
        assert found.work.amount == 30
        slurm.says.pop("script 7", None)  # it is not read a second time
    assert outputs.with_work([job(state="COMPLETED", comment=OPTED_OUT)])[0].work is None
    assert outputs.with_work([job("8", state="COMPLETED")])[0].work is None  # nobody needs it
    outputs.close()


DIGESTS = ["0" * 16] * 3


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "7",
        "x" * 300,
        "[" * 300,
        '["epoch", -1, null, "a", "b", "c"]',
        json.dumps(["step", float("inf"), None, *DIGESTS]),
        json.dumps(["hour", 3, None, *DIGESTS]),
        json.dumps(["step", 3, None, *DIGESTS[1:], "../"]),
    ],
)
def test_an_amount_that_no_sound_reader_tells_is_none(line: str) -> None:
    assert work_in(line) is None
    work = Work("epoch", 3.0, None, *["0a" * 8] * 3)
    assert work_in(line_of(work)) == work
