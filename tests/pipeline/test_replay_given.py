"""What a site can give beside its dump, and what a replay of its Slurm makes of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.replay.asked import licences_of, options
from pipeline.replay.printed import read_printed
from pipeline.replay.runs import VARIANTS, one
from pipeline.replay.site import DumpOptions, Site, read_site

SLURM = next(variant for variant in VARIANTS if variant.key == "slurm")
BEGIN = datetime(2026, 3, 2, 10, tzinfo=UTC)
NODES = """NodeName=n1 CPUTot=8 RealMemory=64000 Gres=gpu:a100:2,gpu:v100:2 State=IDLE
   Partitions=gpu,all
NodeName=n2 CPUTot=4 RealMemory=64000 Gres=(null) State=IDLE Partitions=all
"""
RESERVED = "Name|NodeName|TimeStart|TimeEnd|Flags\nupkeep|n1|{}|{}|MAINT,SPEC_NODES\n"
HEADER = (
    "JobID|User|Account|Partition|QOS|Submit|Eligible|Start|End|Timelimit|State|Reason|NodeList|"
    "ReqTRES|AllocTRES|SubmitLine"
)


def clock(second: float) -> str:
    return f"{BEGIN + timedelta(seconds=second):%Y-%m-%dT%H:%M:%S}"


def ran(
    job: str,
    submit: float,
    start: float,
    end: float,
    tres: str,
    line: str = "",
    *,
    partition: str = "gpu",
    reason: str = "None",
) -> str:
    times = (clock(at) for at in (submit, submit, start, end))
    return "|".join(
        [job, "anna", "lab", partition, "normal", *times, "00:30:00", "COMPLETED", reason, "n1",
         tres, tres, line]
    )  # fmt: skip


def site_of(folder: Path, jobs: list[str], printed: str, *, cpu_jobs: bool | None = None) -> Site:
    dump, given = folder / "dump.txt", folder / "site.txt"
    dump.write_text("\n".join([HEADER, *jobs]) + "\n")
    given.write_text(printed)
    return read_site(dump, folder / "scratch", DumpOptions(printed=[given], cpu_jobs=cpu_jobs))


def waits(site: Site) -> dict[str, float]:
    replayed = one(site, SLURM, 0, site.modelled)
    return dict(zip(*replayed.select(["job_id", "wait_s"]).to_pydict().values(), strict=True))


ON_GPU = "billing=2,cpu=2,gres/gpu=1,mem=100M,node=1"


class TestJobsWithoutGpus:
    JOBS = (
        ran("1", 0, 0, 1200, "billing=8,cpu=8,mem=100M,node=1"),
        ran("2", 30, 1200, 1300, ON_GPU),
    )

    def test_take_the_cpus_of_those_that_have_some(self, tmp_path: Path) -> None:
        site = site_of(tmp_path, list(self.JOBS), NODES)
        assert waits(site)["2"] == pytest.approx(1170, abs=90)
        assert site.judged["job_id"].to_pylist() == ["2"]
        assert site.workload.cluster.gpus == 4
        assert site.counts["without_gpus"] == site.counts["played_without_gpus"] == 1

    def test_are_counted_where_they_are_left_out(self, tmp_path: Path) -> None:
        site = site_of(tmp_path, list(self.JOBS), NODES, cpu_jobs=False)
        assert waits(site)["2"] < 90
        assert site.counts["without_gpus"] == 1
        assert any(note.startswith("1 jobs without GPUs are not replayed") for note in site.notes)

    def test_move_no_other_job(self, tmp_path: Path) -> None:
        """The jitter of a seed is the same for all variants, or they could not be paired."""
        from pipeline.replay.runs import scenario

        site = site_of(tmp_path, list(self.JOBS), NODES)
        mine, easy = (
            {job.job_id: job.submit_time for job in scenario(site, variant, 3).workload.jobs}
            for variant in VARIANTS
            if variant.key in ("slurm", "easy")
        )
        assert set(mine) - set(easy) == {"1"} or set(easy) - set(mine) == {"1"}
        assert mine["2"] == easy["2"]

    def test_need_nodes_with_cpus(self, tmp_path: Path) -> None:
        (tmp_path / "dump.txt").write_text("\n".join([HEADER, *self.JOBS]))
        with pytest.raises(UserError, match="--site"):
            read_site(tmp_path / "dump.txt", tmp_path / "scratch", DumpOptions(cpu_jobs=True))


def test_a_setting_that_no_replay_has_is_named_with_the_jobs_it_touches(tmp_path: Path) -> None:
    conf = (
        "PartitionName=gpu Nodes=n1 PriorityTier=1 PreemptMode={} State=UP\n"
        "PartitionName=all Nodes=n[1-2] PriorityTier=9 PreemptMode=OFF State=UP\n"
        "PreemptType = preempt/partition_prio\n"
    )
    site = site_of(tmp_path, [ran("1", 0, 0, 60, ON_GPU)], NODES + conf.format("REQUEUE"))
    assert not site.unlike
    site = site_of(tmp_path, [ran("1", 0, 0, 60, ON_GPU)], NODES + conf.format("SUSPEND"))
    said = "Not modelled by the policy slurm: partition gpu: PreemptMode=SUSPEND (1 job)."
    assert site.unlike == [said]
    assert said in site.notes


def test_a_reservation_keeps_its_nodes(tmp_path: Path) -> None:
    jobs = [ran("1", 30, 1200, 1300, ON_GPU)]
    upkeep = RESERVED.format(clock(0), clock(1200))
    given = site_of(tmp_path, jobs, NODES + upkeep)
    assert waits(given)["1"] == pytest.approx(1170, abs=90)
    assert not any("Reservations were not given" in note for note in given.notes)
    of_scontrol = (
        f"ReservationName=upkeep StartTime={clock(0)} EndTime={clock(1200)} Duration=00:20:00\n"
        "   Nodes=n1 NodeCnt=1 Features=(null) Flags=MAINT,SPEC_NODES\n"
    )
    for name, text in (("a", upkeep), ("b", of_scontrol), ("c", upkeep + of_scontrol)):
        (tmp_path / name).write_text(text)
    once, again, both = (read_printed([tmp_path / name]).reservations for name in "abc")
    assert once == again == both
    jobs = [ran("1", 30, 1200, 1300, ON_GPU, reason="ReqNodeNotAvail, Reserved for maintenance")]
    jobs.append(ran("2", 60, 1300, 1400, ON_GPU, reason="Resources"))
    (tmp_path / "without").mkdir()
    without = site_of(tmp_path / "without", jobs, NODES)
    assert any("1 jobs were recorded as waiting for reserved" in note for note in without.notes)


@pytest.mark.parametrize(
    ("tres", "line"),
    [
        (ON_GPU + ",license/matlab=1", ""),
        (ON_GPU, "sbatch --gres=gpu:1 -c2 --mem=100M -L matlab:1 train.sh -L none"),
    ],
    ids=["counted", "typed"],
)
def test_licences_run_out(tres: str, line: str, tmp_path: Path) -> None:
    jobs = [ran("1", 0, 0, 900, tres, line), ran("2", 30, 900, 950, tres, line)]
    licence = "LicenseName=matlab\n    Total=1 Used=0 Free=1 Reserved=0 Remote=no\n"
    (tmp_path / "without").mkdir()
    assert waits(site_of(tmp_path, jobs, NODES + licence))["2"] == pytest.approx(870, abs=90)
    without = site_of(tmp_path / "without", jobs, NODES)
    assert waits(without)["2"] < 90
    assert any(note.startswith("2 jobs had licences") for note in without.notes)


class TestSubmitLine:
    def asked(self, folder: Path, tres: str, line: str) -> Site:
        site = site_of(folder, [ran("7", 0, 0, 60, tres, line)], NODES)
        assert site.twin is not None
        return site

    def test_names_what_no_tres_counts(self, tmp_path: Path) -> None:
        line = "sbatch -p gpu,all --gres=gpu:v100:1 -c 2 --mem=100M --nice=50 job.sh"
        site = self.asked(tmp_path, ON_GPU, line)
        assert site.twin is not None
        ask = site.twin.asks["7"]
        assert ask.gpus == (("v100", 1),)
        assert ask.partitions == ("gpu", "all")
        assert ask.nice == 50

    def test_is_no_word_on_what_the_script_asked_for(self, tmp_path: Path) -> None:
        site = self.asked(tmp_path, ON_GPU, "sbatch --gres=gpu:v100:2 job.sh")
        assert site.twin is not None
        assert site.twin.asks["7"].gpus == (("", 1),)
        assert site.twin.asks["7"].cpus == 2

    def test_may_hold_bars_and_anything_else(self, tmp_path: Path) -> None:
        line = "sbatch --gpus=1 -c2 --wrap a|b|c --gpus=4"
        site = self.asked(tmp_path, ON_GPU, line)
        assert site.counts["replayed"] == 1
        assert site.quarantined == {}
        site = self.asked(tmp_path, ON_GPU, "sbatch --gpus=none --nodes=x job.sh")
        assert site.counts["replayed"] == 1

    def test_is_read_up_to_the_script(self) -> None:
        said = list(options("sbatch -n4 -p a --gres gpu:2 --hold --exclusive job.sh --mem=8G"))
        assert said == ["--ntasks=4", "--partition=a", "--gres=gpu:2", "--exclusive"]
        assert licences_of("cpu=1", "sbatch -L a:2,b job.sh") == (("a", 2), ("b", 1))
        assert licences_of("cpu=1", "sbatch -L a:² job.sh") == (("a", 1),)
        assert licences_of("cpu=1,license/a=3", "sbatch -L b job.sh") == (("a", 3),)
