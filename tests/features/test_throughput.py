"""How long a job lasts by its command and the earlier runs of its script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp, hypot, log
from statistics import NormalDist

import numpy as np
import pytest

from features import posterior, throughput
from features.amounts import Work
from features.commands import of_settings, work_of
from features.job import Job
from features.schema import State
from features.state import FeatureState
from features.throughput import Ran, asked

HOUR = 3600.0


def work(command: str, **more: float) -> Work:
    found = work_of(command.split(), more)
    assert found is not None
    return found


def ran(command: str, total_s: float, gpus: int = 1) -> Ran:
    return Ran(work(command), gpus, total_s)


@pytest.mark.parametrize(
    ("command", "unit", "amount", "batch"),
    [
        ("python train.py --epochs 90 --batch-size 64", "epoch", 90, 64),
        ("python train.py --epochs=90 -b 8", "epoch", 90, 8),
        ("python train.py trainer.max_epochs=90 data.batch_size=16", "epoch", 90, 16),
        ("python run.py --num_train_epochs 3 --per_device_train_batch_size 4", "epoch", 3, 4),
        ("torchrun --nproc_per_node 2 train.py --max_steps 5000", "step", 5000, None),
        ("python train.py --iters 5k", "step", 5000, None),
        ("python train.py --name x --seed 1 --epochs 3 --batch-size 64", "epoch", 3, 64),
    ],
)
def test_a_command_says_how_much(
    command: str, unit: str, amount: float, batch: float | None
) -> None:
    found = work(command)
    assert (found.unit, found.amount, found.batch) == (unit, amount, batch)


@pytest.mark.parametrize("much", ["0", "-3", "1e15", "many", "9223372036854775807"])
def test_nonsense_is_no_amount(much: str) -> None:
    assert work_of(["python", "train.py", "--epochs", much]) is None


def test_a_file_beside_the_command_counts_where_the_command_says_nothing() -> None:
    settings = of_settings({"trainer": {"max_epochs": 90, "seed": 1}, "batch_size": 64, "a": [1]})
    assert settings == {"max_epochs": 90.0, "batch_size": 64.0}
    assert work("python train.py --config c.yaml", **settings).amount == 90
    assert work("python train.py --config c.yaml --epochs 3", **settings).amount == 3


def test_amounts_batch_and_gpus_make_no_other_script_and_other_words_do() -> None:
    one = work("torchrun --nproc_per_node 1 train.py --epochs 3 --batch-size 64 --lr 1e-3")
    same = work("torchrun --nproc_per_node 8 train.py --epochs 90 --batch-size 8 --lr 1e-3")
    assert replace(same, amount=3.0, batch=64.0) == one
    slower = work("torchrun --nproc_per_node 1 train.py --epochs 3 --batch-size 64 --lr 1e-4")
    assert (slower.script, slower.words) == (one.script, one.words)
    assert slower.rest != one.rest
    other = work("torchrun --nproc_per_node 1 train.py --epochs 3 --lr 1e-3 --model vit")
    assert other.script == one.script
    assert other.words != one.words
    shell = work_of(["bash", "-c", "python train.py --epochs 3"])
    assert shell == work("python train.py --epochs 3")


def test_which_script_it_is() -> None:
    def script(command: str) -> str:
        return work(f"{command} --epochs 3").script

    assert script("python --log=a.py b.py") == script("python b.py") != script("python c.py")
    assert script("python -m pack.a") == script("torchrun -m pack.a") != script("python -m pack.b")
    assert script("a=1 one") == script("one") != script("two")
    assert work("t.py --epochs=3 vit").words != work("t.py --epochs=3 bert").words


def test_it_is_the_posterior_of_its_model() -> None:
    """The same, written plainly: a Gaussian of logarithms for each point of the grid, which are
    weighed by how likely they make the runs."""
    commands = [
        ("t.py --epochs 5 --batch-size 64", 900.0, 1),
        ("t.py --epochs 20 --batch-size 32 --lr 3", 2500.0, 2),
        ("t.py --epochs 10 --net vit", 2000.0, 1),
    ]
    runs = [ran(*one) for one in commands]
    new = work("t.py --epochs 40 --batch-size 16 --lr 3")
    everyone = [*runs, Ran(new, 4, 0.0)]
    (by_gpus, gpus_error), (by_batch, batch_error) = posterior._SLOPES["epoch"]
    x = [(log(r.gpus), log((r.work.batch or posterior.BATCH) / posterior.BATCH)) for r in everyone]
    prior = np.array([by_gpus * g + by_batch * b for g, b in x])
    logs, variances, likely = [], [], []
    for noise, effect, share in posterior._GRID:
        between = np.zeros((4, 4))
        for i, a in enumerate(everyone):
            for j, b in enumerate(everyone):
                alike = ((a.work.words == b.work.words) + (a.work.rest == b.work.rest)) / 2
                between[i, j] = posterior._LEVEL**2 + effect**2 * alike
                between[i, j] += gpus_error**2 * x[i][0] * x[j][0]
                between[i, j] += batch_error**2 * x[i][1] * x[j][1]
                between[i, j] += noise**2 * (0.1 * (min(i, j) + 1) + (i == j))
        start = share * 900.0
        left = np.array([r.total_s - start for r in runs])
        pace = np.log(left / [r.work.amount for r in runs]) - log(posterior._LEVEL_S)
        inverse, off, towards = np.linalg.inv(between[:3, :3]), pace - prior[:3], between[:3, 3]
        chance = -0.5 * off @ inverse @ off - 0.5 * np.linalg.slogdet(between[:3, :3])[1]
        chance += np.log([r.total_s for r in runs] / left).sum()
        likely.append(chance - log(1 + start / posterior._START_S))
        mean = prior[3] + towards @ inverse @ off + log(posterior._LEVEL_S)
        logs.append(log(start + 40 * exp(mean)))
        variances.append(between[3, 3] - towards @ inverse @ towards)
    weight = np.exp(np.array(likely) - max(likely)) * posterior._PRIOR
    weight /= weight.sum()
    total, error = posterior.posterior(everyone)
    assert total == pytest.approx(exp(weight @ logs), rel=1e-9)

    def below(x: float) -> float:
        parts = zip(logs, variances, strict=True)
        return float(weight @ [NormalDist(m, v**0.5).cdf(x) for m, v in parts])

    low, high = (_root(below, chance) for chance in (0.1, 0.9))
    assert error == pytest.approx((high - low) / 2.5631, rel=0.02)


def _root(rising: Callable[[float], float], value: float) -> float:
    low, high = 0.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return low


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(9.94, "9.9 s"), (10.0, "10 s"), (99.0, "99 s"), (100.0, "1.7 min"), (5999.0, "100.0 min"),
     (6000.0, "1.7 h")],
)  # fmt: skip
def test_a_pace_is_written_as_people_do(seconds: float, words: str) -> None:
    found = asked(work("t.py --epochs 1"), 1, (ran("t.py --epochs 1", seconds),))
    assert found is not None
    assert (
        found.text().split(", this")[0] == f"asks for 1 epoch; its last run took {words} an epoch"
    )


def test_how_much_times_how_fast() -> None:
    runs = tuple(ran(f"train.py --epochs {n}", 480.0 * n) for n in (10, 30, 20))
    found = asked(work("train.py --epochs 90"), 1, runs)
    assert found is not None
    assert found.total_s == pytest.approx(12 * HOUR, rel=0.03)
    assert found.error < 0.2
    known = posterior.posterior([*runs, Ran(work("train.py --epochs 90"), 1, 0.0)])[1]
    further = throughput.FAR * log(90 / 30)  # than any of them went
    assert found.error == pytest.approx(hypot(known, further))
    assert found.text() == "asks for 90 epochs; its last 3 runs took 8.0 min an epoch"
    assert asked(work("train.py --epochs 90"), 1, ()) is None


def test_scatter_widens_it_and_what_is_absurd_is_dropped() -> None:
    command = "train.py --epochs 30"
    steady = asked(work(command), 1, (ran(command, 3600.0),) * 4)
    scattered = asked(
        work(command), 1, tuple(ran(command, s) for s in (600.0, 36_000.0, 1800.0, 9000.0))
    )
    assert steady is not None
    assert scattered is None or scattered.error > 5 * steady.error
    wild = tuple(ran(command, 600.0 * exp(3 * (-1) ** n)) for n in range(6))
    assert asked(work(command), 1, wild) is None
    assert asked(work("train.py --epochs 1e9"), 1, (ran(command, 3600.0),)) is None


def test_only_completed_runs_of_the_user_count() -> None:
    state = FeatureState({"survival"})
    asks = work("train.py --epochs 10")
    for n, (user, how) in enumerate(
        [("ann", State.COMPLETED), ("ann", State.FAILED), ("bob", State.COMPLETED)]
    ):
        job = Job(f"j{n}", float(n), 1, user, "vc", work=asks)
        state.submit(job, float(n))
        state.start(job.job_id, float(n))
        state.end(job.job_id, float(n), how, 100.0 + n)
    assert state.ran(Job("new", 9.0, 1, "ann", "vc", work=asks)) == (Ran(asks, 1, 100.0),)
    assert state.ran(Job("new", 9.0, 1, "ann", "vc")) == ()
