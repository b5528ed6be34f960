"""How much a command asks for: behind shells, launchers and loops, and by the files it names."""

from __future__ import annotations

import shlex
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest

from features.amounts import Amount
from features.asked import amount_of, of_files
from features.commands import of_command, unit_of, work_of
from features.shell import (
    LONGEST,
    MOST_CHARACTERS,
    MOST_COMMANDS,
    _set_apart,
    of_script,
    one_of,
)

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
    ("python t.py --train.num_epochs=4 --eval.num_steps=100", Amount(4)),
    ("python t.py trainer.max_epochs=4 lr_scheduler.total_steps=100", Amount(4)),
    ("python t.py --epochs 50 --early-stop 5", Amount(50, patience=5)),
    ("python t.py --max_num_epochs 50", Amount(50)),
    ("sbatch -p a --wrap 'python t.py --epochs 4'", Amount(4)),
    ("sbatch --wrap='cd /a && python t.py --epochs 4'", Amount(4)),
]


# launchers, options of trainers, sweeps, shells; what cannot be known is unknown, not wrong
LAUNCHED = [
    ("parallel python t.py --epochs 3 ::: 1 2 3", Amount(3, runs=3)),
    ("xargs -n 1 python t.py --epochs 3", Amount(3)),
    ("torchrun --standalone --nproc_per_node=8 train.py --epochs 30", Amount(30)),
    (
        "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d -m pack.train --max_steps 5000",
        Amount(None, 5_000),
    ),
    ("python -m torch.distributed.launch --nproc_per_node=4 train.py --epochs=12", Amount(12)),
    ("python -m torch.distributed.run --nproc_per_node=4 train.py --epochs=12", Amount(12)),
    (
        "accelerate launch --num_processes 8 --mixed_precision bf16 train.py --num_train_epochs 3",
        Amount(3),
    ),
    (
        "accelerate launch --config_file acc.yaml train_text_to_image.py --max_train_steps=15000",
        Amount(None, 15_000),
    ),
    ("deepspeed --num_gpus 8 train.py --deepspeed ds.json --num_train_epochs 2", Amount(2)),
    (
        "deepspeed --hostfile h --master_port 2950 pretrain.py --train-iters 300000",
        Amount(None, 300_000),
    ),
    ("srun --ntasks=8 --gpus-per-task=1 python train.py --max_epochs 40", Amount(40)),
    (
        "srun -N 4 -n 32 --mpi=pmix singularity exec --nv img.sif python main.py --epochs 90",
        Amount(90),
    ),
    ("uv run --with torch train.py --epochs 7", Amount(7)),
    ("poetry run python -m app.train --num-epochs 7", Amount(7)),
    ("conda run -n env --no-capture-output python train.py --epochs 7", Amount(7)),
    ("micromamba run -n env python train.py --epochs 7", Amount(7)),
    ("pipenv run python train.py --n_epochs 7", Amount(7)),
    ("pixi run python train.py --epochs 7", Amount(7)),
    ("mpirun -np 16 -H a:8,b:8 -x PATH python train.py --epochs 55", Amount(55)),
    ("horovodrun -np 4 python train.py --epochs 55", Amount(55)),
    ("numactl --cpunodebind=0 python train.py --epochs 3", Amount(3)),
    ("nohup python train.py --epochs 3", Amount(3)),
    ("time python train.py --epochs 3", Amount(3)),
    ("env CUDA_VISIBLE_DEVICES=0 WANDB_MODE=offline python train.py --epochs 3", Amount(3)),
    ("stdbuf -oL python -u train.py --epochs 3", Amount(3)),
    ("timeout 3600 python train.py --epochs 3", Amount(3)),
    ("nsys profile -o out python train.py --epochs 3", Amount(3)),
    ("apptainer run --nv img.sif train.py --max-steps 100", Amount(None, 100)),
    ("docker run --rm --gpus all -v /a:/b img python train.py --epochs 3", Amount(3)),
    ("ray job submit -- python train.py --num_epochs 3", Amount(3)),
    ("python -m accelerate.commands.launch train.py --num_train_epochs 3", Amount(3)),
    ("tune run --nproc_per_node 4 full_finetune_distributed --config a epochs=2", Amount(2)),
    ("composer -n 8 train.py a.yaml max_duration=3ep", Amount(3)),
    ("composer train.py a.yaml max_duration=5000ba", Amount(None, 5_000)),
    ("litgpt finetune lora --train.epochs 4 --checkpoint_dir a", Amount(4)),
    ("lightning run model --devices=2 train.py --epochs 4", Amount(4)),
    ("fabric run --devices=2 train.py --epochs 4", Amount(4)),
    ("yolo detect train data=coco.yaml model=yolo11n.pt epochs=100 imgsz=640", Amount(100)),
    ("yolo train data=a.yaml epochs=300 patience=50", Amount(300, patience=50)),
    ("fairseq-train data --max-epoch 50 --max-update 0", Amount(50)),
    (
        "fairseq-hydra-train optimization.max_update=100000 --config-dir c --config-name d",
        Amount(None, 100_000),
    ),
    ("onmt_train -config a.yaml -train_steps 100000", Amount(None, 100_000)),
    ("python -m rl_zoo3.train --algo sac --env HalfCheetah-v4 -n 3000000", Amount(None, 3_000_000)),
    ("python -m t5x.train --gin_file=a.gin --gin.TRAIN_STEPS=1000", Amount(None, 1_000)),
    ("python3 MaxText/train.py MaxText/configs/base.yml run_name=a steps=500", Amount(None, 500)),
    ("python -m swift.cli.sft --model a --num_train_epochs 1", Amount(1)),
    ("llamafactory-cli train --num_train_epochs 3.0 --stage sft", Amount(3)),
    (
        "python pretrain_gpt.py --train-iters 500000 --lr-decay-iters 430000 --eval-iters 10",
        Amount(None, 500_000),
    ),
    (
        "python pretrain_gpt.py --train-samples 1000000 --global-batch-size 100",
        Amount(None, 10_000),
    ),
    ("python pretrain_gpt.py --train-samples 1000000", Amount()),
    ("python train.py --max_steps -1 --num_train_epochs 3", Amount(3)),
    ("python train.py --max_epochs -1 --max_steps 1000", Amount(None, 1_000)),
    ("python train.py --epochs=1e2", Amount(100)),
    ("python train.py --steps 10k", Amount(None, 10_000)),
    ("python train.py --steps 1.5M", Amount(None, 1_500_000)),
    ("python train.py --epochs '20'", Amount(20)),
    ("python train.py --epochs 10 --epochs 20", Amount(20)),
    ("python train.py -e 20", Amount()),
    ("python train.py -E 20 --lr 0.1", Amount()),
    ("python train.py --warmup_epochs 5 --epochs 90", Amount(90)),
    ("python train.py --save_every_epochs 5", Amount()),
    ("python train.py --eval_steps 500 --save_steps 500 --logging_steps 10", Amount()),
    (
        "python train.py --warmup_steps 500 --gradient_accumulation_steps 4 --max_steps 900",
        Amount(None, 900),
    ),
    ("python eval.py --steps 50 --sampler ddim", Amount(None, 50)),
    ("python train.py --no-epochs", Amount()),
    ("python train.py --start_epoch 10 --epochs 90", Amount(90)),
    ("python train.py --early-stopping-patience 3 --epochs 50", Amount(50, patience=3)),
    ("python train.py --epochs 50 --no-early-stopping", Amount(50)),
    ("python train.py --epochs 50 --early_stop 0", Amount(50)),
    (
        "python train.py optim.epochs=50 +trainer.callbacks.early_stopping.patience=4",
        Amount(50, patience=4),
    ),
    ("python train.py trainer.max_epochs=50 model=big seed=3", Amount(50)),
    ("python train.py ++trainer.max_steps=2e5", Amount(None, 200_000)),
    ("python train.py -m seed=1,2,3,4 trainer.max_epochs=5", Amount(5, runs=4)),
    ("python train.py --multirun trainer.max_epochs=5 seed='range(0,5)'", Amount(5, runs=5)),
    (
        "python train.py hydra.sweeper.n_trials=30 --multirun trainer.max_epochs=5",
        Amount(5, runs=30),
    ),
    ("wandb agent org/proj/abc123", Amount(runs=inf)),
    ("wandb agent --count 10 org/proj/abc123", Amount(runs=10)),
    ("bash -c 'python train.py --epochs 3 > log 2>&1'", Amount(3)),
    ("bash -c 'set -e; source venv/bin/activate; python train.py --epochs 3'", Amount(3)),
    ("bash -c 'if [ -f a ]; then python train.py --epochs 3; fi'", Amount(3)),
    ("bash -c '[ -d out ] || mkdir out; python train.py --epochs 3 && echo done'", Amount(3)),
    ("bash -c 'python t.py --epochs 3 || python t.py --resume --epochs 3'", Amount(3)),
    ("bash -c 'python t.py --epochs 3 --resume || python t.py --epochs 5'", Amount()),
    ("bash -c 'test -f done || python t.py --epochs 3'", Amount(3)),
    ("bash -c 'python t.py --epochs 3 ||\n  python t.py --epochs 3'", Amount(3)),
    (
        "bash -c 'if [ -f a ]; then python t.py --epochs 3; else python t.py --epochs 3; fi'",
        Amount(3),
    ),
    (
        "bash -c 'if a; then python t.py --epochs 3; elif b; then python t.py --epochs 3; fi'",
        Amount(3),
    ),
    ("bash -c 'if a; then python t.py --epochs 3; fi; python t.py --epochs 3'", Amount(3, runs=2)),
    (
        "bash -c 'if a; then b; else c; fi; python t.py --epochs 3; python t.py --epochs 3'",
        Amount(3, runs=2),
    ),
    ("bash -c 'if a; then python t.py --epochs 3; else python t.py --epochs 5; fi'", Amount()),
    ("bash -c 'EPOCHS=9 python train.py --epochs $EPOCHS'", Amount()),
    ("bash -c 'EPOCHS=9; python train.py --epochs $EPOCHS'", Amount(9)),
    ("bash -c 'export EPOCHS=9 && python train.py --epochs=${EPOCHS}'", Amount(9)),
    ("bash -c 'python train.py --epochs $((3*4))'", Amount(12)),
    ("bash -c 'python train.py --epochs $1' x 8", Amount(8)),
    ("bash -c 'python train.py \"$@\"' x --epochs 8", Amount(8)),
    ("bash -c 'ARGS=\"--epochs 8 --lr 1\"; python train.py $ARGS'", Amount(8)),
    ("bash -c 'ARGS=(--epochs 8 --lr 1); python train.py \"${ARGS[@]}\"'", Amount(8)),
    (
        "bash -c 'for lr in 0.1 0.01; do python train.py --lr $lr --epochs 6; done'",
        Amount(6, runs=2),
    ),
    (
        "bash -c 'for a in 1 2; do for s in 1 2 3; do python t.py --epochs 6; done; done'",
        Amount(6, runs=6),
    ),
    ("bash -c 'for ((i=0;i<5;i++)); do python train.py --epochs 6; done'", Amount(6, runs=5)),
    ("bash -c 'for ((i=1; i<=5; i++)); do python train.py --epochs 6; done'", Amount(6, runs=5)),
    ("bash -c 'seq 3 | xargs -I{} python train.py --epochs 6 --seed {}'", Amount(6, runs=3)),
    (
        "bash -c 'i=0; while [ $i -lt 3 ]; do python train.py --epochs 6; i=$((i+1)); done'",
        Amount(6, runs=3),
    ),
    ("bash -c 'python prep.py --steps 10; python train.py --epochs 6'", Amount(runs=2)),
    (
        "bash -c 'python train.py --epochs 6 &\n python train.py --epochs 6 &\n wait'",
        Amount(6),  # side by side
    ),
    ("bash -c 'sleep 10; python train.py --epochs 6'", Amount(6)),
    ("bash -c 'tar xf a.tar -C /tmp && python train.py --epochs 6 --data /tmp/a'", Amount(6)),
    ("bash -c \"python train.py --epochs 6 --name 'a b; c'\"", Amount(6)),
    ("sh -c 'exec python train.py --epochs 6'", Amount(6)),
    ("zsh -lc 'conda activate a; python train.py --epochs 6'", Amount(6)),
    ("bash -c 'parallel python train.py --epochs 6 --seed {} ::: 1 2 3'", Amount(6, runs=3)),
    ("bash -c 'python -c \"print(1)\"; python train.py --epochs 6'", Amount(6)),
    ("bash -c 'python train.py --epochs 6 # --epochs 9'", Amount(6)),
    ("python train.py --n_epochs 100 --epoch_count 50", Amount(100)),
    ("python train.py --epoch_count 50 --n_epochs 100", Amount(100)),
    ("bash -c 'true'", Amount()),
    ("bash train.sh", Amount()),
    ("python train.py", Amount()),
    ("sleep 45", Amount()),
    ("jupyter nbconvert --execute a.ipynb", Amount()),
]


@pytest.mark.parametrize(("command", "amount"), LAUNCHED)
def test_what_a_command_asks_for_behind_launchers_sweeps_and_shells(
    command: str, amount: Amount
) -> None:
    assert of_command(shlex.split(command)) == amount


@pytest.mark.parametrize(("command", "amount"), COMMANDS)
def test_what_a_command_asks_for(command: str, amount: Amount) -> None:
    found = of_command(shlex.split(command))
    assert found == amount
    work = work_of(shlex.split(command))  # at submission the same
    several = command.startswith("bash") and amount.runs  # together they are no run of that size
    assert (work and work.amount) == (None if several else amount.epochs or amount.steps)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("n_train_epoch", "epochs"), ("epoch_num_n", "epochs"), ("train_epoch", None),
        ("train_iter_num", "steps"), ("train_number_iter", "steps"), ("n_iter_num", None),
        ("iter_num_count", None), ("train_iter_lr", None),
    ],
)  # fmt: skip
def test_a_name_counts_to_an_end_where_its_parts_say_so(name: str, unit: str | None) -> None:
    assert unit_of(name) == unit


def test_a_shell_makes_no_other_script() -> None:
    plain = work_of(["python", "train.py", "--epochs", "3"])
    assert work_of(["bash", "-lc", "cd /a && module load x; python train.py --epochs 3"]) == plain


FILES = {
    "c.toml": "[training]\nsteps = 3000\n",
    "c.json": '{"trainer": {"max_epochs": 12}}',
    "c.yaml": "train:\n  epochs: 30\n  batch_size: 8\n",
    "run.sh": "#!/bin/bash\nN=$2\nfor s in 1 2; do\n  python t.py --epochs $N\ndone\n",
    "more.sh": "cd sub\npython t.py --config d.yaml\n",
    "sub/d.yaml": "epochs: 7\n",
    "conf/big.yaml": "defaults: [trainer: short]\nepochs: 5\n",
    "conf/trainer/long.yaml": "max_epochs: 200\n",
    "c.py": "def get():\n  config.steps = 1000\n  config.eval.steps = 10\n",
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
        ("python t.py --config c.py", Amount(None, 1000)),
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


def test_what_stands_behind_a_line_too_long_to_read_is_no_alternative_to_what_is_before() -> None:
    long = "x" * (LONGEST + 1)
    found = {one.words[0]: one.otherwise for one in of_script(f"a ||\n{long}\nb\n")}
    assert found == {"a": False, "b": False}
    assert [one.otherwise for one in of_script("a ||\nb\n")] == [False, True]


def test_variables_that_grow_in_each_other_are_cut() -> None:
    found = of_script("A=x\n" + "A=$A$A\n" * 40 + "run $A\n")
    assert LONGEST / 2 < len(found[-1].words[1]) <= LONGEST


def test_what_is_known_is_copied_once_for_many_parentheses() -> None:
    """A copy for each would be gigabytes for a script of 40,000 characters."""
    known, apart = {"A": "1"}, list[tuple[int, dict[str, str]]]()
    _set_apart("((((", known, apart, depth=0)
    known["A"] = "2"
    _set_apart(")(((", known, apart, depth=0)
    assert known == {"A": "1"}
    assert len(apart) == 6
    assert len({id(of) for _, of in apart}) == 1
    known["A"] = "3"
    _set_apart("))))))", known, apart, depth=0)
    assert (known, apart) == ({"A": "1"}, [])


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


def test_a_word_of_the_shell_that_is_handed_to_a_command_steers_nothing() -> None:
    for line, otherwise in (("echo else", False), ("else b", True)):
        (*_, last) = of_script(f"if a; then b; {line}; python t.py; fi")
        assert (last.words, last.otherwise) == (["python", "t.py"], otherwise)


@pytest.mark.parametrize(
    ("script", "amount"),
    [
        ("E=5; if a; then E=90; fi; python t.py --epochs $E", Amount()),
        ("E=5; if a; then E=90; fi; E=7; python t.py --epochs $E", Amount(7)),
        ("if a; then E=90; else E=5; fi; python t.py --epochs ${E:-3}", Amount()),
        ("if a; then E=5; else E=5; fi; python t.py --epochs $E", Amount(5)),
        ("if a; then E=5; python t.py --epochs $E; else E=5; fi", Amount(5)),
        ("if a; then :; elif b; then E=9; fi; python t.py --epochs $E", Amount(9)),
        ('E=5; [ -n "$LONG" ] && E=50; python t.py --epochs $E', Amount()),
        ("E=5; cd a && E=50; python t.py --epochs $E", Amount(50)),
        ("A=b\ncase $A in\na) E=1 ;;\nb|c) E=2 ;;\nesac\npython t.py --epochs $E", Amount(2)),
        ("A=z\ncase $A in\na) E=1 ;;\n*) E=3 ;;\nesac\npython t.py --epochs $E", Amount(3)),
        ("case $A in\na) E=1 ;;\nb) E=2 ;;\nesac\npython t.py --epochs $E", Amount()),
        ("case $A in a) E=4;; *) E=4;; esac; python t.py --epochs $E", Amount(4)),
        ("A=x; case $A in a) python t.py --epochs 9;; esac; python t.py --epochs 4", Amount(4)),
        ("case $A in a) python t.py --epochs 9;; b) python t.py --epochs 8;; esac", Amount()),
        ("if a; then case $A in a) E=4;; esac; fi; python t.py --epochs $E", Amount(4)),
        ("esac; fi; done; python t.py --epochs 4", Amount(4)),
        ("N=7; N=$((N * 2 + 1)); python t.py --epochs $N", Amount(15)),
        ("python t.py --epochs $((17 / 4 % 3 - 0 + 2))", Amount(3)),
        ("python t.py --epochs $((4 / 0))", Amount()),
        ("python t.py --epochs $((N + 1))", Amount()),
        ("L=(a b); L+=(c); for x in ${L[@]}; do python t.py --epochs 3; done", Amount(3, runs=3)),
        ("A='--epochs 3'; if a; then A=\"$A --lr 1\"; fi; python t.py $A", Amount(3)),
        ("L=(--epochs 3); [ $R ] && L+=(--lr 1); python t.py ${L[@]}", Amount(3)),
        ("L=(4 6 8); python t.py --epochs ${L[1]}", Amount(6)),
        ("L=(4 6 8); python t.py --epochs ${L[$I]}", Amount()),
        ("L=(4 6 8); python t.py --epochs ${L[7]}", Amount()),
        ('C=(python t.py --epochs 3); "${C[@]}"', Amount(3)),
        ("f() {\npython t.py --epochs $1\n}\nf 3\nf 3", Amount(3, runs=2)),
        ("function f {\npython t.py --epochs ${1:-8}\n}\nf", Amount(8)),
        ("f() { f; python t.py --epochs 3; }\nf", Amount(3, runs=3)),  # so deep it is followed
        ("f() {\npython t.py --epochs 3", Amount(3)),
        (
            "f() {\nwhile [ $# -gt 0 ]; do\n"
            "case $1 in --lr) shift 2;; -e) E=$2; shift 2;; esac; done\n}\n"
            "E=3; f --lr 1 -e 7; python t.py --epochs $E",
            Amount(),
        ),
        ("A=a; case $A in a) E=1;; *) E=3;; esac; python t.py --epochs $E", Amount(1)),
        ("E=3; f() { E=5; }\nf; python t.py --epochs $E", Amount(5)),
        ("E=3\nf() {\nlocal E=5\n}\nf\npython t.py --epochs $E", Amount(3)),
        ("E=3\nf() {\nE=$(cat n)\n}\nf\npython t.py --epochs $E", Amount()),
        ("N=3; for i in $(seq 1 $N); do python t.py --epochs 4; done", Amount(4, runs=3)),
        ("until python t.py --epochs 4; do sleep 1; done", Amount(4)),
        ("while python t.py --epochs 4; do sleep 1; done", Amount()),
        ("ssh -p 22 a 'cd x; python t.py --epochs 4'", Amount(4)),
        ("ssh a", Amount()),
        ("su u -c 'python t.py --epochs 4'", Amount(4)),
        ("flock /tmp/l -c 'python t.py --epochs 4'", Amount(4)),
        ("runuser u --command 'python t.py --epochs 4' -s /bin/sh", Amount(4)),
        ("su u", Amount()),
        ("echo python t.py --epochs 4", Amount()),
    ],
)
def test_what_a_script_decides_is_known_only_where_it_is_decided(
    script: str, amount: Amount
) -> None:
    assert of_command(["bash", "-c", script]) == amount


PROGRAMS = [
    ("for epoch in range(30): ...", "python t.py", Amount(30)),
    (
        "for epoch in trange(1, 1 + a.nb): ...\np.add_argument('--nb', default=5)",
        "python t.py",
        Amount(5),
    ),
    (
        "for epoch in trange(1, 1 + a.nb): ...\np.add_argument('--nb', default=5)",
        "python t.py --nb 8",
        Amount(8),
    ),
    ("p.add_argument('--epochs', default=12)", "python t.py", Amount(12)),
    ("p.add_argument('--epochs', default=12)", "python t.py --epochs 3", Amount(3)),
    ("p.add_argument('--epochs', default=12)", "python t.py --eval-only", Amount()),
    (
        "p.add_argument('--epochs', default=12)\np.add_argument('--steps', default=9)",
        "python t.py",
        Amount(),
    ),
    ("Trainer(max_epochs=4)\nTrainer(max_epochs=9)", "python t.py", Amount()),
    (
        "Trainer(max_epochs=N)\nN = 4\nEarlyStopping(patience=3)",
        "python t.py",
        Amount(4, patience=3),
    ),
    ("HfArgumentParser((A, TrainingArguments))", "python t.py --max_steps 5", Amount(None, 5)),
    ("HfArgumentParser((A, TrainingArguments))", "python t.py", Amount(3)),
    ("for fold in range(5):\n  for epoch in range(2): ...", "python t.py", Amount(2, runs=5)),
    ("for seed in seeds():\n  for epoch in range(2): ...", "python t.py", Amount(2, runs=inf)),
    ("while step < m: ...\nm = 10_000", "python -m t", Amount(None, 10_000)),
    ("while True:\n  if step >= 70: break", "python -m t", Amount(None, 70)),
    (
        "@click.option('--max-steps', default=500)\ndef main(max_steps): ...",
        "python t.py",
        Amount(None, 500),
    ),
    ("def main(epochs=7): ...\nfire.Fire(main)", "python t.py", Amount(7)),
    ("@dataclass\nclass A:\n  epochs: int = field(default=9)", "python t.py", Amount(9)),
    ("class A:\n  epochs: int = 7\nfire.Fire(A)", "python t.py", Amount(7)),
    ("class A:\n  epochs = 7\nfire.Fire(A)", "python t.py", Amount()),  # no option of it
    ("@ex.config\ndef c():\n  epochs = 7", "python t.py", Amount(7)),
    ("@ex.config\ndef c():\n  if x:\n    pass\n  epochs = 7", "python t.py", Amount(7)),
    ("a = b + b\nb = a + a\nfor epoch in range(a): ...", "python t.py", Amount()),
    ("p.add_argument('-e', '--epochs', default=12)", "python t.py -e 4", Amount(4)),
    (
        "p.add_argument('-e', '--epochs', default=12)\nfor epoch in range(a.epochs): ...",
        "python t.py -e 4",
        Amount(4),
    ),
    (
        "p.add_argument('-n', dest='epochs', default=12)\nfor epoch in range(a.epochs): ...",
        "python t.py -n 4",
        Amount(4),
    ),
    (
        "c = {'epochs': 8}\nc['epochs'] = 2\nfor epoch in range(c['epochs']): ...",
        "python t.py",
        Amount(),
    ),
    ("for epoch in range(n // 2 - 1): ...\nn = 8", "python t.py", Amount(3)),
    (
        "for fold in range(5):\n  for epoch in range(a.epochs): ...",
        "python t.py --epochs 3",
        Amount(3, runs=5),
    ),
    (
        "for fold in range(5):\n  for epoch in range(a.epochs): ...",
        "bash -c 'for s in 1 2; do python t.py --epochs 3; done'",
        Amount(3, runs=10),
    ),
    ("this is no program", "python t.py", Amount()),
    (
        "for epoch in range(30): ...",
        "bash -c 'for s in 1 2; do python t.py --seed $s; done'",
        Amount(30, runs=2),
    ),
]


@pytest.mark.parametrize("commands", [("t.py", "t.py o.yaml"), ("t.py o.yaml", "t.py")])
def test_what_two_runs_of_a_program_ask_for_is_the_same_in_either_order(
    commands: tuple[str, str], tmp_path: Path
) -> None:
    """One of them is given settings; the other takes those that the program names by itself."""
    (tmp_path / "t.py").write_text("import yaml\nconfig = yaml.safe_load(open('d.yaml'))\n")
    (tmp_path / "d.yaml").write_text("epochs: 5\n")
    (tmp_path / "o.yaml").write_text("lr: 1\n")
    script = "; ".join(f"python {one}" for one in commands)
    assert amount_of(["bash", "-c", script], tmp_path) == Amount(5, runs=2)


@pytest.mark.parametrize(("program", "command", "amount"), PROGRAMS)
def test_a_program_says_by_itself_what_its_command_does_not(
    program: str, command: str, amount: Amount, tmp_path: Path
) -> None:
    (tmp_path / "t.py").write_text(program)
    assert amount_of(shlex.split(command), tmp_path) == amount


BESIDE = {
    "set.env": "N=26\n",
    "base.py": "runner = dict(type='I', max_iters=90)\ntest_cfg = dict(max_iters=1)\n",
    "mm.py": "_base_ = ['./base.py']\nrunner = dict(max_iters=160)\n",
    "mm2.py": "_base_ = './base.py'\nmodel = dict(depth=50)\n",
    "pyproject.toml": "[tool.poe.tasks]\ntrain = 'python t.py --epochs 23'\n",
    "compose.yaml": "services: {b: {command: python t.py --epochs 19}}\n",
}
SCRIPTS = [
    ("N=4\ncat > a.yaml <<EOF\nepochs: $N\nEOF\npython t.py --config a.yaml", Amount(4)),
    ("bash <<'E'\npython t.py --epochs 5\nE", Amount(5)),
    ("sbatch <<E\npython t.py --epochs 5\nE", Amount()),
    ("for e in 1 2; do sbatch --wrap 'python t.py --epochs 5'; done", Amount()),
    ("cat <<< word\npython t.py --epochs 2", Amount(2)),
    ("flock -n l python t.py -c a.yaml --epochs 3", Amount(3)),
    ("flock l -c 'python t.py --epochs 3'", Amount(3)),
    ("tmux new -d -s a 'python t.py --epochs 3'", Amount(3)),
    ("tmux send-keys -t a 'python t.py --epochs 3' C-m", Amount(3)),
    (
        "A=('a b' 'c d')\nfor x in \"${A[@]}\"; do python t.py $x --epochs 3; done",
        Amount(3, runs=2),
    ),
    ("for i in 1 2 3; do python t.py --epochs 3 && break; done", Amount(3)),
    ("for i in 1 2 3; do [ -f x ] && break; python t.py --epochs 3; done", Amount(3, runs=3)),
    ("K=4\nfor ((i=0; i<K; i++)); do python t.py --epochs 3; done", Amount(3, runs=4)),
    ("for i in $(seq 0 2 8); do python t.py --epochs 3; done", Amount(3, runs=5)),
    ("parallel python t.py --seed {1} --lr {2} --epochs 3 ::: 1 2 3 ::: 5 6", Amount(3, runs=6)),
    ("parallel 'python t.py --seed {} --epochs 3' ::: {1..4}", Amount(3, runs=4)),
    ("echo 1 2 3 | xargs -n 1 python t.py --epochs 3 --seed", Amount(3, runs=3)),
    ("cat f | xargs -n 1 python t.py --epochs 3 --seed", Amount(3, runs=inf)),
    ("foreach s (1 2)\npython t.py --epochs 3\nend", Amount(3, runs=2)),
    ("set n = 6\npython t.py --epochs $n", Amount(6)),
    ("python t.py --epochs $(( (${A:-2} + 1) * 10 ))", Amount(30)),
    ("D=0\npython t.py --epochs $(( D ? 1 : 50 ))", Amount(50)),
    ("T=20000000000\npython t.py --steps $((T / 2048 / 1024))", Amount(None, 9536)),
    ("declare -A E=([a]=200 [b]=100)\nd=${1:-b}\npython t.py --epochs ${E[$d]}", Amount(100)),
    ("source ./set.env\npython t.py --epochs $N", Amount(26)),
    (". /etc/none\npython t.py --epochs 3", Amount(3)),
    ("i=0\nwhile [ $i -lt 4 ]; do python t.py --epochs 3; i=$((i+1)); done", Amount(3, runs=4)),
    ("i=0\nwhile [ $i -lt 4 ]; do python t.py --epochs 3; done", Amount(3, runs=inf)),
    ("python test.py --epochs 1\npython t.py --epochs 64\npython eval.py --epochs 1", Amount(64)),
    ("python t.py mm.py", Amount(None, 160)),
    ("python t.py mm2.py", Amount(None, 90)),
    ("poe train --lr 1", Amount(23)),
    ("f() { python t.py --epochs $1; }; f 3", Amount(3)),
    ("cd a; f() { python t.py --epochs $1; }; f 3; f 3", Amount(3, runs=2)),
    ("f() {\npython t.py --epochs 3\n}; f; f", Amount(3, runs=2)),
    ("f() {\npython t.py --epochs 3\n} ; python t.py --epochs 3", Amount(3)),
    ("E=5; for E in 1 2; do :; done; python t.py --epochs $E", Amount()),
    ("E=5; for x in 1 2; do :; done; python t.py --epochs $E", Amount(5)),
    ("while ! python t.py --epochs 4; do sleep 1; done", Amount(4)),
    ("seq 3 | xargs python t.py --epochs 3 --seeds", Amount(3)),
    ("cat f | xargs python t.py --epochs 3 --seeds", Amount(3, runs=inf)),
    ("seq 2 4 | xargs -n 1 python t.py --epochs 3 --seed", Amount(3, runs=3)),
    ("for s in 1 2; do python t.py --epochs 3 > $s 2>&1; done", Amount(3, runs=2)),
    ("for s in 1 2; do python t.py --epochs 3 |& tee $s; done", Amount(3, runs=2)),
    ("for s in 1 2; do python t.py --epochs 3 &> $s & done; wait", Amount(3)),
    ("for s in 1 2; do python t.py --epochs 3 &> $s & wait; done", Amount(3, runs=2)),
    ("(E=4); python t.py --epochs ${E:-3}", Amount(3)),
    ("for e in 1 2; do python t.py --epochs $e; done; python t.py --epochs 6", Amount(runs=3)),
    ("L=(a 'b)\nc d')\npython t.py --epochs 3", Amount(3)),
    ("pixi run train", Amount()),
    ("for f in *.yaml; do python t.py --epochs 3 & done; wait", Amount(3)),
    ("for f in *.yaml; do python t.py --epochs 3 & wait; done", Amount(3, runs=inf)),
    ("docker compose run b", Amount(19)),
    ("docker compose run b python t.py --epochs 4", Amount(4)),
]  # fmt: skip


@pytest.mark.parametrize(("script", "amount"), SCRIPTS)
def test_what_a_script_asks_for(script: str, amount: Amount, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(script)
    for name, text in BESIDE.items():
        (tmp_path / name).write_text(text)
    assert amount_of(["bash", "job.sh"], tmp_path) == amount


@pytest.mark.parametrize(
    ("arguments", "epochs"),
    [("", 7), ("-e 9", 9), ("-e9", 9), ("--epochs 4", 4), ("--epochs=5", 5)],
)
def test_a_script_reads_its_options(arguments: str, epochs: int, tmp_path: Path) -> None:
    loops = [
        "while getopts 'e:h' o; do\n  case $o in\n    e) E=$OPTARG ;;\n  esac\ndone",
        'while [[ $# -gt 0 ]]; do\n  case "$1" in\n    --epochs) E="$2"; shift 2 ;;\n'
        '    --epochs=*) E="${1#*=}"; shift ;;\n    *) shift ;;\n  esac\ndone',
    ]
    loop = loops["--" in arguments]
    (tmp_path / "job.sh").write_text(f"{loop}\npython t.py --epochs ${{E:-7}}\n")
    assert amount_of(shlex.split(f"bash job.sh {arguments}"), tmp_path) == Amount(epochs)


@pytest.mark.parametrize(
    ("before", "epochs"),
    [("", 1), ("shift; ", None), ("set -- b; ", None), ("shift; set -- b; ", None)],
)
def test_an_argument_decides_only_where_it_keeps_its_place(
    before: str, epochs: float | None, tmp_path: Path
) -> None:
    choice = "case $1 in a) E=1;; *) E=3;; esac; python t.py --epochs $E\n"
    (tmp_path / "job.sh").write_text(before + choice)
    assert amount_of(["bash", "job.sh", "a", "b"], tmp_path) == Amount(epochs)


@pytest.mark.parametrize(
    ("command", "amount"),
    [
        ("make", Amount(4)),
        ("make train E=6", Amount(6)),
        ("make all", Amount(4, runs=2)),
        ("make clean", Amount()),
    ],
)
def test_a_target_of_make(command: str, amount: Amount, tmp_path: Path) -> None:
    text = "E ?= 4\ntrain: data\n\t@python t.py --epochs $(E)\n"
    text += "more: train\n\tpython t.py --epochs ${E}\n"
    (tmp_path / "Makefile").write_text(
        f"{text}all: more\ndata:\n\tpython get.py\nclean:\n\trm -f x\n"
    )
    assert amount_of(shlex.split(command), tmp_path) == amount


def test_hydras_groups_are_those_of_its_list_of_defaults(tmp_path: Path) -> None:
    files = {
        "src/train.py": "@hydra.main(config_path='../configs', config_name='train.yaml')\n"
        "def m(c): ...",
        "configs/train.yaml": "defaults:\n  - trainer: ddp\n  - _self_\nseed: 1\n",
        "configs/trainer/ddp.yaml": "max_epochs: 44\n",
        "configs/trainer/one.yaml": "max_epochs: 2\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    assert amount_of(["python", "src/train.py"], tmp_path) == Amount(44)
    assert amount_of(["python", "src/train.py", "trainer=one"], tmp_path) == Amount(2)
