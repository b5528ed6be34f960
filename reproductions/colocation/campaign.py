"""The measurement campaign: every family, batch size and precision alone, and as many pairs as the
time allows, on one GPU, to a folder that is a data set (`data/profiles/`).

    python -m reproductions.colocation.campaign --out data/profiles/h200 --minutes 9 --pairs 105

Run it again and it goes on where it stopped, also after being killed. `--device cpu --tiny` runs
the whole of it in small on a CPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
import time
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from features.files import write_json
from profiler.errors import BadOption, NotSupported, ProfilerError
from reproductions.colocation import mps
from reproductions.colocation.bench import Bench, Settings, all_pairs
from reproductions.colocation.card import write_card
from reproductions.colocation.journal import Item
from reproductions.colocation.tables import write_tables
from reproductions.colocation.workloads import WORKLOADS, Config, all_configs, parse_config

MACHINE_NAME = "machine.json"
TINY = Settings(
    device="cpu",
    size="tiny",
    solo_s=1.0,
    pair_s=1.0,
    settle_s=0.1,
    min_repeats=2,
    max_repeats=2,
    threads=1,
)


def machine(devices: list[dict[str, object]]) -> dict[str, Any]:
    """Return the devices measured on, and the versions that matter."""
    versions = {"python": platform.python_version(), "kernel": platform.release()}
    for package in ("torch", "nvidia-ml-py", "numpy", "psutil", "pellucid"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {"devices": devices, "cores": os.cpu_count(), "versions": versions}


def choose_configs(names: list[str], settings: Settings) -> list[Config]:
    """Return the named configurations (``MODEL[/BATCH][/amp]``; a bare family means all of its), or
    all.
    """
    every = all_configs(settings.size)
    if not names:
        return every
    found: list[Config] = []
    for name in names:
        if name in WORKLOADS:
            found += [config for config in every if config.model == name]
        else:
            found.append(parse_config(name, settings.size))
    return list(dict.fromkeys(found))


def campaign(
    settings: Settings,
    folder: Path,
    minutes: float,
    names: list[str],
    pairs: int | None,
    with_mps: bool,
    quiet: bool = False,
) -> dict[str, Any]:
    """Measure for at most `minutes`, and write tables and card. Return a summary. Ctrl-C ends the
    measuring early; what was measured is written all the same.

    Args:
        names: configurations; empty: all of them.
        pairs: at most so many; None: all that there are.
    """
    if not 0 < minutes <= 7 * 24 * 60:
        raise BadOption(f"--minutes {minutes:g}: expected above 0 and at most {7 * 24 * 60}")
    if pairs is not None and pairs < 0:
        raise BadOption(f"--pairs {pairs}: expected 0 or more")
    configs = choose_configs(names, settings)
    if importlib.util.find_spec("torch") is None:
        raise NotSupported("measuring needs torch: pip install 'pellucid[profiler]'")
    deadline = time.monotonic() + 60 * minutes

    def note(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    bench = Bench(settings, folder, note=note)
    described = machine(bench.devices)
    wanted = all_pairs(configs, settings.seed)[:pairs]
    try:
        write_json(folder / MACHINE_NAME, {**described, "settings": asdict(settings)})
        complete = bench.run(configs, wanted, deadline, with_mps=with_mps)
    except KeyboardInterrupt:
        complete = False
        note("interrupted; what was measured is kept")
    finally:
        bench.close()
    solo, pair = write_tables(bench.journal, folder, settings.tolerance)
    summary = {
        "folder": str(folder),
        "device": bench.name,
        "complete": complete,
        "measurements": len(bench.journal.measurements),
        "solo": solo.num_rows,
        "solo_wanted": len(configs),
        "pairs": pair.num_rows,
        "pairs_wanted": len(wanted),
        "tight_solo": sum(solo["tight"].to_pylist()),
        "tight_pairs": sum(pair["tight"].to_pylist()),
        "not_fitting": sorted(
            {str(m.item) for m in bench.journal.measurements if m.outcome == "does not fit"}
        ),
        "failed": sum(m.outcome == "failed" for m in bench.journal.measurements),
        "missing": bench.target.sampler.missing,
        "without": bench.sharing_missing,
        "minutes": round(minutes - (deadline - time.monotonic()) / 60, 2),
    }
    write_card(
        folder,
        machine=described,
        settings=settings,
        summary=summary,
        solo=solo,
        pairs=pair,
        spread=spread(bench),
    )
    return summary


def spread(bench: Bench) -> dict[str, list[float]]:
    """Return the relative spread, (highest - lowest) / mean, of every item measured twice or
    more.
    """
    found: dict[str, list[float]] = {"alone": [], "time-slicing": [], "mps": []}
    seen: dict[Item, None] = dict.fromkeys(m.item for m in bench.journal.measurements)
    for item in seen:
        for place in range(len(item.configs)):
            rates = bench.journal.rates(item, place)
            if len(rates) > 1 and sum(rates) > 0:
                found[item.sharing].append((max(rates) - min(rates)) / (sum(rates) / len(rates)))
    return found


def settings_from(args: argparse.Namespace) -> Settings:
    """Return the settings of the command line. With `--tiny`, start from the settings for a CPU."""
    base = TINY if args.tiny else Settings()
    given = {
        "device": args.device,
        "gpu": args.gpu,
        "solo_s": args.solo_seconds,
        "pair_s": args.pair_seconds,
        "settle_s": args.settle_seconds,
        "group": args.group,
        "min_repeats": args.repeats,
        "max_repeats": args.max_repeats,
        "tolerance": args.tolerance,
        "seed": args.seed,
        "threads": args.threads,
    }
    merged = asdict(base) | {key: value for key, value in given.items() if value is not None}
    merged["max_repeats"] = max(merged["max_repeats"], merged["min_repeats"])
    return Settings(**merged)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m reproductions.colocation.campaign", description=__doc__
    )
    add = found.add_argument
    add(
        "configs",
        nargs="*",
        help=("workloads to measure, each as MODEL[/BATCH][/amp]; default: all"),
    )
    add("--out", type=Path, required=True, help="folder to which the measurements are written")
    add(
        "--minutes",
        type=float,
        default=9.0,
        help=("minutes to measure, at most; to continue, run again with the same --out"),
    )
    add("--device", choices=("gpu", "cpu"))
    add("--gpu", help="GPU, by label or UUID; default: the first free GPU")
    add("--tiny", action="store_true", help="small workloads and short measurements, for a CPU")
    add("--pairs", type=int, help="number of pairs to measure, at most; default: all")
    add("--mps", action="store_true", help="pairs under MPS too, " + (mps.available() or "here"))
    add("--solo-seconds", type=float)
    add("--pair-seconds", type=float)
    add("--settle-seconds", type=float, help="seconds to run before each measurement starts")
    add(
        "--group",
        type=int,
        help=("number of pairs measured in one round, before they are repeated"),
    )
    add("--repeats", type=int, help="least number of repeats of each workload and each pair")
    add("--max-repeats", type=int)
    add(
        "--tolerance",
        type=float,
        help=("stop when the confidence interval's half width is below this share of the mean"),
    )
    add("--threads", type=int, help="number of torch threads of each worker on a CPU")
    add("--seed", type=int)
    add("--json", action="store_true", help="print the summary as JSON")
    return found


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        summary = campaign(
            settings=settings_from(args),
            folder=args.out,
            minutes=args.minutes,
            names=args.configs,
            pairs=args.pairs,
            with_mps=args.mps,
        )
    except ProfilerError as error:
        print(f"reproductions.colocation.campaign: {error}", file=sys.stderr)
        return error.exit_status
    if args.json:
        print(json.dumps(summary, indent=1))
    else:
        print(
            f"{summary['solo']} of {summary['solo_wanted']} alone ({summary['tight_solo']} tight), "
            f"{summary['pairs']} of {summary['pairs_wanted']} pairs "
            f"({summary['tight_pairs']} tight); {'complete' if summary['complete'] else 'to go on'}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
