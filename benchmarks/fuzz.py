"""Parsers and loaders, given mutated files: each takes an input or refuses it in its own words.

    python -m benchmarks.fuzz --inputs 50000 --json

Every input is a good one with bytes turned, lines and numbers swapped for odd ones, parts cut out,
doubled or put elsewhere. Anything but the loader's own refusal is a traceback to somebody; it is
printed with the seed of the input (`--only NAME --first SEED --inputs 1` gives it again).
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos.changes import make_bundles
from models.bundle import BundleError
from pipeline.testing.samples import samples as made
from pipeline.traces.base import Meter, TraceError
from pipeline.traces.dataset import read_dataset
from pipeline.traces.registry import FORMATS
from pipeline.worlds.cluster_file import read_cluster_file
from pipeline.worlds.venus import TrackError
from scheduler.backends.local.host import HostError, read_declared
from scheduler.backends.local.spool import Acks
from scheduler.backends.slurm import parse
from scheduler.backends.slurm.parse import ParseError
from scheduler.core.settings import InvalidSettings, UnknownPolicy
from scheduler.service.log.bundles import BundleStore, check
from scheduler.service.log.header import LogHeader, LogHeaderError
from scheduler.service.log.store.paging import BadCursor, cursor, opened
from scheduler.service.settings import SettingsError, read_settings
from tests.pipeline.traces import samples

ODD = (
    b"", b"0", b"-1", b"nan", b"inf", b"1e999", b"9" * 40, b"9" * 5000, b"null", b"true", b'""',
    b"[]", b"{}", b"\0", b"\xff\xfe", b"\x1b[2J", b",", b"|", b"\n", b'"', b"'", b"[" * 200,
    "\u202e".encode(), b"2024-02-30 25:61:61", b"0001-01-01T00:00:00", b"99999-12-31 00:00:00",
)  # fmt: skip
WORD = re.compile(rb"[-+.\w]+")


def mutated(data: bytes, draw: random.Random) -> bytes:
    """One to four changes."""
    for _ in range(draw.randint(1, 4)):
        at, length = draw.randrange(len(data) + 1), draw.choice((1, 2, 8, 64))
        kind = draw.randrange(7)
        if kind == 0 and data:
            at = draw.randrange(len(data))
            data = data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at] + data[at + length :]
        elif kind == 2:
            data = data[:at] + draw.choice(ODD) + data[at:]
        elif kind == 3:
            data = data[:at] + data[at : at + length] * draw.choice((2, 3, 50)) + data[at:]
        elif kind == 4:
            data = data[:at]
        elif words := list(WORD.finditer(data)):  # most often: a word becomes another
            word = draw.choice(words)
            other = draw.choice(ODD) if draw.random() < 0.6 else draw.choice(words).group()
            data = data[: word.start()] + other + data[word.end() :]
    return data


@dataclass(frozen=True)
class Target:
    """What is tried: good inputs, what takes one, and what it may raise."""

    good: list[bytes]
    load: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]


@dataclass
class Found:
    """What came of one target."""

    inputs: int = 0
    taken: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    defects: Counter[str] = field(default_factory=Counter)


def targets(folder: Path) -> dict[str, Target]:
    found = {f"trace {name}": one for name, one in _traces(folder).items()}
    return {**found, **_files(folder), **_texts(), **_kept(folder)}


def _traces(folder: Path) -> dict[str, Target]:
    jobs = made(4)
    found = {}
    for name, write in samples.WRITERS.items():
        (folder / name).mkdir()
        path = write(folder / name, jobs)
        if path.is_dir():  # several files, of which none is a trace
            continue
        adapter = FORMATS[name]()

        def load(data: bytes, adapter: Any = adapter, path: Path = path) -> None:
            path.write_bytes(data)
            for other in FORMATS.values():
                other().sniff(path)
            for _ in adapter.read(path, adapter.options(None, None, Meter(None))):
                pass

        found[name] = Target([path.read_bytes()], load, (TraceError,))
    return found


CLUSTER = b"""name: x
gpus_per_node: 4
gpu_type: V100
vcs:
  a: 2
  b:
    - {nodes: 2, gpus_per_node: 8, gpu_type: A100, gpu_memory_mib: 81920, names: [gpu1, gpu2]}
profiling: {nodes: 1, limit_s: 200, lend_from: [a]}
policy: {name: pellucid, ageing: 0.05, fairness: {weight: 0.5}}
"""
SETTINGS = b"""database: sqlite:///x.db
policy: fifo
backend: local
fake_gpus: true
lease_s: 10.0
port: 8400
policy_settings: {a: 1}
"""
PROFILES = (
    b'[{"command": "python *", "gpu_util_pct": 50, "gpu_mem_util_pct": 20, "gpu_mem_mib": 900, '
    b'"amp": true}]'
)


def _files(folder: Path) -> dict[str, Target]:
    file = folder / "file"

    def of_file(load: Callable[[Path], object]) -> Callable[[bytes], object]:
        def loads(data: bytes) -> object:
            file.write_bytes(data)
            return load(file)

        return loads

    def acks(path: Path) -> None:
        Acks(path).close()

    lines = b'["job1",1,"started",false,1.5]\n["job1",1,"ended",true,2.5]\n'
    return {
        "cluster file": Target([CLUSTER], of_file(read_cluster_file), (TrackError,)),
        "settings": Target([SETTINGS], of_file(read_settings), (SettingsError,)),
        "declared profiles": Target([PROFILES], of_file(read_declared), (HostError,)),
        "log of acks": Target([lines], of_file(acks), ()),
    }


JOBS = {
    "meta": {"slurm": {"version": {"major": "24", "micro": "5", "minor": "11"}}},
    "jobs": [
        {
            "job_id": 7, "name": "a", "user_name": "ann", "account": "x", "partition": "gpu",
            "job_state": ["PENDING"], "state_reason": "Resources", "shared": [],
            "priority": {"set": True, "number": 5}, "tres_req_str": "cpu=4,gres/gpu:a100=2",
            "time_limit": {"set": True, "number": 60}, "submit_time": {"number": 1_700_000_000},
            "node_count": {"number": 1}, "nodes": "n[1-2]", "gres_detail": ["gpu:a100:2(IDX:0-1)"],
            "array_job_id": {"number": 7}, "array_task_string": "1-4%2",
        }
    ]
}  # fmt: skip
NODES = (
    b"NodeName=n1 Arch=x86_64 CPUTot=64 RealMemory=512000 Gres=gpu:a100:8(S:0-1) State=IDLE+DRAIN "
    b"Partitions=gpu,debug ActiveFeatures=a Weight=1 CPUEfctv=62 MemSpecLimit=1024 Reason=fan\n"
)


def _texts() -> dict[str, Target]:
    def text(load: Callable[[str], object]) -> Callable[[bytes], object]:
        return lambda data: load(data.decode("utf-8", "replace"))

    one = cursor(3, 7.5).encode()
    header = LogHeader.from_body
    return {
        "squeue": Target([json.dumps(JOBS).encode()], text(parse.jobs), (ParseError,)),
        "scontrol nodes": Target([NODES], text(parse.nodes), (ParseError,)),
        "host list": Target([b"n[1-3,07],m2,gpu[01-04]x"], text(parse.hosts), (ParseError,)),
        "array tasks": Target([b"1-4,7,9-15:2%3"], text(parse.task_numbers), (ParseError,)),
        "cursor": Target([one], text(lambda t: opened(t, int, float)), (BadCursor,)),
        "log header": Target(
            [json.dumps(_header()).encode()],
            lambda data: header(_object(data)),
            (LogHeaderError, UnknownPolicy, InvalidSettings, _NoObject),
        ),
    }


class _NoObject(Exception):
    """No JSON object: the log holds nothing else."""


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise _NoObject from None
    if not isinstance(found, dict):
        raise _NoObject
    return found


def _header() -> dict[str, Any]:
    from scheduler.assembly import CoreSpec
    from scheduler.core.cluster import ClusterSpec

    return LogHeader(CoreSpec.of(ClusterSpec({"a": 2}, 4), "fifo"), 1.7e9).body()


def _kept(folder: Path) -> dict[str, Target]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    bundles = make_bundles(folder / "bundles")
    document = next(path for path in bundles[0].iterdir() if path.suffix == ".json")
    arrays = [path for path in bundles[0].iterdir() if path.suffix == ".npy"]
    whole = {path: path.read_bytes() for path in bundles[0].iterdir() if path.is_file()}
    store = BundleStore(folder / "store")

    def bundle_of(changed: Path) -> Callable[[bytes], object]:
        def load(data: bytes) -> None:
            for path, was in whole.items():
                path.write_bytes(data if path == changed else was)
            check(store.take(bundles[0]))

        return load

    table = folder / "dataset"
    table.mkdir()
    jobs = table / "jobs.parquet"
    pq.write_table(pa.table({"job_id": ["a", "b"], "gpus": [1, 2]}), jobs)
    good = jobs.read_bytes()

    def dataset(data: bytes) -> None:
        jobs.write_bytes(data)
        read_dataset(table)

    found = {
        "bundle": Target([whole[document]], bundle_of(document), (BundleError,)),
        "dataset": Target([good], dataset, (TraceError,)),
    }
    if arrays:
        found["bundle arrays"] = Target([whole[arrays[0]]], bundle_of(arrays[0]), (BundleError,))
    return found


def one(target: Target, seed: str, found: Found) -> None:
    """Try one input."""
    draw = random.Random(seed)
    data = mutated(draw.choice(target.good), draw)
    began = time.monotonic()
    found.inputs += 1
    try:
        target.load(data)
        found.taken += 1
    except target.refusals:
        found.refused += 1
    except Exception as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        where = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
        if not found.defects[where]:
            print(f"{seed}: {where}: {str(error)[:200]}", file=sys.stderr)
        found.defects[where] += 1
    found.slowest_s = max(found.slowest_s, time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--inputs", type=int, default=50_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first input of each")
    parser.add_argument("--only", default="", help="one target")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="pellucid-fuzz-") as folder:
        chosen = targets(Path(folder))
        if asked.only:
            chosen = {asked.only: chosen[asked.only]}
        found = {name: Found() for name in chosen}
        for number in range(-(-asked.inputs // len(chosen))):
            for name, target in chosen.items():
                one(target, f"{name} {asked.first + number}", found[name])
    defects = sum(sum(one.defects.values()) for one in found.values())
    total = sum(one.inputs for one in found.values())
    if asked.json:
        told = {name: {**vars(one), "defects": dict(one.defects)} for name, one in found.items()}
        print(json.dumps({"inputs": total, "defects": defects, "targets": told}, indent=2))
    else:
        print(f"{total:,} inputs of {len(found)} parsers and loaders: {defects} defects")
    sys.exit(1 if defects else 0)


if __name__ == "__main__":
    main()
