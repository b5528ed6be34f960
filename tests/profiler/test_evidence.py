"""What a forecast makes of contradictory evidence: played at true speed, looked at as a service
does."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import log
from pathlib import Path

import pytest

from features.amounts import Amount
from features.progress import EARLY, REPEATS, Progress
from profiler.progress.news import Follower
from profiler.progress.reader import Reader
from profiler.progress.tail import Tail


class Log:
    """What is printed, and when: on a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.parts: list[tuple[float, str]] = []
        self._source = random.Random(1)

    def wait(self, seconds: float) -> None:
        self.now += seconds * self._source.uniform(0.95, 1.05)

    def line(self, text: str) -> None:
        self.parts.append((self.now, text + "\n"))

    def bar(self, label: str, n: int, of: int, unit: str = "it", after: str = "") -> None:
        text = f"\r{label}: {100 * n // of:3d}%|{'#' * (10 * n // of):10s}| {n}/{of} [00:10<00:10, "
        self.parts.append((self.now, f"{text}10.0{unit}/s{after}]"))


def play(
    run: Callable[[Log], None], folder: Path, amount: Amount | None = None
) -> tuple[float, list[tuple[float, Progress]]]:
    """How long it took, and what was reported when."""
    run(log := Log())
    output, follower = folder / "output", Follower(Tail(folder / "output", amount))
    at, parts, found = 0.0, log.parts, list[tuple[float, Progress]]()
    with output.open("ab", buffering=0) as file:
        while at < log.now:
            at += max(1.0, min(60.0, 0.02 * at))
            new = [text for when, text in parts if when <= at]
            parts = parts[len(new) :]
            file.write("".join(new).encode())
            news = follower.look(at)
            if news is not None:
                found.append((at, news))
    return log.now, found


def narrow_and_wrong(took_s: float, found: list[tuple[float, Progress]]) -> list[Progress]:
    """Reports that were off by more than a quarter, while their interval excluded the truth."""
    return [
        one
        for _, one in found
        if abs(log(one.total_s / took_s)) > log(1.25) and not one.low_s <= took_s <= one.high_s
    ]


def bars_at_ten_a_second(log: Log) -> None:
    log.wait(10)
    for epoch in range(1, 5):
        log.line("")
        for i in range(1, 1501):
            log.wait(0.1)
            log.bar(f"{epoch - 1:>9}/3      2.3G   0.1012   0.0312        212        640", i, 1500)
        for i in range(1, 151):
            log.wait(0.1)
            log.bar(f"{'Class     Images  Instances':>30}          P          R      mAP50", i, 150)


def ranks_with_a_bar_each(log: Log) -> None:
    log.wait(10)
    for epoch in range(1, 5):
        for i in range(1, 1501):
            log.wait(0.1)
            for _ in range(4):
                log.bar(f"Epoch {epoch}/4", i, 1500, after=", loss=0.3012")


def a_line_every_few_batches(log: Log) -> None:
    log.wait(30)
    for epoch in (1, 2):
        for _ in range(150):
            log.wait(2)
            log.line(f"Epoch {epoch}/2 loss: 0.3012 lr: 0.0010")


def a_line_with_a_batch(log: Log) -> None:
    log.wait(30)
    for epoch in range(3):
        for i in range(0, 3000, 50):
            log.wait(5)
            log.line(f"Epoch {epoch}, batch {i}, loss 0.3012")


def two_lines_at_the_end(log: Log) -> None:
    for epoch in range(1, 11):
        log.wait(100)
        log.line(f"Epoch {epoch}/10 train loss 0.3012")
        log.wait(10)
        log.line(f"Epoch {epoch}/10 val loss 0.4012")


def one_line_at_the_end(log: Log) -> None:
    for epoch in range(1, 11):
        log.wait(100)
        log.line(f"Epoch {epoch}/10 loss 0.3012")


def a_line_at_the_beginning(log: Log) -> None:
    log.wait(5)
    for epoch in range(1, 11):
        log.line(f"Epoch {epoch}/10 lr 0.0010")
        log.wait(100)


def steps_that_go_on(log: Log) -> None:
    log.wait(20)
    for g in range(10, 3001, 10):
        log.wait(2)
        log.line(f"epoch {(g - 1) // 1000} global_step {g} loss 0.3012")


READABLE: dict[str, tuple[Callable[[Log], None], Amount | None]] = {
    "bars at ten a second": (bars_at_ten_a_second, None),
    "ranks with a bar each": (ranks_with_a_bar_each, None),
    "a line every few batches": (a_line_every_few_batches, None),
    "a line with a batch": (a_line_with_a_batch, Amount(3)),
    "two lines at the end": (two_lines_at_the_end, None),
    "one line at the end": (one_line_at_the_end, None),
    "a line at the beginning": (a_line_at_the_beginning, None),
    "steps that go on": (steps_that_go_on, Amount(3)),
}


@pytest.mark.parametrize("name", READABLE)
def test_no_report_contradicts_what_was_printed(name: str, tmp_path: Path) -> None:
    run, amount = READABLE[name]
    took_s, found = play(run, tmp_path, amount)
    assert narrow_and_wrong(took_s, found) == []
    assert found  # and it is read
    assert found[0][0] < 0.75 * took_s
    assert found[-1][1].total_s == pytest.approx(took_s, rel=0.15)


def test_an_estimate_of_the_steps_only_is_stretched_by_what_it_leaves_out(tmp_path: Path) -> None:
    def run(log: Log) -> None:
        log.wait(60)
        for epoch in range(1, 11):
            for i in range(50, 401, 50):
                log.wait(50)
                left = (10 - epoch) * 400 + 400 - i
                clock = f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}"
                log.line(f"mmengine - INFO - Epoch(train)  [{epoch}][{i}/400]  eta: {clock}  loss")
            log.wait(40)

    took_s, found = play(run, tmp_path)
    assert found
    later = [one for at, one in found if 900 < at < took_s]
    assert later
    assert all(0.99 * one.low_s <= took_s <= 1.01 * one.high_s for one in later)


def test_an_estimate_of_the_epoch_is_not_one_of_the_run(tmp_path: Path) -> None:
    def run(log: Log) -> None:
        log.wait(10)
        for epoch in range(1, 9):
            for i in range(100):
                log.wait(1)
                log.line(
                    f"epoch: {epoch} loss: 0.3012 eta: 0:{(100 - i) // 60:02d}:{(100 - i) % 60:02d}"
                )

    took_s, found = play(run, tmp_path, Amount(8))
    assert narrow_and_wrong(took_s, found) == []


@pytest.mark.parametrize("words", ["===== Fold {} =====", "Running seed {}", "[I] Trial {} begins"])
def test_a_run_that_announces_more_of_them_is_not_the_whole(words: str, tmp_path: Path) -> None:
    def run(log: Log) -> None:
        log.wait(30)
        for fold in range(5):
            log.line(words.format(fold))
            for epoch in range(1, 11):
                log.wait(100)
                log.line(f"Epoch {epoch}/10 loss 0.3012")

    took_s, found = play(run, tmp_path)
    assert narrow_and_wrong(took_s, found) == []
    assert REPEATS in found[0][1].doubts
    assert "may run again" in found[0][1].text()


def test_folds_that_the_command_counts_are_a_whole(tmp_path: Path) -> None:
    def run(log: Log) -> None:
        for fold in range(5):
            log.line(f"FOLD: {fold}")
            for epoch in range(1, 11):
                log.wait(100)
                log.line(f"Epoch {epoch}/10 loss 0.3012")

    took_s, found = play(run, tmp_path, Amount(10, runs=5))
    assert narrow_and_wrong(took_s, found) == []
    assert found[-1][1].total_s == pytest.approx(took_s, rel=0.1)


@pytest.mark.parametrize(
    ("head", "amount"),
    [
        ("engine/trainer: task=detect, epochs=100, patience=5, batch=16", None),
        ("Training until validation scores don't improve for 5 rounds", None),
        ("", Amount(100, patience=5)),
    ],
)
def test_what_may_stop_early_has_a_wide_interval(
    head: str, amount: Amount | None, tmp_path: Path
) -> None:
    def run(log: Log) -> None:
        log.line(head)
        for epoch in range(1, 21):
            log.wait(400)
            log.line(f"Epoch {epoch}/100: loss 0.3012 val 0.4")

    took_s, found = play(run, tmp_path, amount)
    assert found
    assert narrow_and_wrong(took_s, found) == []
    assert all(one.high_s > 4 * took_s for _, one in found)  # it may also go to the end
    assert EARLY in found[-1][1].doubts


def test_patience_beyond_the_last_epoch_is_no_doubt(tmp_path: Path) -> None:
    _, found = play(one_line_at_the_end, tmp_path, Amount(10, patience=20))
    assert all(one.doubts == "" for _, one in found)


@pytest.mark.parametrize(
    ("label", "unit"),
    [
        ("Adding EOS to train dataset", " examples"),
        ("Permuting", " docs"),
        ("Warping kernels", "it"),
        ("Truncating train dataset", " examples"),
    ],
)
def test_a_bar_before_the_training_is_none_of_it(label: str, unit: str, tmp_path: Path) -> None:
    def run(log: Log) -> None:
        for i in range(1, 301):
            log.wait(1)
            log.bar(label, i, 300, unit)

    assert play(run, tmp_path)[1] == []


def test_a_bar_of_any_label_is_read_while_a_loss_is_printed(tmp_path: Path) -> None:
    def run(log: Log) -> None:
        for i in range(1, 301):
            log.wait(1)
            log.bar("Distilling", i, 300)
            if i % 20 == 0:
                log.line("\nloss 0.3012")

    took_s, found = play(run, tmp_path)
    assert found
    assert narrow_and_wrong(took_s, found) == []


@pytest.mark.parametrize("shift", range(0, 130, 13))
def test_what_is_left_out_of_much_output_are_whole_bars(shift: int) -> None:
    """Bars are ended by carriage returns alone: where the cut fell into one, its epoch was lost."""
    reader = Reader()
    reader.feed(b"x\n" * 40_000, 1.0)
    for k in range(2, 20):
        label = "        3/90      2.3G   0.04512    0.0312    0.01823       212        640"
        bars = (f"{label}:  {i % 100:2d}%|##########| {i}/5000 [00:10<00:10, 10.0it/s]\r"
                for i in range(200 * k, 200 * k + 200))  # fmt: skip
        reader.feed(("".join(bars) + " " * shift).encode(), 20.0 * k)
    assert {key[0] for key in reader._counters} == {"Ultralytics"}


def test_a_line_that_is_not_over_yet_gives_no_total() -> None:
    """A pipe hands on what fits: the number at its end may be the half of one."""
    reader = Reader()
    for i in range(1, 30):
        reader.feed(f"Epoch [{i}/9".encode(), 10.0 * i)
        reader.feed(b"0] done\n", 10.0 * i + 1)
    found = reader.progress(300.0)
    assert found is not None
    assert found.of == 90


def test_what_follows_a_line_that_is_too_long_is_not_joined_to_it() -> None:
    reader = Reader()
    reader.feed(b"x" * 993 + b" step 1" + b"2" * 500, 1.0)
    reader.feed(b"00/200\n", 2.0)
    assert reader._counters == {}


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


def catboost(i: int) -> str:
    left = 3000 - 2 * i
    return f"{i}:\tlearn: 0.3\ttest: 0.3\ttotal: 2m 1s\tremaining: {left // 60}m {left % 60}s"


def test_a_bar_of_all_steps_that_are_printed_is_the_whole(tmp_path: Path) -> None:
    """It goes on from a checkpoint, and bars of the evaluation come between."""

    def run(log: Log) -> None:
        log.line("  Num Epochs = 4\n  Total optimization steps = 2,000")
        for i in range(601, 2001):
            log.wait(1)
            log.bar("", i, 2000)
            if i % 500 == 0:
                for k in range(1, 13):
                    log.wait(2)
                    log.bar("", k, 12)

    took_s, found = play(run, tmp_path)
    assert narrow_and_wrong(took_s, found) == []
    assert found[0][0] < 0.1 * took_s
    assert {one.of for _, one in found} == {2000.0}


def test_a_bar_that_begins_again_is_an_epoch_where_epochs_have_no_number(tmp_path: Path) -> None:
    def run(log: Log) -> None:
        for _ in range(6):
            for i in range(1, 101):
                log.wait(1)
                log.bar("", i, 100, after=", train_loss=0.3")
            log.wait(10)

    took_s, found = play(run, tmp_path, Amount(6))
    assert narrow_and_wrong(took_s, found) == []
    assert (found[-1][1].unit, found[-1][1].of) == ("epoch", 6.0)
    assert found[-1][1].total_s == pytest.approx(took_s, rel=0.1)


def test_the_bar_of_a_test_holds_no_training(tmp_path: Path) -> None:
    def run(log: Log) -> None:
        for _ in range(6):
            for i in range(1, 101):
                log.wait(1)
                log.bar("loss: 0.3 ||", i, 100)
            log.bar("accuracy: 0.5 ||", 20, 20)

    took_s, found = play(run, tmp_path)
    assert [one for _, one in found if one.error < 0.35 and one.total_s < took_s / 2] == []


def test_a_slow_beginning_is_in_the_first_estimates(tmp_path: Path) -> None:
    def run(log: Log) -> None:
        log.wait(20)
        begun_s = log.now
        log.wait(60)
        for i in range(1, 301):
            log.wait(2)
            log.line(
                f"eta: {_clock((300 - i) * (log.now - begun_s) / i)}  iter: {i}  total_loss: 1"
            )

    took_s, found = play(run, tmp_path)
    assert narrow_and_wrong(took_s, found) == []
    assert found[0][0] < 0.3 * took_s


def test_an_evaluation_that_is_yet_to_come_widens(tmp_path: Path) -> None:
    """As long as none was seen; one that takes a quarter of an epoch is not unheard of."""

    def run(log: Log) -> None:
        log.line("  Num Epochs = 3")
        for i in range(1, 901):
            log.wait(1)
            log.line(f"step {i}/900 loss 0.3012")
            if i % 300 == 0:
                log.wait(75)
                log.line("eval_loss 0.4")

    took_s, found = play(run, tmp_path)
    assert found[0][0] < 0.2 * took_s
    assert all(one.low_s <= took_s <= one.high_s for at, one in found if at < 0.3 * took_s)


@pytest.mark.parametrize("line", ["12:00:00.123456: Epoch {}", "{}:00.5 [Epoch: {}]"])
def test_a_time_is_no_figure_of_an_epoch(line: str) -> None:
    """Printed when an epoch begins: of two such lines, one epoch is done."""
    reader = Reader(Amount(100))
    for i in range(2):
        reader.feed(
            line.format(*(["12:00", i] if line[0] == "{" else [i])).encode() + b"\n", 100.0 * i
        )
    found = reader.progress(100.0)
    assert found is None or found.done == 1.0


OTHERS: dict[str, tuple[Callable[[int], str], Amount | None]] = {
    "CatBoost": (catboost, None),
    "rl_games": (
        lambda i: (
            "fps step: 914 fps step and policy inference: 812 fps total: 712 "
            f"epoch: {i}/1500 frames: {i * 4096}"
        ),
        None,
    ),
    "verl": (
        lambda i: (
            f"(TaskRunner pid=12) Training Progress: {i // 15:3d}%|#         | {i}/1500 "
            "[18:00<2:12:00,  2.00s/it]"
        ),
        Amount(2),
    ),
    "PaddleDetection": (
        lambda i: (
            f"ppdet.engine INFO: Epoch: [{(i - 1) // 500}] [{(i - 1) % 500}/500] "
            f"learning_rate: 0.01 loss: 5.5 eta: {_clock(2 * (1500 - i))} batch_cost: 1.0"
        ),
        None,
    ),
    "DINOv2": (
        lambda i: (
            f"I20260301 helpers.py:102] Training  [{i:5d}/1500]  eta: "
            f"{_clock(2 * (1500 - i))}  lr: 0.0001  total_loss: 10.9 (10.9)"
        ),
        None,
    ),
    "LitGPT": (
        lambda i: (
            f"Epoch {(i - 1) // 500 + 1} | iter {i} step {i // 8} | loss train: 0.912, val: "
            "n/a | iter time: 2000.12 ms"
        ),
        Amount(3),
    ),
    "ESPnet": (lambda i: f"INFO: {i}/1500epoch started. Estimated time to finish: 1 hour", None),
    "nnU-Net": (lambda i: f"2026-03-01 12:00:00: Epoch {i - 1}", Amount(1500)),
    "DeepSpeed": (lambda i: f"[INFO] [Rank 0] step={i}, skipped=0, lr=[1e-4]", Amount(None, 1500)),
    "Swin": (
        lambda i: (
            f"INFO Train: [{(i - 1) // 500}/3][{(i - 1) % 500}/500]\teta "
            f"{_clock(2 * (500 - (i - 1) % 500))} lr 0.0007\ttime 0.5 (0.5)\tloss 6.5 (6.3)"
        ),
        None,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_trainers_of_the_field_are_read(name: str, tmp_path: Path) -> None:
    text, amount = OTHERS[name]

    def run(log: Log) -> None:
        log.wait(20)
        for i in range(1, 1501):
            log.wait(2)
            log.line(text(i))

    took_s, found = play(run, tmp_path, amount)
    assert narrow_and_wrong(took_s, found) == []
    assert found[0][0] < 0.4 * took_s
    assert found[-1][1].total_s == pytest.approx(took_s, rel=0.1)


def test_folds_of_which_nothing_says_how_many_are_as_many_as_are_usual(tmp_path: Path) -> None:
    def folds(log: Log) -> None:
        log.wait(20)
        for fold in range(5):
            log.line(f"===== Fold {fold} =====")
            for epoch in range(1, 9):
                log.wait(60)
                log.line(f"Epoch {epoch}/8 loss 0.3012")

    took_s, found = play(folds, tmp_path)
    assert found
    assert all(f.low_s <= took_s <= f.high_s for _, f in found)
    assert all(abs(log(f.total_s / took_s)) < log(1.5) for _, f in found)
    later = [f for at, f in found if at > 0.3 * took_s]
    assert later
    assert all((f.unit, f.doubts) == ("fold", REPEATS) for f in later)


def test_where_more_folds_begin_than_are_usual_half_as_many_again_are_awaited(
    tmp_path: Path,
) -> None:
    def folds(log: Log) -> None:
        log.wait(20)
        for fold in range(14):
            log.line(f"===== Fold {fold} =====")
            for epoch in range(1, 5):
                log.wait(60)
                log.line(f"Epoch {epoch}/4 loss 0.3012")

    took_s, found = play(folds, tmp_path)
    beyond = [f for at, f in found if at > 10.1 / 14 * took_s]  # the eleventh has begun
    assert len(beyond) > 1
    assert all(1.1 < f.total_s / took_s < 1.5 and f.high_s < 3 * took_s for f in beyond)
    assert all((f.unit, f.doubts) == ("fold", REPEATS) for f in beyond)


def test_an_epoch_within_a_fold_is_not_the_fold(tmp_path: Path) -> None:
    def folds(log: Log) -> None:
        log.line("A new study created in memory with name: a")
        for fold in range(4):
            for epoch in range(6):
                for step in range(1, 11):
                    log.wait(8)
                    log.bar(f"Epoch {epoch}", step, 10, after=", loss=0.3")
                log.line("")
            log.line(f"Trial {fold} finished with value: 0.3 and parameters: {{}}.")

    took_s, found = play(folds, tmp_path, Amount(epochs=6, runs=4))
    assert found
    assert narrow_and_wrong(took_s, found) == []
    assert all(abs(log(f.total_s / took_s)) < log(1.5) for _, f in found)


def test_a_dict_behind_a_bar_is_read(tmp_path: Path) -> None:
    def trainer(log: Log) -> None:
        for step in range(1, 201):
            log.wait(5)
            log.parts.append(
                (log.now, f"\r {step // 2:3d}%|#   | {step}/200 [00:10<00:10, 1.0it/s]")
            )
            if step % 10 == 0:
                log.line(f"{{'loss': 0.3, 'learning_rate': 4e-05, 'epoch': {step / 100:.2f}}}")

    took_s, found = play(trainer, tmp_path, Amount(epochs=2))
    assert found
    assert narrow_and_wrong(took_s, found) == []


@pytest.mark.parametrize(
    ("label", "after"),
    [
        ("Processed prompts", ", est. speed input: 512.31 toks/s"),
        ("Running loglikelihood requests", ""),
        ("sample", ", 7 steps of size 3.41e-01. acc. prob=0.91"),
    ],
)
def test_a_bar_of_a_job_that_trains_nothing_is_the_job(
    label: str, after: str, tmp_path: Path
) -> None:
    def run(log: Log) -> None:
        log.wait(60)
        for i in range(1, 401):
            log.wait(2)
            log.bar(label, i, 400, after=after)

    took_s, found = play(run, tmp_path)
    assert found[0][0] < 0.3 * took_s
    assert narrow_and_wrong(took_s, found) == []


def test_a_bar_of_inference_beside_a_training_is_none_of_it() -> None:
    reader = Reader(Amount(None, 400))
    for i in range(1, 101):
        reader.feed(b"\rProcessed prompts: 10%|#   | 40/400 [00:10<00:10, 9.0it/s]", 10.0 * i)
        reader.feed(b"\rTrain: 10%%|#   | %d/200 [00:10<00:10, 9.0it/s]" % i, 10.0 * i)
    found = reader.progress(1000.0)
    assert found is not None
    assert found.of == 200.0


def test_chains_of_a_sampler_are_runs_of_which_more_may_come(tmp_path: Path) -> None:
    def run(log: Log) -> None:
        for chain in range(1, 5):
            for n in range(200, 2001, 200):
                log.wait(60)
                log.line(f"Chain {chain}: Iteration: {n:4d} / 2000 [{n // 20:3d}%]  (Sampling)")

    took_s, found = play(run, tmp_path)
    assert narrow_and_wrong(took_s, found) == []
    assert all(REPEATS in one.doubts for _, one in found[1:])


def test_what_was_taken_back_is_not_left_behind_by_the_time(tmp_path: Path) -> None:
    def run(log: Log) -> None:
        for _ in range(40):
            for i in range(1, 51):
                log.wait(1)
                log.bar("", i, 50)

    took_s, found = play(run, tmp_path)
    assert all(one.high_s >= at for at, one in found)
    assert all(one.total_s >= 0.99 * at for at, one in found)
    assert found[-1][1].high_s > took_s


def test_of_a_young_job_is_said_more_soon(tmp_path: Path) -> None:
    def run(log: Log) -> None:
        for i in range(1, 101):
            log.wait(1 if i < 12 else 2)
            log.line(f"step {i}/100 loss: 0.{i}")

    _, found = play(run, tmp_path)
    assert len([at for at, _ in found if at < 35]) > 1


def test_of_several_counts_of_steps_the_quickest_is_the_least(tmp_path: Path) -> None:
    def table(log: Log, name: str) -> None:
        for i in range(1, 201):
            log.wait(5)
            log.line(f"| nupdates           | {i}           |")
            log.line(f"| {name} | {i * 128}        |")
            log.line("| value_loss         | 0.4478733     |")

    took_s, found = play(
        lambda log: table(log, "total_timesteps   "), tmp_path, Amount(None, 25_600)
    )
    assert all(abs(one.total_s / took_s - 1) < 0.2 for _, one in found)
    _, found = play(lambda log: table(log, "global_step       "), tmp_path, Amount(None, 200))
    assert narrow_and_wrong(took_s, found) == []


def test_an_epoch_of_the_number_0_shows_where_numbers_begin(tmp_path: Path) -> None:
    def run(log: Log) -> None:
        for epoch in range(6):
            for k in range(20, 401, 20):
                log.wait(3)
                log.line(f"Train Epoch: {epoch} [{k}/400 Srno: 1 ({k // 4}%)]\tLoss: 0.2{k}")

    took_s, found = play(run, tmp_path, Amount(6))
    assert all(abs(one.total_s / took_s - 1) < 0.1 for at, one in found if at > 0.4 * took_s)


def test_what_another_figure_is_of_says_nothing_of_a_step() -> None:
    reader = Reader()
    for i in range(1, 11):
        line = f"Last test reward: 12.00. Training step: {100 * i}/10000. Loss: 5.51"
        reader.feed(line.encode() + b"\n", 10.0 * i)
    found = reader.progress(100.0)
    assert found is not None
    assert found.of == 10_000.0
    assert read_nothing("Test: [3] step 120/500 loss 0.3")


def read_nothing(line: str) -> bool:
    reader = Reader()
    for i in range(5):
        reader.feed(line.encode() + b"\n", 10.0 * i)
    return reader.progress(50.0) is None


def one_bar(epochs: int, steps: int, begin: str = "", after: str = "") -> Callable[[Log], None]:
    """One bar over all steps, as the examples of Accelerate have it."""

    def run(log: Log) -> None:
        log.wait(20)
        done, of = 0, epochs * steps
        log.bar("", 0, of)
        for epoch in range(epochs):
            log.line(begin.format(epoch + 1)) if begin else None
            for _ in range(steps):
                log.wait(1)
                done += 1
                log.bar("", done, of, after=after.format(epoch))

    return run


def a_bar_an_epoch(epochs: int, steps: int, after: str = "") -> Callable[[Log], None]:
    def run(log: Log) -> None:
        log.wait(20)
        for epoch in range(epochs):
            for i in range(steps):
                log.wait(1)
                log.bar("", i + 1, steps, after=after.format(epoch + 1))
            log.line("")

    return run


def test_one_bar_over_all_steps_is_the_run_where_its_length_says_so(tmp_path: Path) -> None:
    took_s, found = play(one_bar(24, 63), tmp_path, Amount(24))
    assert found[0][0] < 0.1 * took_s
    assert narrow_and_wrong(took_s, found) == []
    assert all(one.low_s <= took_s <= one.high_s < 3.5 * took_s for at, one in found if at < took_s)
    assert {one.of for _, one in found} == {24 * 63}


def test_of_few_epochs_one_bar_may_be_the_first_of_them(tmp_path: Path) -> None:
    """One length in three is a multiple of three: what is stated holds both."""
    for run in (one_bar(3, 375), a_bar_an_epoch(3, 375)):
        took_s, found = play(run, tmp_path, Amount(3))
        (tmp_path / "output").unlink()
        assert found[0][0] < 0.2 * took_s
        assert narrow_and_wrong(took_s, found) == []
        assert all(0.95 * one.low_s <= took_s <= 1.05 * one.high_s for _, one in found)


@pytest.mark.parametrize(("epochs", "of"), [(24, 1513), (16, 10_000), (90, 45)])
def test_a_bar_of_any_other_length_says_nothing_of_all_epochs(epochs: int, of: int) -> None:
    reader = Reader(Amount(epochs))
    for i in range(1, 40):
        reader.feed(f"\r  1%|    | {i}/{of} [00:10<10:00,  1.0it/s]".encode(), 10.0 + i)
    assert reader.progress(50.0) is None


def test_a_bar_beside_another_may_be_of_its_epoch() -> None:
    """One that is over tells that bars come one after another."""
    reader = Reader(Amount(50))
    for i in range(1, 11):
        reader.feed(f"\r{i:3d}%|    | {i}/10 [00:10<00:10,  1.0it/s]".encode(), 10.0 + i)
    for i in range(1, 40):
        reader.feed(f"\r  1%|    | {i}/50 [00:10<10:00,  1.0it/s]".encode(), 30.0 + i)
    assert reader.progress(70.0) is None


def test_a_bar_as_long_as_there_are_epochs_counts_them(tmp_path: Path) -> None:
    def run(log: Log) -> None:
        log.wait(20)
        for i in range(51):
            log.bar("", i, 50)
            log.wait(12)

    took_s, found = play(run, tmp_path, Amount(50))
    assert found[0][0] < 0.15 * took_s
    assert narrow_and_wrong(took_s, found) == []
    assert (found[-1][1].unit, found[-1][1].of) == ("epoch", 50.0)


@pytest.mark.parametrize(("begin", "after"), [("\nEpoch {}/10", ""), ("", ", epoch={}, loss=0.3")])
def test_one_bar_over_all_steps_is_not_one_of_the_first_epoch(
    begin: str, after: str, tmp_path: Path
) -> None:
    """Until the first is over it may be: "10 epochs of 630 s" was ten times too long."""
    took_s, found = play(one_bar(10, 63, begin, after), tmp_path, Amount(10))
    assert found[0][0] < 0.1 * took_s
    assert narrow_and_wrong(took_s, found) == []
    assert all(one.low_s <= took_s <= one.high_s for _, one in found)
    assert found[-1][1].of == 630


def test_the_epoch_after_a_bar_is_read(tmp_path: Path) -> None:
    """As GluonTS has it."""
    run = a_bar_an_epoch(6, 50, ", epoch={}/6, avg_epoch_loss=5.1")
    took_s, found = play(run, tmp_path)
    assert found[0][0] < 0.3 * took_s
    assert narrow_and_wrong(took_s, found) == []
    assert found[-1][1].total_s == pytest.approx(took_s, rel=0.1)


def test_the_last_epoch_is_no_bar_that_ended_twice(tmp_path: Path) -> None:
    """Looked at every 15 s, "Epoch 4/4" was taken for one, and the forecast withdrawn."""

    def run(log: Log) -> None:
        log.wait(20)
        for epoch in range(1, 5):
            for i in range(200):
                log.wait(1)
                log.bar(f"Epoch {epoch}/4", i + 1, 200, after=", loss=0.3")

    took_s, found = play(run, tmp_path)
    assert narrow_and_wrong(took_s, found) == []
    assert all(one.error < 0.2 for at, one in found if at > 0.3 * took_s)


def test_a_first_epoch_in_the_time_of_imports_may_be_mostly_these(tmp_path: Path) -> None:
    def run(log: Log) -> None:
        log.wait(50)
        for epoch in range(1, 61):
            log.wait(2.4)
            log.line(f"Epoch {epoch}/60 loss 0.3012")

    took_s, found = play(run, tmp_path)
    assert found[0][0] < 60
    assert all(one.low_s <= took_s <= one.high_s for at, one in found if at < 60)


def test_an_only_epoch_that_passes_again_is_no_run() -> None:
    """An RL trainer's inner bar, `Train epoch [1/1]`, of four steps, and a bar over episodes."""
    reader, at, said = Reader(Amount(1)), 100.0, list[Progress]()
    for episode in range(1, 19):
        for step in range(1, 5):
            at += 25.0
            bar = (
                f"\rTrain epoch [1/1]: {25 * step:3d}%|###| {step}/4 [00:24<01:13, 24s/it, pg=4.4]"
            )
            reader.feed(bar.encode(), at)
            said += filter(None, [reader.progress(at)])
        bar = (
            f"\n\rEpisode [1/1]: {5 * episode:3d}%|###| {episode}/36 [03:22<1:57, 9s/it, loss=4]\n"
        )
        reader.feed(bar.encode(), at)
        at += 50.0
        said += filter(None, [reader.progress(at)])
    whole_s = 36 * 150.0 + 50.0
    assert said[-1].low_s <= whole_s <= said[-1].high_s
    assert said[-1].total_s == pytest.approx(whole_s, rel=0.1)
    assert all(one.high_s > 3 * one.total_s for one in said if one.total_s < 0.5 * whole_s)


def test_an_only_epoch_of_many_steps_is_the_run() -> None:
    reader = Reader(Amount(1))
    for step in range(1, 301):
        bar = f"\rTrain epoch [1/1]: {step // 6:3d}%|###| {step}/600 [00:24<01:13, 24s/it, pg=4.4]"
        reader.feed(bar.encode(), 10.0 * step)
    found = reader.progress(3000.0)
    assert found is not None
    assert found.total_s == pytest.approx(6000.0, rel=0.1)
    assert found.high_s < 2 * found.total_s


@pytest.mark.parametrize("begun", [0, 4000])
def test_steps_of_the_run_and_of_the_epoch_in_one_format_are_two_counters(begun: int) -> None:
    """Of tflearn: `Training Step: 180`, and in the next line `iter: 20/80`."""
    reader, at, found = Reader(Amount(7)), 0.0, None
    for done in range(20, 321, 20):  # four epochs of 80
        at = 20.0 * done
        epoch, step = (done - 1) // 80 + 1, (done - 1) % 80 + 1
        line = f"Training Step: {begun + done}  | total loss: 0.31\n"
        line += f"| Adam | epoch: {epoch:03d} | loss: 0.31 - acc: 0.91 -- iter: {step:05d}/00080\n"
        reader.feed(line.encode(), at)
        found = reader.progress(at) or found
    assert found is not None
    assert found.total_s == pytest.approx(7 * 80 * 20.0, rel=0.1)


def test_steps_asked_for_and_a_bar_of_each_epoch_say_how_many_epochs() -> None:
    reader, at = Reader(Amount(None, 1000)), 0.0
    for epoch in range(1, 6):
        reader.feed(f"\n==> Start Training Epoch {epoch}, lr=0.01 ...\n".encode(), at)
        for step in range(1, 101):
            at += 1.0
            bar = (
                f"\rloss=0.0012 (0.0013), lr=0.0098: {step:3d}%|###| {step}/100 [00:10<0:9, 1it/s]"
            )
            reader.feed(bar.encode(), at)
    found = reader.progress(at)
    assert found is not None
    assert found.total_s == pytest.approx(1000.0, rel=0.1)
    assert found.high_s > 3 * found.total_s  # a step may be of several batches


def test_fits_of_a_search_are_counted_by_their_lines() -> None:
    head = "Fitting 5 folds for each of 24 candidates, totalling 120 fits\n"
    reader = Reader(None)
    reader.feed(head.encode(), 1.0)
    for i in range(60):
        line = f"[CV {i % 5 + 1}/5] END ....C=10, gamma=0.1;, score=0.91 total time=  10.0s\n"
        reader.feed(line.encode(), 10.0 * (i + 1))
    found = reader.progress(600.0)
    assert found is not None
    assert (found.done, found.of) == (60.0, 120.0)
    assert found.total_s == pytest.approx(1200.0, rel=0.05)
    other = Reader(None)
    other.feed(b"[CV 1/5] END ....C=10;, score=0.91\n", 10.0)
    assert other.progress(10.0) is None


def test_a_summary_of_an_epoch_states_no_amount() -> None:
    """Of Poutyne: `Epoch:  1/4 Train steps: 80 Val steps: 40`."""
    reader, at, said = Reader(None), 10.0, list[Progress]()
    for epoch in range(1, 5):
        for step in range(20, 81, 20):
            at += 20.0
            line = f"\rEpoch:  {epoch}/4 Step: {step:4d}/80 12% |██  |ETA: {80 - step}.1s loss: 0.3"
            reader.feed(line.encode(), at)
        at += 20.0
        line = (
            f"\rEpoch:  {epoch}/4 Train steps: 80 Val steps: 40 100.12s loss: 0.31 val_loss: 0.4\n"
        )
        reader.feed(line.encode(), at)
        said += filter(None, [reader.progress(at)])
    assert {one.of for one in said} == {4.0}
    assert all(abs(log(one.total_s / at)) < 0.25 for one in said)


@pytest.mark.parametrize(
    "line",
    [
        "\rAutoML progress: |{drawn:20s}| {percent}%",
        "\r[{drawn:20s}] | {percent}% Completed | 01:12",
        "\rProgress: {percent}%|{drawn:20s}|  ETA: {left}",
    ],
)
def test_a_drawn_bar_with_its_number_at_the_end_is_read(line: str) -> None:
    reader = Reader(None)
    for percent in range(5, 56, 5):
        left = f"0:{(100 - percent) // 6:02d}:{(100 - percent) % 6 * 10:02d}"
        text = line.format(drawn="#" * (percent // 5), percent=percent, left=left)
        reader.feed(text.encode(), 10.0 * percent)
        found = reader.progress(10.0 * percent)
    assert found is not None
    assert found.total_s == pytest.approx(1000.0, rel=0.1)


def test_a_total_may_stand_just_before_the_first_number() -> None:
    reader = Reader(None)
    head = (
        "   Chain results (200000 generations requested):\n\n      0 -- [-9120.341] (-9341.120)\n"
    )
    reader.feed(head.encode(), 10.0)
    for i in range(1, 9):
        line = f"   {10_000 * i} -- [-3412.{i}] (-3413.120) (-3420.341) -- 0:01:12\n"
        reader.feed(line.encode(), 10.0 + 50.0 * i)
    found = reader.progress(410.0)
    assert found is not None
    assert found.total_s == pytest.approx(1010.0, rel=0.1)
