"""What contradicts itself in a command or program is not known, and what runs side by side is as
long as the longest of it."""

from __future__ import annotations

import shlex
from math import inf
from pathlib import Path

import pytest

from features.amounts import Amount
from features.asked import amount_of
from features.commands import of_command, of_commands
from features.programs import Imported, of_program
from features.shell import of_script

RUN = "python t.py --epochs 3"
LENGTHS = {
    f"({RUN}; {RUN}) & ({RUN}; {RUN}) & wait": 2,
    f"({RUN}; {RUN})& ({RUN}) & wait\n{RUN}": 3,
    f"{RUN} & {RUN}": None,
    f"{RUN} & {RUN} & wait": None,
    f"{RUN} & ({RUN}; {RUN}); wait": 2,
    f"tensorboard --logdir a & {RUN}; {RUN}": 2,
    f"cd a && {RUN} &\ncd b && {RUN} && {RUN} &\n": 2,
    f"for i in 1 2 3; do {RUN}; done & for i in 1 2; do {RUN}; done & wait": 3,
    f"for g in 0 1; do for s in 1 2 3; do {RUN}; done & done; wait": 3,
    f"for g in 0 1; do (for s in 1 2 3; do {RUN}; done) & wait; done": 6,
    f"for g in 0 1; do {RUN} & {RUN}; wait; done": 2,
    f"{{ {RUN}; {RUN}; }} & {{ {RUN}; }} & wait": 2,
    f"each() {{ for s in 1 2 3; do {RUN}; done; }}\neach a &\neach b &\nwait": 3,
    f"bash -c '{RUN}; {RUN}' & bash -c '{RUN}' & wait": 2,
    f"tmux new -d 'true'\\; neww '{RUN}; sh'\\; neww '{RUN}; {RUN}'\\; detach": 2,
    f"for g in 0 1; do tmux new -d '{RUN}; {RUN}'; done": 2,
    f"case $1 in a) {RUN};; esac\n(({RUN})); {RUN}": 3,
}


@pytest.mark.parametrize("script", LENGTHS)
def test_what_runs_side_by_side_is_as_long_as_its_longest_job(script: str) -> None:
    assert of_commands(of_script(script)) == Amount(3, runs=LENGTHS[script])


COMMANDS = {
    "python main.py --num_rounds=200 --num_epochs=20": Amount(None, 200),
    "python main.py --comm_round 200 --epochs 5": Amount(None, 200),
    "python train.py --epochs 5 --early_stopping_rounds 3": Amount(5, patience=3),
    "python ppo.py --num_episodes 900 --epochs 4": Amount(),
    "python ppo.py --max-episode-steps 900 --epochs 4": Amount(4),
    "python train.py --model pan --niter 200 --niter_decay 100": Amount(300),
    "python train.py -opt a.yml --niter 4000": Amount(None, 4000),
    "python train.py --dataroot a --model pix2pix --n_epochs 1": Amount(101),
    "python train.py --dataroot a --model cycle_gan": Amount(200),
    "python train.py --dataroot a --model pix2pix --niter 200 --niter_decay 200": Amount(400),
    "python test.py --dataroot a --model pix2pix": Amount(),
    "bash -c 'python pre_train.py; python main.py --epoch 1000'": Amount(),
    "bash -c 'python train_vae.py --epochs 3; python train_vae.py --test'": Amount(3),
    "bash -c 'python make_data.py; python main.py --epoch 1000'": Amount(1000),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_counts_something_within_another_is_no_amount(command: str) -> None:
    assert of_command(shlex.split(command)) == COMMANDS[command]


OPTIONS = "p.add_argument('--{}', type=int, default={})\n"
FIT = "    model.fit(x, y, epochs={})\n"
EPOCHS = "for epoch in range({}):\n    train()\n"
PROGRAMS = {
    EPOCHS.format(5): {"epochs": 5},
    EPOCHS.format(5) + EPOCHS.format(9): {},
    # not that of the option either, if two loops do not agree
    OPTIONS.format("epochs", 9) + EPOCHS.format(5) + EPOCHS.format("a.epochs"): {},
    "model.fit(x, epochs=5)\nmodel.fit(x, epochs=9)\n": {},
    "Trainer(max_epochs=5).fit(x)\n" + EPOCHS.format(9): {},
    "for epoch in range(40):\n" + FIT.format(1): {"epochs": 40},
    "for epoch in range(40):\n" + FIT.format(3): {},
    "for epoch in range(40):\n    train(net, epochs=40)\n": {"epochs": 40},
    "for i in range(4):\n" + FIT.format(3): {"epochs": 3, "runs": 4},
    "for name in names():\n" + FIT.format(3): {"epochs": 3, "runs": inf},
    "k = KFold(n_splits=5)\nfor a, (b, c) in enumerate(k.split(x)):\n" + FIT.format(3): {
        "epochs": 3,
        "runs": 5,
    },
    "for task in range(6):\n    for epoch in range(3):\n        train()\n": {
        "epochs": 3,
        "runs": 6,
    },
    "for a in range(2):\n    go(a)\n" + EPOCHS.format(5): {"epochs": 5},
    "study.optimize(f, n_trials=40)\ndef f():\n    for epoch in range(3): train()\n": {
        "epochs": 3,
        "runs": 40,
    },
    "c = {'num_epochs': 30, 'lr': 1}\nTrainer(cfg=c).train()\n": {"epochs": 30},
    "Trainer({'lr': 1}).train()\n": {},
    "GridSearchCV(MLPClassifier(max_iter=200), {}).fit(x, y)\n": {"steps": 200, "runs": inf},
    "for round in range(200):\n    serve()\ndef client():\n    "
    + EPOCHS.format(5).replace("\n", "\n    "): {"steps": 200},
    "def sample(net):\n    for step in range(50):\n        net()\n": {},
    "def evaluate():\n    for epoch in range(8):\n        load(epoch)\n" + EPOCHS.format(5): {
        "epochs": 5
    },
    OPTIONS.format("epochs", 9): {"epochs": 9},
    OPTIONS.format("epochs", 9) + OPTIONS.format("n_episodes", 700): {},
    OPTIONS.format("epochs", 9) + OPTIONS.format("max_episode_steps", 700): {"epochs": 9},
    # what is no amount: nothing, less than nothing, and what no number holds
    EPOCHS.format("5 - 9"): {},
    EPOCHS.format("3 // 10"): {},
    EPOCHS.format("10 // 3"): {"epochs": 3},
    EPOCHS.format("9_999_999 * 9_999_999 - 1"): {},
    "n = 999_999_999 * 999_999_999\nm = n * n * n * n * n * n\no = m * m * m * m * m\n"
    "EarlyStopping(patience=3 - 9)\nTrainer(max_epochs=o * o * o - o * o * o)\n": {},
    "for seed in range(3 - 5):\n" + FIT.format(3): {"epochs": 3, "runs": inf},
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_two_readings_of_a_program_that_disagree_are_none(program: str) -> None:
    assert of_program(program, {}) == PROGRAMS[program]


@pytest.mark.parametrize("end", ["-x", "sizes[0]", "f(x)"])
def test_an_option_without_a_known_name_gives_no_other_expression_its_value(end: str) -> None:
    options = "p.add_argument('-e', dest=NAME, type=int)\n"
    assert of_program(options + EPOCHS.format(end), {"e": "5"}) == {}
    assert of_program(options + "Trainer(max_epochs=-x)\n", {"e": "5"}) == {}


ARGUMENTS = "def get_args():\n    p = ArgumentParser()\n    " + OPTIONS.format("epochs", 50)
MODULE = """class Train:
    def __init__(self, args):
        self.epochs = args.epochs
    def fit(self, most=7):
        for epoch in range({}):
            self.step()
def other():
    for epoch in range(6):
        step()
"""
MAIN = "from arguments import get_args\nfrom trainer import Train\nTrain(get_args()).fit()\n"


@pytest.mark.parametrize(
    ("main", "modules", "amount"),
    [
        (MAIN, [ARGUMENTS], {"epochs": 50}),
        (MAIN, [ARGUMENTS, MODULE.format("self.epochs")], {"epochs": 50}),
        (MAIN, [ARGUMENTS, MODULE.format("30")], {}),
        (MAIN, [MODULE.format("30")], {"epochs": 30}),
        (MAIN, [MODULE.format("most")], {"epochs": 7}),
        (MAIN.replace("fit()", "fit(9)"), [MODULE.format("most")], {"epochs": 9}),
        (MAIN, [ARGUMENTS, ARGUMENTS.replace("50", "60")], {}),
        (MAIN, ["if __name__ == '__main__':\n    " + OPTIONS.format("epochs", 50)], {}),
        ("other()\n", [MODULE.format("30")], {"epochs": 6}),
        (EPOCHS.format("config['max_epoch']"), ["config = {'max_epoch': 40}\n"], {"epochs": 40}),
        (EPOCHS.format("c.epochs"), ["class Config:\n    epochs = 40\n"], {"epochs": 40}),
    ],
)
def test_arguments_and_loops_of_the_modules_that_a_program_calls(
    main: str, modules: list[str], amount: dict[str, float]
) -> None:
    assert of_program(main, {}, Imported(modules)) == amount


CHOOSES = "if args.phase == 'train':\n    " + EPOCHS.format(7).replace("\n", "\n    ")


@pytest.mark.parametrize(
    ("command", "program", "amount"),
    [
        ("python t.py --phase val", EPOCHS.format(7), Amount(7)),
        ("python t.py --phase val", CHOOSES, Amount()),
        ("python t.py --phase test", EPOCHS.format(7), Amount()),
        ("python t.py --phase val", "import run\nrun.go()\n", Amount()),
        ("python t.py --val a.csv", EPOCHS.format(7), Amount(7)),
        ("python t.py --val", EPOCHS.format(7), Amount()),
        ("bash -c 'python t.py --phase val; python t.py --phase val'", EPOCHS.format(7), (7, 2)),
        ("bash t.py.cmdline", EPOCHS.format(7), Amount(7)),
    ],
)
def test_what_a_program_validates_on_is_no_test(
    command: str, program: str, amount: Amount | tuple[float, float], tmp_path: Path
) -> None:
    (tmp_path / "t.py").write_text(program)
    (tmp_path / "run.py").write_text(f"def go():\n    {CHOOSES}".replace("\n", "\n    "))
    (tmp_path / "t.py.cmdline").write_text("python t.py\n")
    right = amount if isinstance(amount, Amount) else Amount(amount[0], runs=amount[1])
    assert amount_of(shlex.split(command), tmp_path) == right


def test_a_number_of_a_settings_file_may_be_converted(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("train = dict(type='Loop', max_iters=int(2e6), x=len('a'))\n")
    assert amount_of(["python", "train.py", "a.py"], tmp_path) == Amount(None, 2e6)
