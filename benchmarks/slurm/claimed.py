"""Holds what a replay states of another setting against real daemons: they run the submissions of a
generated site twice, as its Slurm is set and with the other setting.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.claims import scored
from benchmarks.slurm.cluster import SlurmCluster
from benchmarks.slurm.config import Own
from benchmarks.slurm.generated import generate
from benchmarks.slurm.kept import Kept, renames
from benchmarks.slurm.recording import SACCT, SITE
from benchmarks.slurm.workload import USERS
from pipeline.errors import UserError
from pipeline.replay.runs import VARIANTS
from pipeline.replay.runs import replay as play

OWN = ""  # the settings as they are
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "no backfill": {"SchedulerType": "sched/builtin"},
    "rare backfill": {"bf_interval": "60"},
}
SLURM = next(one for one in VARIANTS if one.key == "slurm")
REPLAYS = 6
MOST_LEFT = 0.1  # of the jobs that did not start in the second run: more, and its waits are unknown
AIMS = (  # a share, at least so much, in words, of those counted as
    ("answered", 0.6, "sites of which something is stated", "asked"),
    ("held", 0.85, "intervals that hold the daemons' difference", "compared"),
    ("sign_right", 0.95, "signs that are right", "signed"),
)
# of each job, every second, slurmstepd looks through all processes of the host
SELDOM = {"JobAcctGatherFrequency": "task=30"}
LOOK_S, STILL, PATIENCE_S = 5.0, 18, 1080.0  # a run is over after so many looks at which none runs


def held(seed: int, keep: Path | None, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run the site of a seed on daemons as it is set and, at the same time, with one of `SETTINGS`
    (by turns of the seeds). Return what the replay of the first run states of that setting, and by
    how many seconds a job waited less in the second.

    Args:
        keep: folder that keeps the runs; those there are not made again. None: nothing is kept.
        tell: called with each line of progress.
    """
    name = list(SETTINGS)[seed % len(SETTINGS)]
    over = Event()
    with ThreadPoolExecutor(2) as both:  # it is mostly waited
        try:
            once, other = both.map(lambda of: _kept(keep, seed, of, tell, over), (OWN, name))
        finally:
            over.set()
    row = compared(once, other, name)
    tell(f"seed {seed}: {row}")
    return row


def compared(once: Kept, other: Kept, name: str) -> dict[str, Any]:
    """Return what the replay of a site's own run states of the setting `name`, and how much less a
    job waited in the run with that setting, in seconds. Jobs that it did not take are not compared:
    without backfill, Slurm takes no heterogeneous ones. The difference is left empty where too many
    others did not start.
    """
    row: dict[str, Any] = {"site": "daemons", "seed": once.seed, "setting": name}
    with TemporaryDirectory() as one, TemporaryDirectory() as two:
        try:
            site, after_it = once.read(Path(one)), other.read(Path(two))
        except UserError as error:
            why = str(error).partition(": ")[2]
            return {**row, "stated": None, "saved_s": [], "refused": why}
        variant = replace(SLURM, key="changed", title=name, changed=SETTINGS[name])
        found = play(site, REPLAYS, variants=[SLURM, variant])
    whole = next((claim for claim in found["changed"] if not claim["by"]), None)
    stated = None if whole is None else whole["savings"].get("changed")
    shut = {claim["name"] for claim in found["changed"] if claim["by"] == "vc" and claim["refused"]}
    renamed, after = renames(once, other), _waits(after_it.recorded)
    every = _waits(site.replayable.filter(pc.invert(_among(site.replayable["vc"], shut))))
    before = {j: wait for j, wait in every.items() if renamed(j)[:1].isdigit()}
    waits = [(wait, after[renamed(j)]) for j, wait in before.items() if renamed(j) in after]
    many, left = max(1, len(waits)), len(before) - len(waits)
    known = waits and left <= MOST_LEFT * len(before)  # those that start late are not there
    return {
        **row,
        "jobs": len(waits),
        "left": left,
        "not_taken": len(every) - len(before),
        "recorded_s": sum(wait for wait, _ in waits) / many,
        "saved_s": [sum(wait - then for wait, then in waits) / many] if known else [],
        "stated": stated,
        "refused": "" if stated else (whole or {}).get("refused") or "no partition is left",
        "doubts": len(found["misfit"]),
    }


def told(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rows, and how well what was stated held."""
    return {"rows": list(rows), **_scored(rows)}


def missed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line for each missed aim. An aim is not missed where nothing was counted."""
    found = _scored(rows)
    return [
        f"{what}: {found[key]:.2f}, not {least}"
        for key, least, what, among in AIMS
        if found[among] and found[key] < least
    ]


def _scored(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | int]:
    """Return how well statements held, of sites whose second run is known, and for what share of
    all sites a saving was stated."""
    known, every = [row for row in rows if row["saved_s"]], scored(rows)
    stated = sum(row["stated"] is not None for row in known)
    return {**scored(known), "compared": stated, "asked": len(rows), "answered": every["answered"]}


def _among(column: Any, names: set[str]) -> Any:
    return pc.is_in(column, value_set=pa.array(sorted(names), pa.string()))


def _waits(table: pa.Table) -> dict[str, float]:
    rows = table.select(["job_id", "wait_s"]).to_pylist()
    return {row["job_id"]: row["wait_s"] for row in rows}


def _kept(
    keep: Path | None, seed: int, name: str, tell: Callable[[str], None], over: Event
) -> Kept:
    if keep is None:
        return run(seed, name, tell, over)
    file = keep / f"claims{seed}{name.replace(' ', '_')}.pickle"
    if not file.exists():
        keep.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pickle.dumps(run(seed, name, tell, over)))
    found = pickle.loads(file.read_bytes())
    assert isinstance(found, Kept)
    return found


def run(seed: int, name: str, tell: Callable[[str], None], over: Event) -> Kept:
    """Run the submissions of a seed's site on daemons, with the setting `name` (`OWN`: none), until
    none of its jobs runs and the rest cannot start, or for `PATIENCE_S` seconds. Return what was
    recorded.

    Raises InterruptedError as soon as `over` is set.
    """

    def rest(seconds: float) -> None:
        if over.wait(max(0.0, seconds)):
            raise InterruptedError(f"seed {seed}: stopped")

    made = generate(seed)
    own = changed(made.own, {**SELDOM, **SETTINGS.get(name, {})})
    with SlurmCluster(accounting=True, own=own) as slurm:
        slurm.account(*made.accounting)
        if made.weighed:
            slurm.shared(USERS)
        for words in made.settings:
            slurm.run("scontrol", *words.split(), check=False)  # two may overlap
        kept, began, still = Kept(seed), time.time(), 0
        for place, order in enumerate(made.orders):
            rest(began + order.at - time.time())
            after = "0" if order.after is None else kept.ids.get(order.after, "1")
            done = slurm.run(*order.command(after=after), user=order.user, check=False)
            if not done.returncode:
                kept.ids[place] = done.stdout.strip().partition(";")[0]
        while still < STILL and time.time() < began + PATIENCE_S:
            rest(LOOK_S)
            still = 0 if slurm.run("squeue", "-h", "-t", "R,CG").stdout.strip() else still + 1
        left = len(slurm.run("squeue", "-h", "-r").stdout.splitlines())
        tell(f"seed {seed} {name or 'as it is'}: {time.time() - began:.0f} s, {left} jobs left")
        rest(LOOK_S)  # until slurmdbd knows the last end
        kept.sacct, kept.at = slurm.run(*SACCT).stdout, time.time()
        kept.site = "\n".join(slurm.run(*words).stdout for words in SITE)
        kept.conf = (slurm.folder / "slurm.conf").read_text()
    return kept


def changed(own: Own, to: Mapping[str, str]) -> Own:
    """Return nodes and lines of slurm.conf in which settings are changed: a name that begins in
    lower case is of `SchedulerParameters`.
    """
    parameters = [f"{key}={value}" for key, value in to.items() if key[:1].islower()]
    whole = [f"{key}={value}" for key, value in to.items() if not key[:1].islower()]

    def line_of(line: str) -> str:
        name, _, value = line.partition("=")
        if name != "SchedulerParameters":
            return line
        kept = [one for one in value.split(",") if one.partition("=")[0] not in to]
        return f"{name}={','.join([*kept, *parameters])}"

    return replace(own, lines=lambda ports: [*map(line_of, own.lines(ports)), *whole])
