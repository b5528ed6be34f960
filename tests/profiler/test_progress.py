"""Progress read from output: every format, on a clock of its own, and output that says nothing."""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.amounts import Amount
from features.commands import of_command, printed
from features.progress import Progress
from profiler.progress.formats import FORMATS, read
from profiler.progress.reader import COUNTERS, Reader
from profiler.progress.table import Format
from profiler.progress.tail import Tail
from tests.profiler import trainings


class Clock:
    """Stands in for the module `time`: who sleeps has slept."""

    now = 0.0

    def time(self) -> float:
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Output(StringIO):
    """What was written, and when."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.log = clock, list[tuple[float, str]]()

    def write(self, text: str) -> int:
        self.log.append((self.clock.now, text))
        return len(text)


def replay(output: Output, until: float, amount: Amount | None = None) -> Progress | None:
    """What a reader says `until` seconds after the beginning."""
    reader, at, rest = Reader(amount), 0.0, list(output.log)
    while at < until:
        at += 0.25
        text = ""
        while rest and rest[0][0] <= at:
            text += rest.pop(0)[1]
        reader.feed(text.encode(), at)
    return reader.progress(at)


@pytest.mark.parametrize("name", trainings.TRAININGS)
def test_a_job_says_how_long_it_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    output = Output(clock := Clock())
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "stderr", output)
    monkeypatch.setattr("tqdm.std.time", clock.time)
    training = trainings.Training(
        clock, output.write, epochs=15, steps=40, step_s=0.05, validate_s=0.25
    )
    trainings.TRAININGS[name](training)
    monkeypatch.undo()
    took_s, needs = clock.now, trainings.NEEDS.get(name)
    amount = {None: None, "epochs": Amount(15), "steps": Amount(None, training.total)}[needs]
    found = replay(output, 10.0, amount)
    assert found is not None
    assert found.total_s == pytest.approx(took_s, rel=0.1)
    assert found.low_s <= took_s <= found.high_s
    if needs:  # without its command it is not known
        assert replay(output, 10.0) is None


@pytest.mark.parametrize("row", FORMATS, ids=lambda row: row.name)
def test_a_line_of_each_format(row: Format) -> None:
    for line in row.samples:
        names = {mark.format for mark in read(line)}
        assert row.name in names if row.general else names == {row.name}


@pytest.mark.parametrize(
    "line",
    [
        "Downloading data:  45%|####5     | 45.0M/100M [00:12<00:15, 3.58MB/s]",
        "Map: 100%|##########| 5000/5000 [00:12<00:00, 358.0 examples/s]",
        "Validation DataLoader 0:  45%|####5     | 45/100 [00:12<00:15, 3.58it/s]",
        "Test: [  50/98]  Time: 0.100 (0.120)  Loss:   4.91 ( 5.01)",
        "Loading checkpoint shards: 100%|##########| 4/4 [00:12<00:00,  3.1s/it]",
        "evaluating step 50/100",
        "read 3/4 of the page on 03/01/2024 at 12:00:00, 50% off",
    ],
)
def test_what_is_no_training_is_not_read(line: str) -> None:
    assert read(line) == []


def fed(lines: list[tuple[float, str]]) -> Progress | None:
    reader = Reader()
    for at, line in lines:
        reader.feed(line.encode() + b"\n", at)
    return reader.progress(lines[-1][0])


@pytest.mark.parametrize(
    "lines",
    [
        [(10.0 + i, f"{i % 10 + 1}/10 [=====>........] - ETA: 3s") for i in range(55)],
        [(10.0 * i, f"step {90 * i}/{100 * i}") for i in range(1, 20)],
        [(i + 1.0, f"eta: 0:00:{30 - i % 30:02d}  iter: {i}  total_loss: 1") for i in range(200)],
    ],
    ids=["bars that restart", "a total that grows", "an ETA of the epoch only"],
)
def test_what_says_nothing_of_the_whole_is_not_believed(lines: list[tuple[float, str]]) -> None:
    assert fed(lines) is None


def test_a_bar_alone_may_be_the_first_of_many() -> None:
    found = fed([(5.0 + i, f" {i}%|#   | {i}/100 [00:0{i}<00:15,  1.0it/s]") for i in range(1, 9)])
    assert found is not None
    assert found.high_s > 2 * found.low_s


def test_a_restart_from_a_checkpoint_is_no_faster_pace() -> None:
    found = fed([(20.0 + i, f"step {5000 + 10 * i}/6000") for i in range(20)])
    assert found is not None
    assert found.total_s == pytest.approx(120.0, rel=0.03)


def test_lines_that_come_at_once_are_one_moment() -> None:
    held = [(10.0, f"step {i}/1000") for i in range(5)] + [
        (12.0, f"step {i}/1000") for i in (5, 60)
    ]
    found = fed(held)
    assert found is not None
    assert found.total_s > 12


def test_output_without_end_is_harmless() -> None:
    reader = Reader()
    for i in range(20):
        reader.feed(b"7/9 |" * 1_000_000, float(i))
        reader.feed("".join(f"{i}{k}: Epoch {k}/90 label{chr(97 + k % 26) * (k % 40)}\n"
                            for k in range(500)).encode(), i + 0.5)  # fmt: skip
    assert len(reader._rest) <= 1000
    assert len(reader._counters) <= COUNTERS
    assert all(len(c.points) <= 128 for c in reader._counters.values())


PIECES = st.sampled_from(
    [sample for row in FORMATS for sample in row.samples] + [
     "\r", "\n", "\x1b[A", "\x1b]0;", "\b", "{", '{"progress": ', "1e999/0", "0/0", "\0", "Epoch "]
)  # fmt: skip
NUMBERS = st.integers().map(str)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.lists(PIECES | st.text(max_size=8) | NUMBERS), st.floats(0, 1e7))
    )
)  # fmt: skip
def test_nothing_that_is_printed_does_harm(chunks: list[tuple[list[str], float]]) -> None:
    reader, at = Reader(), 0.0
    for pieces, after in chunks:
        at += after
        reader.feed("".join(pieces).encode("utf-8", "surrogatepass"), at)
        found = reader.progress(at)
        if found is not None:
            assert 0 <= found.low_s <= found.total_s <= found.high_s
            assert found.total_s >= at
            assert found.text()
            assert found.error > 0


def test_a_file_of_ones_own_and_a_log_that_is_emptied(tmp_path: Path) -> None:
    output, own = tmp_path / "output", tmp_path / "own"
    tail = Tail(output, own=own)
    tail.look(1.0)  # neither is there yet
    assert tail.progress(1.0) is None
    output.write_text("Epoch 1/4\n" * 100)
    for at in range(10, 40, 10):
        own.write_text(f"{at}/1000")
        tail.look(float(at))
        output.write_text("")
    found = tail.progress(30.0)
    assert found is not None
    assert (found.total_s, found.source) == (pytest.approx(1000.0), "its own words")
    own.unlink()
    own.symlink_to(output)  # a link is not followed: the service may read more than the job
    output.write_text("990/1000")
    tail.look(40.0)
    assert tail.progress(40.0) == pytest.approx(found) or tail.progress(40.0) is not None


@pytest.mark.parametrize(
    ("command", "amount"),
    [
        ("python train.py --epochs 90", Amount(90.0)),
        ("python train.py --max_steps=5000 --lr 0.1", Amount(None, 5000.0)),
        ("python t.py trainer.max_epochs=12 +trainer.max_steps=1e4", Amount(12.0, 10_000.0)),
        ("fairseq-train data --max-update 50000 --max-epoch 0", Amount(None, 50_000.0)),
        ("torchrun run.py --num_train_epochs 3.0 --logging_steps 50", Amount(3.0)),
        ("python train.py --epochs many --iters", Amount()),
    ],
)
def test_how_much_a_command_asks_for(command: str, amount: Amount) -> None:
    assert of_command(command.split()) == amount


def test_how_much_settings_ask_for() -> None:
    assert printed("Namespace(max_update=50000, max_epoch=0, lr=0.1)") == [("steps", 50_000.0)]
    assert printed("  Num Epochs = 9,223,372,036,854,775,807") == []
    assert printed("Scheduled epochs: 310. LR stepped per epoch.") == [("epochs", 310.0)]
    assert printed("Train Epoch: 3 [1280/60000 (2%)]  total loss: 3") == []


def test_a_first_epoch_alone_may_be_warm_up() -> None:
    lines = [(4.0, "Epoch 1/15"), (9.0, "Epoch 2/15")]
    first = fed(lines)
    later = fed([*lines, (12.0, "Epoch 3/15"), (15.0, "Epoch 4/15")])
    assert first is not None
    assert later is not None
    assert first.low_s < later.total_s < first.high_s


def test_a_resumed_run_has_not_seen_its_evaluation_either() -> None:
    held = [(100.0 + i, f"Iter {600 + i}/1000 loss 0.5") for i in range(41)]
    found = fed(held)
    assert found is not None
    assert found.high_s > 1.1 * (100.0 + 400.0)


def test_one_total_of_all_steps_beside_the_number_of_an_epoch_is_told_by_its_length() -> None:
    held = [(10.0 + i, f"Epoch:1/9 loss 0.5 Iter: {10 * i}/16119") for i in range(1, 60)]
    found = fed(held)
    assert found is not None
    assert found.low_s < 10.0 + 1611.9 < found.high_s


@pytest.mark.parametrize("steps", [1234, 1239])
def test_a_total_that_may_be_of_all_epochs_lowers_the_forecast_and_does_not_raise_it(
    steps: int,
) -> None:
    held = [(10.0 + i, f"Epoch:1/2 loss 0.5 Iter: {10 * i}/{steps}") for i in range(1, 60)]
    found = fed(held)
    assert found is not None
    whole_s = 10.0 + 2 * steps / 10
    assert whole_s < found.total_s < 1.1 * whole_s
    assert found.high_s < 1.6 * whole_s  # an epoch is not longer than its bar
    if steps % 2:  # no total of two equal epochs
        assert found.low_s > 0.9 * whole_s
    else:
        assert 0.5 * whole_s < found.low_s < 10.0 + 1.1 * steps / 10


def test_epochs_may_be_passes_within_one_of_the_iterations_that_are_asked_for() -> None:
    reader = Reader(Amount(steps=60.0))
    for i in range(1, 6):
        reader.feed(f"epoch {i}/5\n".encode(), 500.0 + 7 * i)
    reader.feed(b"iteration 1/60\n", 540.0)
    found = reader.progress(550.0)
    assert found is None or found.high_s > 5 * 540.0
