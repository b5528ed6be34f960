"""Lines that a site adds in a file: a place for each number, a sample, and no pattern."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.progress import apart, table
from profiler.progress.formats import FORMATS, read
from profiler.progress.reader import Reader
from profiler.progress.table import VARIABLE, FormatsError
from tests.growth import EXPONENT, growth, texts

OURS = """
[[format]]
name = "ours"
line = "[it {step} of {steps}; left {eta}] {} ppl"
sample = "12:00:00 [it 120 of 5,000; left 1:02:03] loss 0.3 ppl"
scope = "run"

[[format]]
name = "rounds"
line = "ronde {epoch}:{epochs}"
sample = "ronde 3:12"
first = 1
"""


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(VARIABLE, "")
    path = tmp_path / "formats.toml"
    path.write_text(OURS)
    yield path
    monkeypatch.undo()
    table.own.cache_clear()


def test_a_line_of_ones_own_is_read_first(ours: Path) -> None:
    line = "12:00:00 [it 1,120 of 5,000; left 1:02:03] loss 0.3 ppl"
    assert {mark.format for mark in read(line)} != {"ours"}
    table.use(ours)
    assert [(m.format, m.unit, m.n, m.of, m.scope) for m in read(line)] == [
        ("ours", "step", 1120.0, 5000.0, "run"),
        ("ours", "eta", 3723.0, None, "run"),
    ]
    reader = Reader()
    for i in range(1, 6):
        reader.feed(f"ronde {i}:12\n".encode(), 10.0 * i)
    found = reader.progress(50.0)
    assert found is not None
    assert (found.source, found.of) == ("rounds", 12.0)
    assert found.total_s == pytest.approx(130.0, rel=0.1)


def test_a_reader_that_finds_other_formats_is_understood_or_sent_away(
    ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.use(ours)
    assert len(table.own()) == 2
    _, rounds = OURS.split("[[format]]")[1:]
    ours.write_text(f"[[format]]{rounds}")  # since the service read it
    reading = apart.Reading()
    reading.follow(apart.Asked(output=tmp_path / "output")).look(50.0)
    assert reading.settle(60.0)
    assert reading.pid is not None
    assert [row.name for row in table.own()] == ["rounds"]  # as the reader has them
    reading.close()
    monkeypatch.setattr(apart, "greeting", lambda: b"ready 00000000")
    assert apart._Reader.called() is None


def test_a_process_that_is_started_later_has_them_too(ours: Path) -> None:
    table.use(ours)
    table.own.cache_clear()  # as in a new process
    assert [row.name for row in table.own()] == ["ours", "rounds"]
    ours.unlink()
    table.own.cache_clear()
    assert table.own() == ()


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("", "no [[format]]"),
        ("format = 3", "no [[format]]"),
        ("[[format]\n", "formats.toml: "),
        ("[[format]]\nname = 'a'\nline = 'it {step}'", "are texts"),
        ("[[format]]\nname = 'a'\nline = 'it {step}'\nsample = 'ti 3'", "sample is not of"),
        ("[[format]]\nname = 'a'\nline = 'it {stop}'\nsample = 'it 3'", "no such place: {stop}"),
        ("[[format]]\nname = 'a'\nline = 'it {step} {step}'\nsample = 'it 3 3'", "each place once"),
        ("[[format]]\nname = 'a'\nline = '{} it {} {step}'\nsample = 'it 3'", "each place once"),
        ("[[format]]\nname = 'a'\nline = 'it {steps}'\nsample = 'it 3'", "says neither"),
        ("[[format]]\nname = 'a'\nline = '{step}'\nsample = '3'", "a word of its own"),
        (
            "[[format]]\nname = 'a'\nline = 'it {step}'\nsample = 'it 3'\npattern = '(a+)+'",
            "what is",
        ),
        ("[[format]]\nname = 'a'\nline = 'it {step}'\nsample = 'it 3'\nfirst = 7", "first 0 or 1"),
        ("#" * 70_000, "holds more than"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_with_its_reason(
    row: str, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "formats.toml").write_text(row)
    with pytest.raises(FormatsError) as refused:
        table.read(tmp_path / "formats.toml")
    assert complaint in str(refused.value)
    with pytest.raises(FormatsError, match="No such file"):
        table.read(tmp_path / "none.toml")


@pytest.mark.parametrize(
    "line",
    [
        "{step} {} it",
        "it {} {step}",
        "aa a a {epoch} {epochs} {} b b {eta}",
        "{percent}   %  {}  done",
        "((((a+)+ {step}*",
    ],
)
def test_whatever_line_is_given_it_takes_linear_time(line: str) -> None:
    pattern, _ = table._compiled(line, "here")
    costs = [growth(lambda text: pattern.search(text), make) for make in texts(pattern)]
    worst = max(costs, default=0.0)
    assert worst <= EXPONENT


def test_every_shipped_row_has_a_sample_that_its_hint_is_in() -> None:
    for row in FORMATS:
        assert row.samples
        assert all(row.hint in sample and row.pattern.search(sample) for sample in row.samples)
