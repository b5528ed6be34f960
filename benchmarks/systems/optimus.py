"""Optimus: its parts on synthetic data with a known answer, its extensions on measured data."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations_with_replacement, product
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.systems.figure import CpuClock, Figure, at_most, exact, told
from pipeline.worlds.workloads.pollux import applications, open_workload
from scheduler.peers.optimus.convergence import fit, fit_envelope, smooth
from scheduler.peers.optimus.paa import assign, assign_as_mxnet
from scheduler.peers.optimus.placement import spread, traffic
from scheduler.peers.optimus.policy import Optimus
from scheduler.peers.optimus.speed import (
    AllReduceSpeed,
    AsyncPsSpeed,
    PsObservation,
    StepObservation,
    SyncPsSpeed,
)

WORKLOADS = range(1, 9)


def figures(data: Path) -> Iterable[Figure]:
    yield from speeds()
    yield from epochs()
    yield from all_reduce(data)
    yield from curves(data)
    yield from assignments()
    yield from placements()
    yield from schedules(data)


# --- synthetic ------------------------------------------------------------------------------------


def speed_errors(kind: type[SyncPsSpeed] | type[AsyncPsSpeed], jobs: int = 50) -> list[float]:
    """Mean relative error of a speed model by job: nine noisy samples, then everything to 20."""
    errors = []
    for seed in range(jobs):
        rng = np.random.default_rng(seed)
        truth: SyncPsSpeed | AsyncPsSpeed
        if kind is SyncPsSpeed:
            theta = rng.uniform([1e-3, 0.05, 0.05, 1e-3, 1e-3], [1e-2, 0.5, 0.5, 0.03, 0.03])
            truth = SyncPsSpeed(tuple(theta.tolist()), 256.0)
        else:
            theta = rng.uniform([0.5, 0.05, 1e-3, 1e-3], [3.0, 0.5, 0.05, 0.05])
            truth = AsyncPsSpeed(tuple(theta.tolist()))
        found = rng.choice(100, size=9, replace=False)
        seen = []
        for cell in found.tolist():
            w, p = cell // 10 + 1, cell % 10 + 1
            noisy = truth.steps_per_s(w, p) * (1.0 + rng.uniform(-0.03, 0.03))
            seen.append(PsObservation(w, p, noisy))
        model = SyncPsSpeed.fit(seen, 256.0) if kind is SyncPsSpeed else AsyncPsSpeed.fit(seen)
        errors.append(
            fmean(
                abs(model.steps_per_s(w, p) / truth.steps_per_s(w, p) - 1.0)
                for w, p in product(range(1, 21), repeat=2)
            )
        )
    return errors


def speeds() -> Iterator[Figure]:
    clock = CpuClock()
    for kind, name in ((SyncPsSpeed, "synchronous"), (AsyncPsSpeed, "asynchronous")):
        errors = speed_errors(kind)
        yield at_most(
            "optimus",
            f"mean error of the {name} speed model, 9 samples, 3 % noise",
            0.10,
            fmean(errors),
            clock.lap(),
            note=f"of 50 jobs; the worst {max(errors):.3f}",
        )


def epoch_errors(jobs: int = 200) -> list[float]:
    """Relative error of the epoch of convergence, predicted from half of a noisy curve."""
    rng = np.random.default_rng(1)
    errors = []
    for _ in range(jobs):
        b0, b1, b2 = 10 ** rng.uniform(-1.3, 0.3), rng.uniform(0.8, 2.0), rng.uniform(0.0, 0.3)
        threshold = rng.choice([0.001, 0.002, 0.005])
        loss = 1.0 / (b0 * np.arange(1, 2001) + b1) + b2
        end = int(np.argmax(-np.diff(loss) / loss[0] < threshold)) + 1
        half = end // 2
        if half < 10:
            continue
        seen = loss[:half] * (1.0 + 0.02 * rng.standard_normal(half))
        errors.append(abs(fit(*smooth(seen)).converges_at(threshold) - end) / end)
    return errors


def epochs() -> Iterator[Figure]:
    clock = CpuClock()
    errors = epoch_errors()
    yield at_most(
        "optimus",
        "mean error of the epoch of convergence, half a curve, 2 % noise",
        0.20,
        fmean(errors),
        clock.lap(),
        note=f"of {len(errors)} curves; 90 % below {np.quantile(errors, 0.9):.3f}",
    )


# --- measured -------------------------------------------------------------------------------------


def observations(folder: Path) -> list[tuple[str, StepObservation]]:
    """Measured steps of an application: (placement, observation)."""
    with (folder / "placements.csv").open(newline="") as file:
        return [
            (
                row["placement"],
                StepObservation(
                    len(row["placement"]),
                    sum(map(int, row["placement"])),
                    float(row["local_bsz"]),
                    float(row["step_time"]),
                ),
            )
            for row in csv.DictReader(file)
        ]


def step_error(model: AllReduceSpeed, seen: Sequence[StepObservation]) -> float:
    """Mean of |measured / predicted - 1|."""
    return fmean(abs(o.seconds / model.step_s(o.nodes, o.gpus, o.batch) - 1.0) for o in seen)


def all_reduce(data: Path) -> Iterator[Figure]:
    clock = CpuClock()
    for folder in sorted((data / "pollux" / "traces").iterdir()):
        rows = observations(folder)
        seen = [observation for _, observation in rows]
        yield at_most(
            "optimus all-reduce",
            f"mean error of the step time, {folder.name}",
            0.12,
            step_error(AllReduceSpeed.fit(seen), seen),
            clock.lap(),
        )
        held = _held_out(rows)
        yield told(
            "optimus all-reduce",
            f"the same on 30 % of placements held out, {folder.name}",
            fmean(held),
            clock.lap(),
            reference="0.067 to 0.110",
            note=f"of 5 splits; the worst {max(held):.3f}",
        )


def _held_out(rows: Sequence[tuple[str, StepObservation]]) -> list[float]:
    placements = sorted({placement for placement, _ in rows})
    errors = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        held = set(rng.choice(placements, size=int(0.3 * len(placements)), replace=False).tolist())
        model = AllReduceSpeed.fit([o for placement, o in rows if placement not in held])
        errors.append(step_error(model, [o for placement, o in rows if placement in held]))
    return errors


def curves(data: Path) -> Iterator[Figure]:
    """The final loss, predicted at four fifths of the training, by both fits."""
    clock = CpuClock()
    for name, app in applications(data / "pollux" / "traces").items():
        if app.epochs < 10:
            continue
        losses = np.array(app.losses(app.epochs, app.limits.initial))
        seen = int(0.8 * len(losses))
        steps = np.arange(1.0, seen + 1.0)
        best = float(losses.min())
        envelope = float(fit_envelope(steps, losses[:seen]).loss(len(losses))) / best - 1.0
        plain = float(fit(*smooth(losses[:seen])).loss(len(losses))) / best - 1.0
        yield at_most(
            "optimus envelope",
            f"|error| of the final loss at 80 % of training, {name}",
            0.12,
            abs(envelope),
            clock.lap(),
            note=f"signed {envelope:+.3f}; the published fit {plain:+.3f}",
        )


# --- parameter servers ----------------------------------------------------------------------------


def resnet50() -> list[int]:
    """Parameter blocks of a pre-activation ResNet-50."""
    blocks, width = [3, 3, 7 * 7 * 3 * 64, 64, 64], 64
    for units, out in ((3, 256), (4, 512), (6, 1024), (3, 2048)):
        inner = out // 4
        for unit in range(units):
            blocks += [width, width, width * inner, inner, inner, inner * inner * 9]
            blocks += [inner, inner, inner * out] + ([width * out] if unit == 0 else [])
            width = out
    return [*blocks, 2048, 2048, 2048 * 1000, 1000]


def resnext101() -> list[int]:
    """Of ResNeXt-101 with 32 groups."""
    blocks, width = [3, 3, 7 * 7 * 3 * 64, 64, 64], 64
    for units, out in ((3, 256), (4, 512), (23, 1024), (3, 2048)):
        inner = out // 2
        for unit in range(units):
            blocks += [width * inner, inner, inner, inner * inner // 32 * 9, inner, inner]
            blocks += [inner * out, out, out] + ([width * out, out, out] if unit == 0 else [])
            width = out
    return [*blocks, 2048 * 1000, 1000]


def vgg() -> list[int]:
    """Of VGG with eleven layers, which is what the published list called VGG-16 comes down to."""
    blocks, width = [], 3
    for out in (64, 128, 256, 256, 512, 512, 512, 512):
        blocks += [width * out * 9, out]
        width = out
    return [*blocks, 25088 * 4096, 4096, 4096 * 4096, 4096, 4096 * 1000, 1000]


def alexnet() -> list[int]:
    """Of AlexNet for images of 224 pixels (a last feature map of 5 by 5)."""
    blocks = []
    for into, out, side in ((3, 96, 11), (96, 256, 5), (256, 384, 3), (384, 384, 3), (384, 256, 3)):
        blocks += [into * out * side * side, out]
    return [*blocks, 6400 * 4096, 4096, 4096 * 4096, 4096, 4096 * 1000, 1000]


# (gap in millions of parameters, requests) on eight servers
ASSIGNED = {
    "ResNet-50": (resnet50, 0.06, 157, 227),
    "VGG-16": (vgg, 0.16, 29, 71),
    "ResNeXt-101": (resnext101, 0.39, 316, 372),
    "AlexNet": (alexnet, 0.29, 22, 44),
}


def assignments() -> Iterator[Figure]:
    clock = CpuClock()
    share = 0.0
    for name, (blocks, gap, requests, before) in ASSIGNED.items():
        found, default = assign(blocks(), 8), assign_as_mxnet(blocks(), 8)
        share = max(share, found.share)
        yield exact(
            "optimus paa",
            f"load gap on 8 servers, {name}, M parameters",
            gap,
            round(found.gap / 1e6, 2),
            clock.lap(),
            note=f"MXNet's default here: {default.gap / 1e6:.2f}",
        )
        yield exact("optimus paa", f"requests, {name}", requests, sum(found.requests), 0.0)
        yield exact(
            "mxnet default", f"requests, {name}", before, sum(default.requests), clock.lap()
        )
    yield at_most("optimus paa", "largest share of a model on a server", 0.141, share, 0.0)


def placements(most: int = 6) -> Iterator[Figure]:
    """Even placement against every other, wherever workers and servers can be dealt evenly."""
    clock = CpuClock()
    cases = [
        (k, w, p)
        for k in (2, 3)
        for w, p in product(range(1, most + 1), repeat=2)
        if w % k == 0 and p % k == 0
    ]
    equal = sum(_is_best(*case) for case in cases)
    yield exact(
        "optimus placement",
        f"divisible cases in which even placement is optimal, w, p to {most}",
        len(cases),
        equal,
        clock.lap(),
    )


def _is_best(machines: int, workers: int, servers: int) -> bool:
    """Whether dealing evenly sends no more than any other layout with as many tasks on each."""
    each = (workers + servers) // machines
    even = traffic(list(zip(spread(workers, machines), spread(servers, machines), strict=True)))
    shares = combinations_with_replacement(range(workers + 1), machines)
    return all(
        even <= traffic([(w, each - w) for w in share]) + 1e-12
        for share in shares
        if sum(share) == workers and max(share) <= each
    )


# --- schedules ------------------------------------------------------------------------------------


def schedules(data: Path) -> Iterator[Figure]:
    """Without an oracle, on the recorded workloads. The oracle's figures are Pollux' family's."""
    folder = data / "pollux"
    apps = applications(folder / "traces")
    worlds = {
        n: open_workload(folder / "workloads" / f"workload-{n}.csv", apps=apps) for n in WORKLOADS
    }
    clock = CpuClock()
    for label, settings in (
        ("all-reduce, no oracle", {}),
        ("resized whenever gains say so", {"resize_cost_s": 0.0}),
        ("resized every 20 minutes at most", {"restart_share": 0.025}),
        ("with the published objective", {"objective": "seconds"}),
    ):
        jcts, restarts = [], []
        for world in worlds.values():
            outcome = world.simulate(Optimus(**settings))
            jcts.append(fmean(r.jct_s for r in outcome.jobs))
            restarts.append(fmean(r.resizes for r in outcome.jobs))
        yield told(
            "optimus",
            f"mean JCT of workloads 1-8, {label}, s",
            fmean(jcts),
            clock.lap(),
            reference=5681.9,
            note=f"{fmean(restarts):.1f} resizes a job; the reference is the oracle",
        )
    world = worlds[6]
    outcome = world.simulate(Optimus(threshold=0.002))
    yield told(
        "optimus",
        "average JCT on workload-6 when nobody tells the epochs, s",
        fmean(r.jct_s for r in outcome.jobs),
        clock.lap(),
        reference=5301.875,
        note="epochs from the loss; jobs still run the epochs they were submitted with",
    )
