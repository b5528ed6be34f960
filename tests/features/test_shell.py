"""How much a command asks for: behind shells, launchers and loops, and by the files it names."""

from __future__ import annotations

import shlex
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest

from features.amounts import Amount, Work, of_command
from features.asked import amount_of, of_files
from features.shell import LONGEST, MOST_CHARACTERS, MOST_COMMANDS, of_script, one_of

COMMANDS = [
    ("bash -lc 'conda activate x && torchrun train.py --max_steps=12000'", Amount(None, 12_000)),
    ("srun -N2 bash -c 'cd /a; export N=90; python t.py --epochs $N'", Amount(90)),
    ("bash -euo pipefail -c 'module load cuda; python t.py --epochs 3 | tee log'", Amount(3)),
    ("sh -c 'python t.py --epochs ${EPOCHS:-7}'", Amount(7)),
    ("docker run --gpus all img bash -c 'python t.py --epochs 3'", Amount(3)),
    ("conda run -n x bash -c \"bash -c 'python t.py --epochs 3'\"", Amount(3)),
    ("bash -c 'python pre.py && python t.py --epochs 3 && python eval.py'", Amount(3)),
    ("bash -c 'python t.py \\\n --epochs 3'", Amount(3)),
    ("bash -c 'X=$(date +%s); python t.py --epochs 3 --name $X'", Amount(3)),
    ("uv run accelerate launch t.py --num_train_epochs 3", Amount(3)),
    ("bash -c 'for s in 1 2 3; do python t.py --epochs 5 --seed $s; done'", Amount(5, runs=3)),
    ("bash -c 'for s in $(seq 2 5); do python t.py --epochs 5; done'", Amount(5, runs=4)),
    ("bash -c 'for i in {1..4}; do python t.py --epochs 3; done'", Amount(3, runs=4)),
    ("bash -c 'for f in *.yaml; do python t.py --epochs 5; done'", Amount(5, runs=inf)),
    ("bash -c 'while true; do python t.py --epochs 3; done'", Amount(3, runs=inf)),
    ("bash -c 'for e in 3 9; do python t.py --epochs $e; done'", Amount(runs=2)),
    ("bash -c 'python t.py --epochs 3; python t.py --epochs 5'", Amount(runs=2)),
    ("python train.py -m trainer.max_epochs=10,20,50", Amount(runs=3)),
    ("python train.py --multirun max_epochs=10 lr=1,2 seed=1,2,3", Amount(10, runs=6)),
    ("python t.py --epochs 1,000", Amount(1000)),
    ("python -m pack.train --epochs 1,000", Amount(1000)),
    ("python cv.py --n_folds 5 --epochs 10", Amount(10, runs=5)),
    ("python tune.py --n-trials 50 --epochs 10", Amount(10, runs=50)),
    ("python t.py --seeds 0 1 2 --epochs 4", Amount(4, runs=3)),
    ("python t.py --seeds 0,1 --epochs 4", Amount(4, runs=2)),
    ("python t.py --fold 3 --epochs 4", Amount(4)),
    ("python t.py --epochs 100 --patience 5", Amount(100, patience=5)),
    ("python t.py --epochs 100 --early_stopping --lr 1", Amount(100, patience=0)),
    ("lgb.py --n_estimators 10000 --early_stopping_rounds 50", Amount(None, 10_000, 50)),
    ("python ppo.py --n_epochs 10 --total-timesteps 1000000", Amount(None, 1_000_000)),
    ("python train.py --algo ppo --env X -n 1000000", Amount(None, 1_000_000)),
    ("nnUNetv2_train 1 3d_fullres 0", Amount(1000)),
    ("nnUNetv2_train 1 3d_fullres 0 -tr nnUNetTrainer_250epochs", Amount(250)),
    ("bash -c 'for i in 1 2 3; do echo $i; done'", Amount()),
    ("bash -c 'for i in 1 2; do echo $i; done; python t.py --epochs 3'", Amount(3)),
    ("bash -c 'echo '", Amount()),
    ("python t.py --scheduler_patience 5 --epochs 9", Amount(9)),
]


@pytest.mark.parametrize(("command", "amount"), COMMANDS)
def test_what_a_command_asks_for(command: str, amount: Amount) -> None:
    found = of_command(shlex.split(command))
    assert found == amount
    work = Work.of(shlex.split(command))  # at submission the same
    several = command.startswith("bash") and amount.runs  # together they are no run of that size
    assert (work and work.amount) == (None if several else amount.epochs or amount.steps)


def test_a_shell_makes_no_other_script() -> None:
    plain = Work.of(["python", "train.py", "--epochs", "3"])
    assert Work.of(["bash", "-lc", "cd /a && module load x; python train.py --epochs 3"]) == plain


FILES = {
    "c.toml": "[training]\nsteps = 3000\n",
    "c.json": '{"trainer": {"max_epochs": 12}}',
    "c.yaml": "train:\n  epochs: 30\n  batch_size: 8\n",
    "run.sh": "#!/bin/bash\nN=$2\nfor s in 1 2; do\n  python t.py --epochs $N\ndone\n",
    "more.sh": "cd sub\npython t.py --config d.yaml\n",
    "sub/d.yaml": "epochs: 7\n",
    "conf/big.yaml": "defaults: [trainer: short]\nepochs: 5\n",
    "conf/trainer/long.yaml": "max_epochs: 200\n",
    "bad.yaml": "a: [",
    "bad.toml": "= 3",
    "self.sh": "bash self.sh\n",
    "binary.yaml": "\0\1",
}


@pytest.mark.parametrize(
    ("command", "amount"),
    [
        ("torchrun train.py --job.config_file c.toml", Amount(None, 3000)),
        ("python t.py --config=c.json", Amount(12)),
        ("bash -c 'python t.py @c.yaml'", Amount(30)),
        ("python t.py c.yaml --epochs 2", Amount(2)),
        ("bash run.sh x 40", Amount(40, runs=2)),
        ("sbatch more.sh", Amount(7)),
        ("python t.py --config-name big", Amount(5)),
        ("python t.py --config-name big trainer=long", Amount(200)),
        ("python t.py bad.yaml bad.toml binary.yaml none.yaml", Amount()),
        ("bash self.sh", Amount()),
    ],
)
def test_what_the_files_ask_for_that_a_command_names(
    command: str, amount: Amount, tmp_path: Path
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    assert amount_of(shlex.split(command), tmp_path) == amount


def test_a_batch_size_is_read_beside_it(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(FILES["c.yaml"])
    assert of_files(["python", "t.py", "c.yaml"], tmp_path) == {"epochs": 30, "batch_size": 8}


@pytest.mark.parametrize(
    "unit",
    [
        "A=$A$A;",
        "'\n",
        "$(",
        "{1..",
        "${A:-",
        "for a in b;do ",
        "bash -c ",
        "\\\n",
        "<<E\n",
    ],
)
def test_whatever_is_in_a_script_little_comes_of_it(unit: str) -> None:
    text = unit * 20_000 + "; python t.py $A"
    for found in (of_script(text), one_of(["bash", "-c", text])):
        assert len(found) <= 2 * MOST_COMMANDS
        assert all(len(word) <= MOST_CHARACTERS for one in found for word in one.words)


def test_variables_that_grow_in_each_other_are_cut() -> None:
    found = of_script("A=x\n" + "A=$A$A\n" * 40 + "run $A\n")
    assert LONGEST / 2 < len(found[-1].words[1]) <= LONGEST


def test_shells_within_shells_do_not_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted are the lines that are split: without a budget sixteen hundred."""
    split: list[str] = []

    def counted(line: str, **options: bool) -> shlex.shlex:
        split.append(line)
        return shlex.shlex(line, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("features.shell.shlex", SimpleNamespace(shlex=counted))
    line = 'sh -c "$X";' * 40
    one_of(["bash", "-c", f"X='{line}'; sh -c \"$X\"; python t.py"])
    assert 0 < len(split) <= MOST_COMMANDS
