"""Counters that no format names, found by their growth towards a total."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from features.amounts import Amount
from features.progress import GROWN, REPEATS, Progress
from profiler.progress.counter import Counter
from profiler.progress.formats import Mark
from profiler.progress.growth import AROUND, BEHIND, Growth, kind
from profiler.progress.growth import GROWN as BY_GROWTH
from profiler.progress.reader import FIRST, FRAMES, Reader, _finest, _of_line

EVERY_S = 10.0


def last(
    line: Callable[[int], str], count: int, amount: Amount | None = None, head: str = ""
) -> Progress | None:
    """What is said after so many lines, ten seconds apart."""
    reader, found = Reader(amount), None
    reader.feed(head.encode(), 1.0)
    for i in range(1, count + 1):
        reader.feed((line(i) + "\n").encode(), EVERY_S * i)
        found = reader.progress(EVERY_S * i)
    return found


LINES: dict[str, tuple[Callable[[int], str], Amount | None, str]] = {
    "its own total": (lambda i: f"sweep {i * 50} / 2000  E = -1.4{i:02d}", None, ""),
    "of so many": (lambda i: f"[12:{i:02d}] Processing sample {i} of 40: NA{i}", None, ""),
    "a share": (lambda i: f"[{2.5 * i:5.1f} %] throughput=91.{i} samples/s", None, ""),
    "a fraction": (lambda i: f"t = {i / 2:.2f} / 20.0 ns, T = 300.{i}", None, ""),
    "both": (lambda i: f"[ab/3f{i:04d}] ALIGN ({i}) [{i * 5 // 2:3d}%] {i} of 40", None, ""),
    "thousands": (lambda i: f"--> {i * 1000:>9,} :: obj={5 / i:.5f}", Amount(None, 40_000), ""),
    "what is left": (lambda i: f"obj 1.2{i:02d}  remaining {40 - i}", None, ""),
    "a sum of states": (lambda i: f"DONE={i} RUNNING=1 FAILED=0 QUEUED={40 - i} at=n1", None, ""),
    "of so many, in brackets": (lambda i: f"sampling sequence {i} (of 40)...", None, ""),
    "steps asked for": (lambda i: f"{i * 50} TS dt 0.01 time {i / 3:.4g}", Amount(None, 2000), ""),
    "steps stated": (
        lambda i: f"ENERGY: {i * 500:7d} 20974.89 19756.65",
        None,
        "Info: NUMBER OF STEPS        20000\n",
    ),
    "steps announced": (
        lambda i: f"step {i * 500}, all is well",
        None,
        "20000 steps,     40.0 ps.\n",
    ),
    "parts by their state": (
        lambda i: f"trials: {i} TERMINATED | {40 - i} RUNNING",
        None,
        "",
    ),
    "rounds asked for": (lambda i: f"Round {i}\n\ttrain metrics: a=3.{i}", Amount(None, 40), ""),
    "epochs asked for": (lambda i: f"[{i:4d}] tr {5 / i:.4f} va 0.41", Amount(40), ""),
    "a table of a tuner": (
        lambda i: f"| PPO_1a2b_00000 | RUNNING | 10.0.0.3:41203 | {i} | {i}.031 | {i * 4000} |",
        Amount(None, 40),
        "",
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_a_counter_without_a_format_is_read(name: str) -> None:
    line, amount, head = LINES[name]
    found = last(line, 20, amount, head)
    assert found is not None
    assert found.total_s == pytest.approx(400.0, rel=0.06)
    assert found.low_s <= 400.0 <= found.high_s
    assert GROWN in found.doubts.split()


def test_each_step_that_agrees_makes_it_surer() -> None:
    line, amount, _ = LINES["steps asked for"]
    few, many = last(line, 4, amount), last(line, 30, amount)
    assert few is not None
    assert many is not None
    assert few.error > 2 * many.error
    assert last(line, 3, amount) is None, "three numbers may go up by chance"


SILENT: dict[str, tuple[Callable[[int], str], Amount | None, str]] = {
    "no total": (lambda i: f"[{i}] obj {5 / i:.4f}", None, ""),
    "a clock": (lambda i: f"running for {10 * i} now", Amount(None, 5000), ""),
    "two totals far apart": (
        lambda i: f"work {i * 50} units, part {i * 3}",
        Amount(None, 2000),
        "",
    ),
    "epochs where steps are asked for": (
        lambda i: f"==> Start Training Epoch {i}, lr=0.01 ...",
        Amount(None, 3000),
        "",
    ),
    "what grows ever slower": (
        lambda i: f"accuracy {1 + int(70 * (1 - 0.8**i))} %",
        None,
        "",
    ),
    "a measurement": (lambda i: f"length {i * 10 + 37 * (i % 3)} now", Amount(None, 3000), ""),
    "an evaluation": (lambda i: f"val: {i} of 40 batches", None, ""),
    "a number far on, and its total": (
        lambda i: f"item {990 + i} of 4000" if i < 3 else "",
        None,
        "",
    ),
    "what begins again": (lambda i: f"part {i % 7} of 7", None, ""),
    "steps within an epoch, maybe": (lambda i: f"part {i} of 40", Amount(10), ""),
    "a patience": (lambda i: f"waited {i} of 40", None, "early stopping patience: 40 epochs\n"),
    "a total of something else": (
        lambda i: f"obj {i * 50} reached",
        None,
        "saving a checkpoint every 2000 steps\n",
    ),
    "a total in each line": (lambda i: f"episode {i} ends in 4571 steps", None, ""),
    "a total in many lines": (
        lambda i: f"part {i}" if i % 2 else "now come 4571 steps",
        None,
        "now come 4571 steps\n",
    ),
    "what counts on from much": (lambda i: f"obj {i * 50 + 700} reached", Amount(None, 2000), ""),
}


@pytest.mark.parametrize("name", SILENT)
def test_nothing_is_said_of_a_counter_in_doubt(name: str) -> None:
    line, amount, head = SILENT[name]
    assert last(line, 20, amount, head) is None


def test_a_counter_of_the_runs_is_the_whole() -> None:
    found = last(lambda i: f"=== run {i}/40 ===", 20, Amount(runs=40.0))
    assert found is not None
    assert REPEATS not in found.doubts
    assert found.total_s == pytest.approx(400.0, rel=0.1)


def test_a_number_without_a_word_may_count_something_longer() -> None:
    alone = last(lambda i: f"{i} obj=0.3", 20, Amount(None, 40))
    named = last(lambda i: f"it. no. {i} obj=0.3", 20, Amount(None, 40))
    assert alone is not None
    assert named is not None
    assert alone.low_s < 0.6 * alone.total_s < named.low_s


def test_while_no_loss_is_printed_it_may_not_have_begun_to_train() -> None:
    line: Callable[[int], str] = lambda i: f"part {i} of 40"  # noqa: E731
    silent, loud = last(line, 20), last(lambda i: f"{line(i)} loss=0.3", 20)
    assert silent is not None
    assert loud is not None
    assert silent.high_s > 1.5 * loud.high_s


def test_what_formats_read_is_not_looked_for() -> None:
    found = last(lambda i: f"step {i}/40 of 80 parts", 20)
    assert found is not None
    assert GROWN not in found.doubts


def test_a_short_counter_may_begin_again_and_one_that_is_done_says_nothing() -> None:
    def line(i: int) -> str:
        return f"[CV {i}/5] END gamma=0.1;"

    found = last(line, 4)
    assert found is not None
    assert found.high_s > 9.0 * found.total_s
    assert last(line, 5) is None


def test_who_has_reached_all_of_its_work_is_not_said_to_go_on() -> None:
    def line(i: int) -> str:
        return f"[{5.0 * i:5.1f} %] all is well"

    assert last(line, 19) is not None
    assert last(line, 20) is None, "100 %"


@pytest.mark.parametrize(("behind", "counts"), [(3, True), (5, False)])
def test_a_rank_may_be_four_steps_behind_whatever_a_step_is(behind: int, counts: bool) -> None:
    """A number that falls by more is a measurement, and no counter."""

    def lines(i: int) -> str:
        late = f"\nat {50 * (i - behind)}: fine" if i == 12 else ""
        return f"at {50 * i}: fine{late}"

    assert (last(lines, 13, Amount(None, 2000)) is not None) is counts


def read(n: float, of: float | None = None, format: str = BY_GROWTH, label: str = "") -> Counter:
    """A counter that went up to n."""
    return Counter(Mark(format, "step", n, of, label=label), [(0.0, 0.0), (60.0, n)])


@pytest.mark.parametrize(
    ("counter", "counts"),
    [
        (read(9.0, format="a trainer's own", label="epoch #"), "step"),  # its format says so
        (read(9.0, label="epoch #"), "epoch"),
        (read(9.0, label="round #"), "round"),
        (read(9.0, label="fold #"), "other"),
        (read(9.0, label="iteration #"), "step"),
        (read(9.0, label="a #"), ""),
    ],
)
def test_what_a_counter_counts_is_said_by_its_format_or_its_words(
    counter: Counter, counts: str
) -> None:
    assert kind(counter) == counts


@pytest.mark.parametrize(
    ("numbers", "between"),
    [
        ((900.0,), None),  # the only one
        ((900.0, 800.0), None),  # about equal
        ((900.0, 0.0), None),  # nobody knows how much slower that is
        ((900.0, 300.0), (1.0, 3.0)),
        ((300.0, 450.0, 900.0), (1.0, 3.0)),
    ],
)
def test_of_several_steps_the_quickest_may_be_those_asked_for_or_the_slowest(
    numbers: tuple[float, ...], between: tuple[float, float] | None
) -> None:
    found = list(_finest([read(n) for n in numbers]))
    assert [one.between for one in found] == ([] if between is None else [between])
    assert [one.main.n for one in found] == [900.0] * len(found)


def test_steps_that_are_asked_for_by_their_name_are_these() -> None:
    (found,) = _finest([read(900.0, format=FRAMES), read(300.0)])
    assert found.between == (1.0, 1.0)


@pytest.mark.parametrize(
    ("of", "most", "between"),
    [
        (1000.0, 1.0, (1.0, 1.0)),
        (1000.0, 4.0, (1.0, 4.0)),  # another goes on so long
        (5.0, 1.0, (1.0, FIRST)),  # five folds, say, of each candidate
        (5.0, 40.0, (1.0, 40.0)),
    ],
)
def test_a_run_takes_at_least_what_its_counter_has(
    of: float, most: float, between: tuple[float, float]
) -> None:
    assert _of_line(read(1.0, of), 1.0, most).between == between


def test_rounds_are_no_steps_where_steps_are_counted() -> None:
    def lines(i: int) -> str:
        return f"round {i}\nat step {30 * i}: fine"

    found = last(lines, 12, Amount(None, 1200))
    assert found is not None
    assert found.done == 360.0


def test_what_begins_again_for_each_of_another_counter_is_a_part_of_it() -> None:
    reader, at, found = Reader(), 0.0, dict[int, Progress]()
    for turn in range(1, 10):
        reader.feed(f"site a - train round: {turn} / 9\n".encode(), at)
        for k in range(40, 201, 40):
            at += 10.0
            reader.feed(f"Epoch: 1 | Completed: {k}/200 ({k / 2:.0f}%)\n".encode(), at)
            if (said := reader.progress(at)) is not None:
                found[turn] = said
                assert said.high_s >= 0.9 * 450.0
    assert found[7].of == 9.0
    assert found[7].low_s <= 450.0 <= found[7].high_s


def test_a_time_left_that_does_not_fall_is_not_of_the_run() -> None:
    assert last(lambda i: f"train 12 |ETA: 0:02:00 |loss {5 / i:.3f}", 20) is None

    def left(i: int) -> str:
        return f"0:0{(400 - 10 * i) // 60}:{(400 - 10 * i) % 60:02d}"

    falls = last(lambda i: f"train 12 |ETA: {left(i)} |loss {5 / i:.3f}", 20)
    assert falls is not None
    assert falls.low_s <= 400.0 <= falls.high_s


@pytest.mark.parametrize(("lines", "said"), [(100, True), (4000, False)])
def test_a_total_is_looked_for_in_the_beginning_only(lines: int, said: bool) -> None:
    reader, found = Reader(), None
    for _ in range(lines // 100):
        reader.feed(b"all is well, but slow\n" * 100, 1.0)
    reader.feed(b"Number of steps: 2000\n", 1.0)
    for i in range(1, 21):
        reader.feed(f"obj {i * 50} reached\n".encode(), EVERY_S * i)
        found = reader.progress(EVERY_S * i)
    assert (found is not None) == said


def left(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"train 12 |ETA: {hours}:{rest // 60:02d}:{rest % 60:02d} |loss 0.5"


@pytest.mark.parametrize("whole_s", [2000.0, 30_000.0])
@pytest.mark.parametrize("slow", [1.0, 1.1, 1.25])
def test_a_time_left_says_the_end_from_beginning_to_end(whole_s: float, slow: float) -> None:
    """Also one that falls more slowly than time passes, as an evaluation is left out of it."""
    reader = Reader()
    for percent in range(1, 98):
        at = whole_s * percent / 100
        reader.feed((left((whole_s - at) / slow) + "\n").encode(), at)
        found = reader.progress(at)
        if percent < 12:
            continue
        assert found is not None, percent
        assert found.total_s == pytest.approx(whole_s, rel=0.05)
        assert found.low_s <= 1.02 * whole_s
        assert found.high_s >= 0.98 * whole_s


def grown(*lines: str) -> tuple[Growth, dict[str, Counter]]:
    growth = Growth()
    for i, line in enumerate(lines):
        growth.take(line, EVERY_S * i)
    return growth, {name.partition("#")[0].strip(): one for name, one in growth._counters.items()}


@pytest.mark.parametrize("times", [AROUND - 1, AROUND, AROUND + 4])
@pytest.mark.parametrize("total", [" of 5", ""])
def test_who_goes_up_whenever_another_with_a_total_begins_again_goes_around(
    times: int, total: str
) -> None:
    passes = range(int(times) + 1)
    lines = [line for i in passes for line in (f"round {i}", *_parts(total))]
    growth, counters = grown(*lines)
    counts = times >= AROUND and total != ""
    assert growth.goes_around(counters["round"]) == counts
    assert not growth.goes_around(counters["part"])


def _parts(total: str) -> list[str]:
    return [f"part {k}{total}" for k in range(1, 6)]


def test_a_counter_may_begin_again_as_often_as_another_was_not_reached_yet() -> None:
    lines = [line for i in range(1, 5) for line in (f"site {i // 4} of 8", f"part {2 * i} of 8")]
    growth, counters = grown("site 1 of 8", *lines)
    part, site = counters["part"], counters["site"]
    assert part.n / 8 > 1 / 8 / BEHIND
    assert growth.around(part) == pytest.approx(8.0)
    assert growth.around(site) == 1.0
    late, counters = grown("part 1 of 8", "part 8 of 8", "site 1 of 8")
    assert late.around(counters["part"]) == 1.0, "it came later"
    alone, counters = grown("part 1 of 8", "part 8 of 8")
    assert alone.around(counters["part"]) == 1.0


@pytest.mark.parametrize("last_s", [0.0, 25.0, 50.0, 75.0])
def test_of_a_unit_that_is_printed_repeatedly_the_share_is_left_that_it_is_printed_in(
    last_s: float,
) -> None:
    counter = Counter(Mark("x", "epoch", 1.0, ends=True))
    for epoch in range(1, 8):
        for after_s in (0.0, last_s / 2, last_s):
            counter.add(Mark("x", "epoch", float(epoch), ends=True), 100.0 * epoch + after_s)
    assert counter.within() == pytest.approx(last_s / 100.0)
    assert counter.done == pytest.approx(7.0 - last_s / 100.0)
