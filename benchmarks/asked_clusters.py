"""Commands as strangers on clusters write them: batch scripts of several systems, launchers, loops,
here documents, Python programs that say by themselves how long they train.

Each set was written whole, with its amounts, before any of it was read. They are (command, amount,
files) and part of `benchmarks.asked`.
"""

from __future__ import annotations

from math import inf

from features.amounts import Amount


def _of(
    epochs: float | None = None, steps: float | None = None, runs: float | None = None
) -> Amount:
    return Amount(epochs, steps, runs=runs)


RESNET = """#!/bin/bash -l
#SBATCH --job-name=cifar
#SBATCH --partition=gpu
#SBATCH --gres=gpu:a100:2
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --time=1-00:00:00
#SBATCH --output=logs/%x_%j.out
#SBATCH --mail-type=END,FAIL

module load 2023 Python/3.11 CUDA/12.1
source $HOME/venvs/torch/bin/activate
cp -r $HOME/data/cifar "$TMPDIR"
nvidia-smi --query-gpu=utilization.gpu --format=csv -l 60 > gpu.csv &
python -m torch.distributed.launch --nproc_per_node=2 --use_env main.py \\
    --data "$TMPDIR/cifar" --nb_epochs 160 --batch 128 --workers $SLURM_CPUS_PER_TASK
cp -r runs $HOME/
"""
SEEDED = """#!/bin/bash
#SBATCH --array=1-12%4
params=$(sed -n "${SLURM_ARRAY_TASK_ID}p" grid.txt)
uv run --frozen train.py $params --max-epochs 75 --early-stopping
"""
RETRY = """#!/usr/bin/env zsh
export HYDRA_FULL_ERROR=1
max_retries=5
for attempt in {1..$max_retries}; do
  poetry run python src/train.py experiment=base trainer.max_epochs=18 ckpt_path=last && break
done
"""
APPTAINER = """#!/bin/bash
#PBS -l select=1:ngpus=4
#PBS -N unet
cd $PBS_O_WORKDIR
NGPU=4
STEPS=${STEPS:-120000}
apptainer exec --nv -B /scratch:/scratch unet.sif \\
  torchrun --standalone --nproc-per-node=$NGPU train.py \\
  --num-steps $STEPS --save-every 5000 --warmup-steps 1000
"""
MAKE = """#!/bin/bash
#SBATCH -G 1
EPOCHS=40
make data && make train EPOCHS=$EPOCHS
"""
MAKEFILE = "train:\n\tpython train.py --epochs $(EPOCHS)\n"
SNAKE = """#!/bin/bash
set -euo pipefail
cd work
(conda run --no-capture-output -n seg python scripts/train.py --input a.h5 --n-epochs 55 --output m.pt) 2> log.txt
"""
PARALLEL = """#!/bin/bash
parallel -j 4 --delay 2 "CUDA_VISIBLE_DEVICES=\\$(({%} - 1)) python fit.py --seed {1} --lr {2} --epochs 12" ::: 1 2 3 ::: 0.1 0.01
"""
XARGS = """#!/bin/bash
seq 1 8 | xargs -P 2 -I{} python fit.py --seed {} --epochs 12
"""
DEEPSPEED = """#!/bin/bash
export NCCL_DEBUG=INFO
HOSTFILE=hostfile
MODEL=meta-llama/Llama-2-7b-hf
LR=2e-5
EPOCH=3
BS=4
OUT=out/${MODEL##*/}-e${EPOCH}
mkdir -p "$OUT"
deepspeed --hostfile=$HOSTFILE --master_port 29501 finetune.py \\
    --model_name_or_path $MODEL --learning_rate $LR \\
    --num_train_epochs $EPOCH --per_device_train_batch_size $BS \\
    --evaluation_strategy steps --eval_steps 200 --save_steps 200 --save_total_limit 3 \\
    --deepspeed ds_zero3.json 2>&1 | tee "$OUT/train.log"
"""
HEREDOC = """#!/bin/bash
#SBATCH --gres=gpu:1
NAME=exp7
mkdir -p cfg
cat << EOF > cfg/$NAME.yaml
model:
  hidden: 512
training:
  max_epochs: 33
  lr: 0.001
EOF
srun python train.py --config cfg/$NAME.yaml
"""
SUBMITS = """#!/bin/bash
for lr in 0.1 0.03 0.01; do
  for wd in 0 1e-4; do
    sbatch --gres=gpu:1 --job-name lr$lr --wrap "python train.py --lr $lr --wd $wd --epochs 20"
  done
done
"""
GETOPTS = """#!/bin/bash
while getopts "e:b:h" opt; do
  case $opt in
    e) epochs=$OPTARG ;;
    b) batch=$OPTARG ;;
    h) usage; exit 0 ;;
  esac
done
epochs=${epochs:-100}
batch=${batch:-32}
srun python run.py --epochs $epochs --batch-size $batch
"""
STAGES = """#!/bin/bash
# stage 1: vae, stage 2: diffusion
python train_vae.py --epochs 50
[ -f vae.pt ] || exit 1
python train_diffusion.py --epochs 50 --vae vae.pt
"""
ARGPARSE = """import argparse
import torch

def main(args):
    model = torch.nn.Linear(10, 2)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr)
    for epoch in range(args.start_epoch, args.epochs):
        train_one_epoch(model, opt, epoch)
        evaluate(model)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", default=0.1, type=float)
    parser.add_argument("--epochs", default=90, type=int, metavar="N")
    parser.add_argument("--start-epoch", default=0, type=int)
    parser.add_argument("--print-freq", default=10, type=int)
    main(parser.parse_args())
"""
KERAS = """import os
import tensorflow as tf
BATCH_SIZE = 64
EPOCHS = 22
model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
model.compile("adam", loss="mse")
callbacks = [tf.keras.callbacks.EarlyStopping(patience=4, restore_best_weights=True)]
history = model.fit(train_ds, validation_data=val_ds, epochs=EPOCHS, callbacks=callbacks)
model.evaluate(test_ds)
"""
LIT = """import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint

class Lit(L.LightningModule):
    def training_step(self, batch, i):
        return self.loss(batch)

def main():
    trainer = L.Trainer(max_epochs=65, accelerator="gpu", devices=2, strategy="ddp",
                        callbacks=[ModelCheckpoint(every_n_epochs=5)])
    trainer.fit(Lit(), dm)
    trainer.test(Lit(), dm)

if __name__ == "__main__":
    main()
"""
TRL = """from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
config = SFTConfig(output_dir="o", max_steps=750, per_device_train_batch_size=2, logging_steps=5)
trainer = SFTTrainer("m", args=config, train_dataset=load_dataset("x"))
trainer.train()
"""
TYRO = """import dataclasses, tyro

@dataclasses.dataclass
class Args:
    env_id: str = "Hopper-v4"
    seed: int = 1
    total_timesteps: int = 1_000_000
    learning_starts: int = 5000
    batch_size: int = 256

args = tyro.cli(Args)
for global_step in range(args.total_timesteps):
    act()
"""
PYG = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument('--device', type=int, default=0)
parser.add_argument('--num_layers', type=int, default=3)
parser.add_argument('--epochs', type=int, default=500)
parser.add_argument('--runs', type=int, default=10)
args = parser.parse_args()
for run in range(args.runs):
    model.reset_parameters()
    for epoch in range(1, 1 + args.epochs):
        loss = train(model)
        result = test(model)
"""
CLICK = """import click

@click.command()
@click.option("--data", required=True)
@click.option("--n-iter", "n_iter", default=8000, show_default=True)
@click.option("--lr", default=1e-3)
def cli(data, n_iter, lr):
    for i in range(n_iter):
        step()

if __name__ == "__main__":
    cli()
"""
HYDRA = """defaults:
  - trainer: ddp
  - model: vit
  - _self_
seed: 1
"""
DDP = "_target_: lightning.Trainer\nmin_epochs: 1\nmax_epochs: 44\naccelerator: gpu\n"
GDIFF = """#!/bin/bash
MODEL_FLAGS="--image_size 64 --num_channels 128"
DIFFUSION_FLAGS="--diffusion_steps 1000 --noise_schedule linear"
TRAIN_FLAGS="--lr 1e-4 --batch_size 128 --lr_anneal_steps 300000"
mpiexec -n 8 python scripts/image_train.py --data_dir d $MODEL_FLAGS $DIFFUSION_FLAGS $TRAIN_FLAGS
"""
FAIRSEQ = """#!/bin/bash
TOTAL_NUM_UPDATES=20000
WARMUP_UPDATES=500
UPDATE_FREQ=4
CUDA_VISIBLE_DEVICES=0,1 fairseq-train bin/ \\
    --lr-scheduler polynomial_decay --total-num-update $TOTAL_NUM_UPDATES \\
    --warmup-updates $WARMUP_UPDATES --max-tokens 2048 --update-freq $UPDATE_FREQ \\
    --max-update $TOTAL_NUM_UPDATES
"""
ESPNET = """#!/usr/bin/env bash
set -e
set -u
./asr.sh --stage 1 --stop_stage 13 --ngpu 4 --asr_config conf/train.yaml --max_epoch 50
"""
KFOLD = """#!/bin/bash
FOLDS=5
for (( f=0; f<FOLDS; f++ )); do
    python train.py --fold $f --epochs 30 > fold$f.log
done
"""
NESTED = """#!/bin/bash
run_one() {
    local name=$1
    local epochs=$2
    echo "running $name for $epochs"
    python train.py --name "$name" --epochs "$epochs"
}
run_one a 15
run_one b 15
run_one c 15
"""
WHILE_READ = """#!/bin/bash
while read -r name lr; do
  python train.py --name "$name" --lr "$lr" --epochs 9
done < runs.txt
"""
FISH = "#!/usr/bin/env fish\nset epochs 28\nfor seed in 1 2\n    python train.py --seed $seed --epochs $epochs\nend\n"
JUST = "train epochs='10':\n  python train.py --epochs {{epochs}}\n"

FIRST = [
    ("sbatch resnet.sbatch", _of(160), (("resnet.sbatch", RESNET),)),
    ("sbatch seeded.sh", _of(75), (("seeded.sh", SEEDED),)),
    ("sbatch retry.sh", _of(18), (("retry.sh", RETRY),)),
    ("qsub unet.sh", _of(None, 120_000), (("unet.sh", APPTAINER),)),
    ("bash make.sh", _of(40), (("make.sh", MAKE), ("Makefile", MAKEFILE))),
    ("bash snake.sh", _of(55), (("snake.sh", SNAKE),)),
    ("bash par.sh", _of(12, runs=6), (("par.sh", PARALLEL),)),
    ("bash xargs.sh", _of(12, runs=8), (("xargs.sh", XARGS),)),
    ("bash ds.sh", _of(3), (("ds.sh", DEEPSPEED),)),
    ("sbatch here.sh", _of(33), (("here.sh", HEREDOC),)),
    ("bash submits.sh", _of(), (("submits.sh", SUBMITS),)),  # it only submits; six jobs elsewhere
    ("sbatch getopts.sh", _of(100), (("getopts.sh", GETOPTS),)),
    ("bash two.sh", _of(50, runs=2), (("two.sh", STAGES),)),
    ("python main.py --lr 0.05", _of(90), (("main.py", ARGPARSE),)),
    ("srun --gpus 1 python -u main.py --epochs=30", _of(30), (("main.py", ARGPARSE),)),
    ("python3 train_keras.py", _of(22), (("train_keras.py", KERAS),)),
    ("conda run -n lit python lit.py", _of(65), (("lit.py", LIT),)),
    (
        "accelerate launch --config_file fsdp.yaml sft.py",
        _of(None, 750),
        (("sft.py", TRL), ("fsdp.yaml", "num_machines: 1\n")),
    ),
    ("uv run sac.py --env-id Ant-v4", _of(None, 1_000_000), (("sac.py", TYRO),)),
    ("python gnn.py --num_layers 2", _of(500, runs=10), (("gnn.py", PYG),)),
    ("python gnn.py --runs 3 --epochs 100", _of(100, runs=3), (("gnn.py", PYG),)),
    ("python fit.py --data d", _of(None, 8_000), (("fit.py", CLICK),)),
    (
        "python -m src.train --config-name a",
        _of(44),
        (("configs/a.yaml", HYDRA), ("configs/trainer/ddp.yaml", DDP)),
    ),
    ("bash gdiff.sh", _of(None, 300_000), (("gdiff.sh", GDIFF),)),
    ("bash fairseq.sh", _of(None, 20_000), (("fairseq.sh", FAIRSEQ),)),
    ("bash run.sh", _of(50), (("run.sh", ESPNET),)),
    ("sbatch --gpus=1 kfold.sh", _of(30, runs=5), (("kfold.sh", KFOLD),)),
    ("bash nested.sh", _of(15, runs=3), (("nested.sh", NESTED),)),
    ("bash read.sh", _of(9, runs=inf), (("read.sh", WHILE_READ),)),
    ("fish run.fish", _of(28, runs=2), (("run.fish", FISH),)),
    ("just train 35", _of(35), (("justfile", JUST),)),
    (
        "docker run --rm --gpus all -v $PWD:/w -w /w img:latest bash -c 'pip install -e . && python train.py --total_steps 60000'",
        _of(None, 60_000),
        (),
    ),
    (
        "ray job submit --working-dir . -- python tune.py --max-epochs 10 --num-samples 20",
        _of(10),
        (),
    ),
    ("python train.py -m seed=1,2,3 model=a,b trainer.max_epochs=6", _of(6, runs=6), ()),
    ("snakemake --cores 8 --config epochs=14 train", _of(14), ()),
    (
        "bash -c 'export PYTHONPATH=.; nohup python -u tools/train.py --num-epoch 80 > log 2>&1 &'",
        _of(80),
        (),
    ),
    (
        "srun --mpi=pmix singularity exec --nv img.sif python pretrain.py --total-epochs 400 --warmup-epochs 40",
        _of(400),
        (),
    ),
    ("composer train.py train.yaml max_duration=2ep", _of(2), ()),
    (
        "tune run full_finetune_single_device --config c.yaml epochs=1 max_steps_per_epoch=null",
        _of(1),
        (),
    ),
    ("screen -dmS exp bash -c 'cd ~/p && python train.py --n_epoch 70; exec bash'", _of(70), ()),
]

SEGFORMER = """#!/bin/bash
#SBATCH -A proj_0421
#SBATCH -N 2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --exclusive
set -x
CONFIG=$1
WORK_DIR=work_dirs/$(basename $CONFIG .py)
export MASTER_PORT=$((10000 + RANDOM % 20000))
srun --kill-on-bad-exit=1 python -u tools/train.py $CONFIG --launcher slurm --work-dir $WORK_DIR ${@:2}
"""
SEGCFG = """_base_ = ['./base.py']
optimizer = dict(type='AdamW', lr=6e-5)
lr_config = dict(policy='poly', warmup='linear', warmup_iters=1500)
runner = dict(type='IterBasedRunner', max_iters=160000)
evaluation = dict(interval=16000, metric='mIoU')
"""
BASECFG = "runner = dict(type='IterBasedRunner', max_iters=20000)\n"
ONLY_BASE = "_base_ = ['./schedule.py']\nmodel = dict(depth=50)\n"
SCHEDULE = "train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=12, val_interval=1)\ntest_cfg = dict(type='TestLoop')\n"
OPENPI = """#!/bin/bash
#SBATCH --signal=USR1@90
#SBATCH --requeue
. ~/.profile
pixi run train exp=base total_steps=30_000
"""
TWO_SEEDS = """#!/bin/bash
#$ -cwd
#$ -l gpu=1
#$ -t 1-5
source activate torch
python run.py --seed $SGE_TASK_ID --num_epochs 60 --patience 15 --out out.$SGE_TASK_ID
"""
LSF = """#!/bin/bash
#BSUB -J bert[1-3]
#BSUB -q gpuv100
#BSUB -W 24:00
#BSUB -gpu "num=1:mode=exclusive_process"
LRS=(1e-5 2e-5 3e-5)
LR=${LRS[$((LSB_JOBINDEX - 1))]}
python run_glue.py --model_name_or_path bert-base-uncased --task_name qnli --do_train --do_eval \\
  --learning_rate $LR --num_train_epochs 5 --output_dir out/$LR
"""
TERNARY = """#!/bin/bash
DEBUG=${DEBUG:-0}
MAX_STEPS=$(( DEBUG ? 10 : 50000 ))
python train.py --max-steps $MAX_STEPS
"""
BC = """#!/bin/bash
TOKENS=20000000000
SEQ=2048
GBS=1024
ITERS=$((TOKENS / SEQ / GBS))
torchrun --nproc_per_node 8 pretrain_gpt.py --train-iters $ITERS --seq-length $SEQ --global-batch-size $GBS
"""
ASSOC = """#!/bin/bash
declare -A EPOCHS=([cifar]=200 [svhn]=100)
ds=${1:-cifar}
python train.py --dataset $ds --epochs ${EPOCHS[$ds]}
"""
SOURCED = """#!/bin/bash
source ./settings.env
python train.py --epochs "$EPOCHS" --lr "$LR"
"""
SETTINGS = "EPOCHS=26\nLR=0.01\n"
TRAPS = """#!/usr/bin/env bash
cleanup() { rm -rf "$TMP"; }
trap cleanup EXIT
TMP=$(mktemp -d)
tar -xf data.tar -C "$TMP"
time python train.py \\
    --root "$TMP" \\
    --epoch 48 \\
    ${RESUME:+--resume $RESUME}
"""
BACKGROUND = """#!/bin/bash
for gpu in 0 1 2 3; do
  CUDA_VISIBLE_DEVICES=$gpu python train.py --fold $gpu --epochs 35 > fold_$gpu.log 2>&1 &
done
wait
"""
SPIN = """#!/bin/bash
while true; do
  python worker.py --queue jobs --max-epochs 5
done
"""
STEPPED = """#!/bin/bash
E=0
while [ $E -lt 10 ]; do
  python train.py --epochs 3 --round $E
  E=$((E + 1))
done
"""
IFHAS = """#!/bin/bash
if [ -f last.ckpt ]; then
  python train.py --max_epochs 70 --ckpt last.ckpt
else
  python train.py --max_epochs 70
fi
"""
EVALFIRST = """#!/bin/bash
python evaluate.py --epochs 1 --ckpt init.pt
python train.py --epochs 64
python evaluate.py --epochs 1 --ckpt out.pt
"""
NANO = """# train a miniature char-level model
out_dir = 'out-char'
eval_interval = 250
eval_iters = 200
batch_size = 64
max_iters = 5000
lr_decay_iters = 5000
warmup_iters = 100
"""
NANOTRAIN = """import torch
eval_interval = 2000
max_iters = 600000
exec(open('configurator.py').read())
iter_num = 0
while True:
    if iter_num % eval_interval == 0:
        estimate()
    iter_num += 1
    if iter_num > max_iters:
        break
"""
SKLEARN = """from sklearn.ensemble import GradientBoostingRegressor
m = GradientBoostingRegressor(n_estimators=400, learning_rate=0.05)
m.fit(X, y)
"""
XGB = """import xgboost as xgb
params = {"max_depth": 8, "eta": 0.1, "tree_method": "hist"}
bst = xgb.train(params, dtrain, num_boost_round=1200, evals=[(dval, "v")], early_stopping_rounds=50)
"""
SB3 = """import gymnasium as gym
from stable_baselines3 import SAC
TIMESTEPS = int(2e6)
model = SAC("MlpPolicy", gym.make("Humanoid-v4"), verbose=1)
model.learn(total_timesteps=TIMESTEPS, log_interval=4)
"""
GAN = """import argparse
p = argparse.ArgumentParser()
p.add_argument("--n_epochs", type=int, default=200, help="number of epochs of training")
p.add_argument("--batch_size", type=int, default=64)
p.add_argument("--sample_interval", type=int, default=400)
opt = p.parse_args()
for epoch in range(opt.n_epochs):
    for i, (imgs, _) in enumerate(dataloader):
        pass
"""
YAMLED = """import yaml, sys
cfg = yaml.safe_load(open(sys.argv[1]))
for epoch in range(cfg["train"]["epochs"]):
    run(epoch)
"""
YAMLCFG = "model: {dim: 64}\ntrain: {epochs: 17, lr: 0.1}\neval: {every: 2}\n"
TWOLOOPS = """import argparse
ap = argparse.ArgumentParser()
ap.add_argument('--pretrain-epochs', type=int, default=20)
ap.add_argument('--finetune-epochs', type=int, default=5)
a = ap.parse_args()
for epoch in range(a.pretrain_epochs):
    pre()
for epoch in range(a.finetune_epochs):
    fine()
"""
HF = """from transformers import Trainer, TrainingArguments
args = TrainingArguments("out", per_device_train_batch_size=8, learning_rate=5e-5, save_strategy="epoch")
Trainer(model=model, args=args, train_dataset=ds).train()
"""
ABSL = """from absl import app, flags
FLAGS = flags.FLAGS
flags.DEFINE_integer('num_training_steps', 100_000, 'Steps.')
flags.DEFINE_integer('eval_steps', 100, 'Eval steps.')
def main(_):
    for step in range(FLAGS.num_training_steps):
        update()
if __name__ == '__main__':
    app.run(main)
"""
JAX = """import ml_collections
def get_config():
    c = ml_collections.ConfigDict()
    c.lr = 1e-3
    c.num_epochs = 31
    c.model = ml_collections.ConfigDict()
    c.model.num_layers = 12
    return c
"""
TOML = "[train]\nbatch = 8\nmax_steps = 45_000\n[valid]\nmax_steps = 50\n"
MAKE_2 = "EPOCHS := 13\nPY := python3\n\n.PHONY: all train\nall: train eval\n\ntrain:\n\t$(PY) train.py --epochs $(EPOCHS)\n\neval:\n\t$(PY) eval.py --ckpt out\n"
COMPOSE = "services:\n  train:\n    image: a\n    command: python train.py --epochs 19\n"
PYPROJ = '[tool.poe.tasks]\ntrain = "python train.py --epochs 23"\n'

SECOND = [
    (
        "sbatch slurm_train.sh configs/seg.py",
        _of(None, 160_000),
        (("slurm_train.sh", SEGFORMER), ("configs/seg.py", SEGCFG), ("configs/base.py", BASECFG)),
    ),
    (
        "sbatch slurm_train.sh configs/only.py --amp",
        _of(12),
        (
            ("slurm_train.sh", SEGFORMER),
            ("configs/only.py", ONLY_BASE),
            ("configs/schedule.py", SCHEDULE),
        ),
    ),
    ("sbatch pi.sh", _of(None, 30_000), (("pi.sh", OPENPI),)),
    ("qsub -l gpu=1 sge.sh", _of(60), (("sge.sh", TWO_SEEDS),)),
    ("bsub < bert.lsf", _of(5), (("bert.lsf", LSF),)),
    ("bash ternary.sh", _of(None, 50_000), (("ternary.sh", TERNARY),)),
    ("bash bc.sh", _of(None, 9536), (("bc.sh", BC),)),
    ("bash assoc.sh svhn", _of(100), (("assoc.sh", ASSOC),)),
    ("bash sourced.sh", _of(26), (("sourced.sh", SOURCED), ("settings.env", SETTINGS))),
    ("./traps.sh", _of(48), (("traps.sh", TRAPS),)),
    ("bash background.sh", _of(35), (("background.sh", BACKGROUND),)),
    ("bash spin.sh", _of(5, runs=inf), (("spin.sh", SPIN),)),
    ("bash stepped.sh", _of(3, runs=10), (("stepped.sh", STEPPED),)),
    ("sbatch ifhas.sh", _of(70), (("ifhas.sh", IFHAS),)),
    ("bash evalfirst.sh", _of(64), (("evalfirst.sh", EVALFIRST),)),
    (
        "python train.py config/char.py",
        _of(None, 5_000),
        (("train.py", NANOTRAIN), ("config/char.py", NANO)),
    ),
    ("python train.py", _of(None, 600_000), (("train.py", NANOTRAIN),)),
    ("python train.py --max_iters=100 --compile=False", _of(None, 100), (("train.py", NANOTRAIN),)),
    ("python fit.py", _of(None, 400), (("fit.py", SKLEARN),)),
    ("python -u boost.py", _of(None, 1_200), (("boost.py", XGB),)),
    (
        "micromamba run -n rl python sac_humanoid.py",
        _of(None, 2_000_000),
        (("sac_humanoid.py", SB3),),
    ),
    ("python3 wgan.py --lr 1e-4", _of(200), (("wgan.py", GAN),)),
    ("srun python driver.py exp.yaml", _of(17), (("driver.py", YAMLED), ("exp.yaml", YAMLCFG))),
    ("python twostage.py", _of(), (("twostage.py", TWOLOOPS),)),
    ("torchrun --nproc_per_node=4 hf.py", _of(3), (("hf.py", HF),)),
    ("python main_jax.py --workdir w", _of(None, 100_000), (("main_jax.py", ABSL),)),
    ("python main.py --config=configs/default.py", _of(31), (("configs/default.py", JAX),)),
    (
        "python main.py --config=configs/default.py --config.num_epochs=8",
        _of(8),
        (("configs/default.py", JAX),),
    ),
    ("cargo run --release -- train --config t.toml", _of(None, 45_000), (("t.toml", TOML),)),
    ("make -j4", _of(13), (("Makefile", MAKE_2),)),
    ("make EPOCHS=2 train", _of(2), (("Makefile", MAKE_2),)),
    ("docker compose run train", _of(19), (("docker-compose.yml", COMPOSE),)),
    ("poe train", _of(23), (("pyproject.toml", PYPROJ),)),
    (
        "accelerate launch --num_processes 8 --mixed_precision bf16 examples/train_sdxl.py --resolution 1024 --max_train_steps=15000 --checkpointing_steps=500 --validation_epochs 25",
        _of(None, 15_000),
        (),
    ),
    (
        "python -m lightning.pytorch.cli fit --trainer.max_epochs=100 --trainer.limit_val_batches=50",
        _of(100),
        (),
    ),
    (
        "env WANDB_MODE=offline TOKENIZERS_PARALLELISM=false python src/run.py -cn big train.num_epochs=7 +train.debug=false",
        _of(7),
        (),
    ),
    (
        'bash -c "cd /w && CUDA_VISIBLE_DEVICES=0,1 python train.py --dataset {a,b} --epochs 11"',
        _of(11),
        (),
    ),
    ("apptainer run --nv --env EPOCHS=5 img.sif python train.py --epochs 45", _of(45), ()),
    (
        "kubectl run t --image=a --restart=Never -- sh -c 'python /app/train.py --num-iterations 2500'",
        _of(None, 2_500),
        (),
    ),
    (
        "nsys profile -o r --trace=cuda,nvtx python train.py --train-steps 300 --profile",
        _of(None, 300),
        (),
    ),
]

COMMANDS: tuple[tuple[str, Amount, tuple[tuple[str, str], ...]], ...] = (
    *FIRST,
    *SECOND,
)
