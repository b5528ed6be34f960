"""Tables that a training prints a row at a time: their heading says where they count."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from features.amounts import Amount
from features.commands import of_command
from features.progress import Progress
from profiler.progress.columns import Columns, heading, other
from profiler.progress.reader import Reader

SKORCH = (
    "  epoch    train_loss    valid_acc    valid_loss     dur\n"
    "-------  ------------  -----------  ------------  ------\n",
    "      {n}        \x1b[36m0.6878\x1b[0m       \x1b[32m0.5750\x1b[0m        "
    "\x1b[35m0.6812\x1b[0m  0.0500\n",
)
WITH_CHECKPOINTS = (
    "  epoch    train_loss    valid_acc    valid_loss    cp     dur\n"
    "-------  ------------  -----------  ------------  ----  ------\n",
    "      {n}        0.6878       0.5750        0.6812          0.0500\n",
)
CHAINER = (
    "epoch       iteration   main/loss   validation/main/loss  main/accuracy  elapsed_time\n",
    "\x1b[J{n}           {h}         0.192164    0.0986173             0.941717     12.2631\n",
)
COMMAS = "epoch,train_loss,val_loss\n", "{e},0.3012,0.4012\n"
SPACY = (
    "E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  ENTS_P  ENTS_R  SCORE \n"
    "---  ------  ------------  --------  ------  ------  ------  ------\n",
    "  {e}     {h}         12.05    105.11    0.51    0.73    0.39    0.51\n",
)
BAYES = (
    "|   iter    |  target   |     x     |     y     |\n"
    "-------------------------------------------------\n",
    "| \x1b[39m{n}         \x1b[39m | \x1b[39m-7.135    \x1b[39m | 2.8340    | 1.3220    |\n",
)
DEAP = "gen\tnevals\tavg    \tstd    \tmin\n", "{n}  \t300   \t50.01  \t4.872  \t36\n"
GPLEARN = (
    "    |   Population Average    |             Best Individual              |\n"
    "---- ------------------------- ------------------------------------------ ----------\n"
    " Gen   Length          Fitness   Length          Fitness      OOB Fitness  Time Left\n",
    "   {e}    38.13      458.57768152        5      0.320665972828   0.556763539274      1.31m\n",
)


def read(table: tuple[str, str], amount: Amount | None, rows: int = 12) -> Iterator[Progress]:
    """What is said of 12 of 40 rows, one every 10 s after 5 s of imports."""
    reader = Reader(amount)
    head, row = table
    reader.feed(head.encode(), 5.0)
    for n in range(1, rows + 1):
        at = 5.0 + 10.0 * n
        reader.feed(row.format(n=n, e=n - 1, h=100 * n).encode(), at)
        found = reader.progress(at)
        if found is not None:
            yield found


@pytest.mark.parametrize(
    ("table", "command"),
    [
        (SKORCH, "--epochs 40"),
        (WITH_CHECKPOINTS, "--max_epochs 40"),
        (CHAINER, "--epoch 40"),
        (COMMAS, "--epochs 40"),
        (SPACY, "--training.max_steps 4000"),
        (BAYES, "--n_iter 40"),
        (DEAP, "--ngen 40"),
        (GPLEARN, "--generations 40"),
    ],
    ids=["skorch", "checkpoints", "chainer", "commas", "spacy", "bayes", "deap", "gplearn"],
)
def test_a_table_says_how_long_it_runs(table: tuple[str, str], command: str) -> None:
    amount = of_command(["python", "train.py", *command.split()])
    *_, found = read(table, amount)
    assert found.source == "table"
    assert found.total_s == pytest.approx(405.0, rel=0.05)
    assert found.low_s <= 405.0 <= found.high_s
    assert not list(read(table, None))  # without the command it is not known


def test_rows_of_another_table_are_not_counted() -> None:
    """A report of classes, printed after each epoch, has rows that begin with a number, too."""
    report = (
        "              precision    recall  f1-score   support\n"
        "           7       0.98      0.97      0.97       980\n"
        "           9       0.97      0.99      0.98      1135\n"
    )
    *_, found = read((SKORCH[0], SKORCH[0] + SKORCH[1] + report), Amount(40))
    assert found.done == 12
    assert other(report.splitlines()[0])
    assert not other(SKORCH[0].splitlines()[1])


def test_rows_without_a_heading_are_not_read() -> None:
    assert not list(read(("", SKORCH[1]), Amount(40)))


@pytest.mark.parametrize(
    "line",
    [
        "epoch",
        "epoch 3 loss 0.3012",
        "Epochs and steps are counted over time by the trainer",
        "step  by  step",
        "epoch  " * 200,
        "1  epoch  loss",
        "-----  ------",
        "name  epoch  loss",
    ],
)
def test_what_heads_no_table(line: str) -> None:
    assert heading(line) is None


def test_a_row_is_one_with_figures_and_a_whole_number() -> None:
    columns = heading("epoch  train_loss  valid_loss  time")
    assert columns == Columns(epoch=0, step=None, of=4, sure=True)
    assert columns.row("7  0.30  0.40  00:14") == [("epoch", 7.0)]
    for line in ("", "7", "x  0.30  0.40  00:14", "7  8  9  10", "-7 0.3 0.4 0.5"):
        assert columns.row(line) == []


def test_a_column_of_batches_that_begins_again_counts_within_an_epoch() -> None:
    reader = Reader(Amount(epochs=10))
    reader.feed(b"epoch  batch  loss  acc\n", 5.0)
    at, found = 5.0, None
    for epoch in range(2):
        for batch in range(1, 11):
            at += 5.0
            reader.feed(f"{epoch}      {batch}      0.31  0.52\n".encode(), at)
            found = reader.progress(at) or found
    assert found is not None
    assert found.total_s == pytest.approx(5.0 + 500.0, rel=0.25)


def test_a_row_at_the_very_beginning_divides_by_nothing() -> None:
    reader = Reader(Amount(epochs=10))
    reader.feed(b"epoch,train_loss,val_loss\n1,0.3012,0.4012\n", 0.0)
    reader.progress(0.0)


def test_a_table_says_what_share_is_done_and_what_is_left() -> None:
    columns = heading("    iter    done%   elapsed   remaining      loss")
    assert columns is not None
    assert columns.row("     120    24.50  0:12:03    1:02:03   4.12e-01") == [
        ("step", 120.0),
        ("percent", 24.5),
        ("eta", 3723.0),
    ]
    assert columns.row("     120    24.50  0:12:03          -   4.12e-01") == [
        ("step", 120.0),
        ("percent", 24.5),
    ]
