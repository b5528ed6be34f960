"""Commands in the shapes that public repositories keep: scripts beside the program that they run,
with what the program leaves to other files. Worked on with one half of 70 such commands, the reader
read .83 of the other half rightly, .06 not at all and .11 wrongly; with one half of 62 more, .81,
.13 and .06 of the other.
"""

from __future__ import annotations

from math import inf

from features.amounts import Amount

Files = tuple[tuple[str, str], ...]


def _of(
    epochs: float | None = None, steps: float | None = None, runs: float | None = None
) -> Amount:
    return Amount(epochs, steps, runs=runs)


REPEATED = """import argparse
from tqdm import tqdm
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1000)
parser.add_argument("--runs", type=int, default=10)
args = parser.parse_args()
for RP in tqdm(range(args.runs)):
    for epoch in range(args.epochs):
        step()
"""
DEFAULTED = """def train(epochs=4):
    for epoch in range(epochs):
        pass
if __name__ == "__main__":
    train()
"""
BY_MODULE = """from config import end_epoch
from experiments import unet as chosen
for epoch in range(chosen.epochs):
    pass
"""
BY_FILE = """from settings.loader import read
conf = read()
for epoch in range(conf["runs"]["epochs"]):
    pass
"""
BY_END = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", default=70, type=int)
parser.add_argument("--start_iter", default=0, type=int)
args = parser.parse_args()
for iteration in range(args.start_iter + 1, args.epochs):
    pass
"""
EPISODES = """for ep in range(args.train_episodes + 1):
    collect()
"""
PLAYED = """for ep in range(500):
    state = env.reset()
"""
CALLED = """import plac
def main(batch_size: int = 64, epoch: int = 10, lr: float = 0.001):
    pass
plac.call(main)
"""
SIDE_BY_SIDE = """for seed in 3 5 6; do
    nohup python3 t.py \\
        --epochs 9 --seed $seed 2>&1 | tee seed_$seed.log &
done
"""
BATCHED = """for a in 1 2 3; do
  for b in 1 2; do
    python t.py --epochs 9 --a $a --b $b &
  done
  wait
done
"""
LIMITED = """for seed in {1..10}; do
  python t.py --epochs 9 --seed $seed &
  if [[ $(jobs -r -p | wc -l) -ge 4 ]]; then wait -n; fi
done
"""
WINDOWS = """tmux new-session -d -s a 'python t.py --epochs 9 --gpu 0'
tmux new-session -d -s b 'python t.py --epochs 9 --gpu 1'
"""
SUBMITTED = """for lr in 1e-3 1e-4; do
  bsub -q gpu -W 0:59 -n 1 python t.py --lr $lr --n_epochs 1000
done
"""
CONF = """train {
  nepoch = 200
  initial_iters = -1200
  coarse {
    start_epoch = 0
  }
}
test {
  nepoch = 3
}
"""
IN_TURNS = """(
    python t.py --seed 1 --gpu 0
    python t.py --seed 2 --gpu 0; echo done
) & sleep 2s
(
    python t.py --seed 3 --gpu 1; \\
    python t.py --seed 4 --gpu 1; python t.py --seed 5 --gpu 1
) & sleep 1s
wait
"""
PARSED_BESIDE = """from trainer import Trainer
from utils.arg import get_args
def main():
    Trainer(get_args()).fit()
if __name__ == "__main__":
    main()
"""
ARGUMENTS = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=60)
parser.add_argument("--valid_epoch", type=int, default=8)
args = parser.parse_args()
def get_args():
    return args
"""
TRAINER = """class Trainer:
    def __init__(self, args):
        self.epoch, self.epochs = 0, args.epochs
    def fit(self):
        for epoch in range(self.epoch, {}):
            self.step()
"""
OF_A_TABLE = """from config import config
def train(config):
    num_epochs = config["max_epoch"]
    for epoch in range(config["starting_epoch"], num_epochs):
        step()
train(config)
"""
FOLDS = """from sklearn.model_selection import KFold
kf = KFold(n_splits=4, shuffle=True)
for ind, (tr, val) in enumerate(kf.split(X)):
    model = create()
    model.fit(X[tr], y[tr], epochs=6, validation_data=(X[val], y[val]))
"""
PASSES = """for epoch in range(50):
    model.fit(x, y, epochs=1, shuffle=True)
    model.save(f"a-{epoch}.h5")
"""
BOTH = """model.fit(x, y, epochs=5)
for epoch in range(80):
    step()
"""
FEDERATED = """for round in range(args.rounds):
    local_train()
def local_train():
    for epoch in range(args.local_ep):
        step()
"""
GRID = """search = GridSearchCV(MLPClassifier(max_iter=300), {"alpha": [1, 2]}, cv=5)
search.fit(x, y)
"""
PLAYER = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--n_episodes", type=int, default=4000)
parser.add_argument("--epochs", type=int, default=4)
learn(parser.parse_args())
"""
COMMANDS: tuple[tuple[str, Amount, Files] | tuple[str, Amount], ...] = (
    ("python t.py --train --epoch-count 5 --batch-size 32", _of(5)),
    ("python t.py --maxepoch 40 --warmup_epochs 5", _of(40)),
    ("python t.py --train_iter_num 9000 --eval_iter 10", _of(None, 9_000)),
    ("python t.py --nepochs 12 --epochs_per_eval 2", _of(12)),
    ("python t.py --n_steps 2048 --save_epochs 3 --epoch_size 7", _of(7)),
    (
        "bash decay.sh",
        _of(400),
        (("decay.sh", "python t.py \\\n  --epochs 400 \\\n  --decay 0.05 \\"),),
    ),
    ("python t.py --dataset a --runs 3", _of(1000, runs=3), (("t.py", REPEATED),)),
    (
        "bash twice.sh",
        _of(1000, runs=20),
        (("twice.sh", "python t.py --data a\npython t.py --data b\n"), ("t.py", REPEATED)),
    ),
    ("python defaults.py", _of(4), (("defaults.py", DEFAULTED),)),
    (
        "python -u t.py",
        _of(80),
        (
            ("t.py", BY_MODULE),
            ("config.py", "end_epoch = 200\n"),
            ("experiments/unet.py", "#epochs = 5\nepochs = 80\n"),
        ),
    ),
    (
        "python from_file.py",
        _of(164),
        (
            ("from_file.py", BY_FILE),
            ("settings/loader.py", 'def read(path="all.yaml"): ...\n'),
            ("settings/all.yaml", "runs:\n  epochs: 164\nmilestones: [80, 120]\n"),
        ),
    ),
    ("python t.py --lr 1", _of(70), (("t.py", BY_END),)),
    ("python t.py --train_episodes 1000", _of(), (("t.py", EPISODES),)),
    ("python played.py", _of(), (("played.py", PLAYED),)),
    ("python called.py", _of(10), (("called.py", CALLED),)),
    ("bash seeds.sh", _of(9), (("seeds.sh", SIDE_BY_SIDE),)),
    ("bash turns.sh", _of(9, runs=3), (("turns.sh", BATCHED),)),
    ("bash limited.sh", _of(9, runs=inf), (("limited.sh", LIMITED),)),
    ("bash windows.sh", _of(9), (("windows.sh", WINDOWS),)),
    ("bash queue.sh", _of(), (("queue.sh", SUBMITTED),)),
    ("python t.py --conf a.conf --gpu 0", _of(200), (("a.conf", CONF),)),
    (
        "python run.py --config a.yaml",
        _of(150),
        (("a.yaml", "train_params:\n  num_epochs: 150\n  num_repeats: 75\n"),),
    ),
    (
        "bash asr.sh --asr_config a.yaml --lm_config b.yaml",
        _of(),
        (("a.yaml", "max_epoch: 200\n"), ("b.yaml", "max_epoch: 40\n")),
    ),
    ("python grid_search.py --epochs 5", _of(5, runs=inf)),
    ('parallel --bar "python t.py --data {1} --epochs 5" ::: seqs/*.npy', _of(5, runs=inf)),
    (
        "bash -c 'printf \"n%s\\n\" {0..23} | shuf | xargs -P4 -i python t.py {} --epochs 5'",
        _of(5, runs=24),
    ),
    ("bash -c 'python m.py --train --data a; python m.py --test --data a'", _of()),
    ("bash -c 'python m.py --data a; python m.py --data b'", _of(runs=2)),
    ("bash -c 'python m.py --mode train; python m.py --mode test'", _of()),
    ("bash gpus.sh", _of(runs=3), (("gpus.sh", IN_TURNS),)),
    (
        "bash -c 'each() { for s in 1 2 3; do python t.py --epochs 9; done; }; each a & each b &'",
        _of(9, runs=3),
    ),
    (
        "python run.py --cuda 0",
        _of(60),
        (
            ("run.py", PARSED_BESIDE),
            ("utils/arg.py", ARGUMENTS),
            ("trainer.py", TRAINER.format("self.epochs")),
        ),
    ),
    (
        "python run.py --cuda 1",
        _of(),
        (
            ("run.py", PARSED_BESIDE),
            ("utils/arg.py", ARGUMENTS),
            ("trainer.py", TRAINER.format(90)),
        ),
    ),
    (
        "python t.py",
        _of(50),
        (
            ("t.py", OF_A_TABLE),
            ("config.py", "config = {\n    'max_epoch': 50,\n    'starting_epoch': 0,\n}\n"),
        ),
    ),
    ("python folds.py", _of(6, runs=4), (("folds.py", FOLDS),)),
    ("python passes.py", _of(50), (("passes.py", PASSES),)),
    ("python both.py", _of(), (("both.py", BOTH),)),
    ("python fed.py --rounds 200 --local_ep 5", _of(None, 200), (("fed.py", FEDERATED),)),
    ("python main.py --num_rounds=200 --num_epochs=20 --clients_per_round=10", _of(None, 200)),
    ("python main.py --comm_round 300 --local_bs 128", _of(None, 300)),
    ("python grid.py", _of(None, 300, runs=inf), (("grid.py", GRID),)),
    ("python player.py", _of(), (("player.py", PLAYER),)),
    ("python ppo.py --num_episodes 900 --epochs 4", _of()),
    (
        "bash run.bat",
        _of(runs=6),
        (("run.bat", "for a in 1 2 3 4 5 6; do python e.py $a; done\n"),),
    ),
    ("python train.py --dataroot a --model pan --niter 200 --niter_decay 200", _of(400)),
    ("python t.py --phase val", _of(80), (("t.py", "for epoch in range(80):\n    step()\n"),)),
    ("python t.py --train a.csv --val b.csv", _of(8), (("t.py", "train(epochs=8)\n"),)),
)
