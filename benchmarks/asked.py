"""Measures how often the reader finds what a command asks for: its epochs, steps and runs.

    python -m benchmarks.asked --json [--show]

Commands of our own in the shapes that people submit: shells, launchers, batch scripts, sweeps,
settings files. What each asks for was written beside it before any was read. A command is read
rightly if its epochs, steps and runs are these; it is unknown if something is not found, and wrong
if another number is. Prints whether `asked_budget.json` holds.
"""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

from benchmarks import asked_clusters, asked_public
from benchmarks.calibration import program
from features.amounts import Amount
from features.asked import amount_of

BUDGET = Path(__file__).with_name("asked_budget.json")
Answer = Literal["right", "unknown", "wrong"]


class Asked(NamedTuple):
    """A command, what it asks for, and the files beside it."""

    command: str
    amount: Amount
    files: tuple[tuple[str, str], ...] = ()


def _of(
    epochs: float | None = None, steps: float | None = None, runs: float | None = None
) -> Amount:
    return Amount(epochs, steps, runs=runs)


DDP = """#!/bin/bash
#SBATCH --job-name=resnet
#SBATCH --nodes=4
#SBATCH --gres=gpu:8
#SBATCH --time=48:00:00
set -euo pipefail
module purge; module load cuda/12.1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export OMP_NUM_THREADS=8
srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 \\
    --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500 \\
    main.py --arch resnet50 \\
    --epochs 90 --lr 0.8 /data/imagenet
"""
LAUNCHER = """#!/bin/bash
#SBATCH -N 2
NAME=${1:-base}
EPOCHS=${2:-40}
LAUNCHER="accelerate launch --num_machines $SLURM_NNODES --machine_rank \\$SLURM_PROCID"
CMD="train.py --name $NAME --num_train_epochs $EPOCHS --report_to none"
srun --jobid $SLURM_JOB_ID bash -c "$LAUNCHER $CMD"
"""
MEGATRON = """#!/bin/bash
GPT_ARGS="
    --num-layers 24
    --seq-length 2048
    --train-iters 500000
    --lr-decay-iters 320000
"
OUTPUT_ARGS="--log-interval 100 --eval-iters 10 --save-interval 10000"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py $GPT_ARGS $OUTPUT_ARGS
"""
ARRAYED = """#!/bin/bash
#SBATCH --array=0-9
SEEDS=(0 1 2 3 4 5 6 7 8 9)
SEED=${SEEDS[$SLURM_ARRAY_TASK_ID]}
python run.py --seed $SEED --max_epochs 25
"""
LOOPED = """#!/bin/bash
DATASETS=(cora citeseer pubmed)
for d in "${DATASETS[@]}"; do
  for s in {0..9}; do
    python gcn.py --dataset $d --seed $s --epochs 200
  done
done
"""
FUNCTION = """#!/bin/bash
train() {
  python t.py --epochs 5 --seed "$1"
}
train 1
train 2
"""
CHOSEN = """#!/bin/bash
case "$1" in
  small) EPOCHS=10 ;;
  large) EPOCHS=100 ;;
esac
python t.py --epochs $EPOCHS
"""
HEREDOC = """#!/bin/bash
cat > run.yaml <<EOF
model: base
epochs: 12
EOF
python t.py --config run.yaml
"""
STAGES = """#!/bin/bash
python prepare.py --workers 8
python train.py --stage 1 --epochs 10
python train.py --stage 2 --epochs 30 --init out/stage1
"""
COMMENTED = """#!/bin/bash
# python train.py --epochs 300
python train.py --epochs 30  # was 300
"""
LORA = """model_name_or_path: base
stage: sft
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
save_steps: 500
eval_steps: 500
"""
AXOLOTL = """base_model: x
micro_batch_size: 2
num_epochs: 4
warmup_steps: 10
evals_per_epoch: 4
"""
CLI = """trainer:
  max_epochs: 60
  max_steps: -1
  check_val_every_n_epoch: 5
model:
  lr: 0.1
"""
NEOX = """{
  "num-layers": 12,
  "train-iters": 320000,
  "lr-decay-iters": 320000,
  "eval-iters": 10
}
"""
DS = """{"train_batch_size": 64, "scheduler": {"type": "WarmupDecayLR",
"params": {"total_num_steps": 9000, "warmup_num_steps": 90}}}
"""
KOHYA = 'pretrained = "x"\nmax_train_epochs = 16\nsave_every_n_epochs = 2\n'
TITAN = """[job]
dump_folder = "o"
[lr_scheduler]
warmup_steps = 200
[training]
steps = 4000
seq_len = 8192
"""
COQUI = '{"run_name": "a", "epochs": 1000, "batch_size": 32, "print_step": 25, "save_step": 1000}'
BRAIN = "seed: 1\nnumber_of_epochs: 30\nbatch_size: 8\nlr: 1.0\n"
DETECTRON = "MODEL:\n  META: x\nSOLVER:\n  MAX_ITER: 270000\n  STEPS: (210000, 250000)\n"
MMENGINE = """model = dict(type='A')
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=24, val_interval=2)
"""
ONLY_WARM = "train:\n  warmup_epochs: 5\n  save_every: 10\n"
NULLED = "trainer:\n  max_epochs: null\n  max_steps: 70000\n"
INTERPOLATED = "base: 20\ntrain:\n  epochs: ${base}\n"
SWEPT = "method: grid\nprogram: train.py\nparameters:\n  epochs:\n    values: [5, 10]\n"
HYDRA = "defaults:\n  - optim: adam\n  - _self_\nepochs: 11\n"
ADAM = "name: adam\nlr: 0.1\n"

SHELLS = [
    Asked(
        "bash -lc 'source ~/.bashrc && conda activate sd && cd /scratch/p && accelerate launch"
        " --multi_gpu train_dreambooth.py --max_train_steps 800'",
        _of(None, 800),
    ),
    Asked("bash -c 'ulimit -n 4096; umask 022; python main.py --n-epochs 14'", _of(14)),
    Asked("bash -c 'cd \"$SLURM_SUBMIT_DIR\" && python main.py --nepochs 14'", _of(14)),
    Asked("bash -c 'mkdir -p out; python main.py --epochs 14 2>&1 | tee -a out/log.txt'", _of(14)),
    Asked("bash -c '( cd a; python main.py --epochs 14 )'", _of(14)),
    Asked("bash -c '{ python main.py --epochs 14; } >> log'", _of(14)),
    Asked("bash -c 'N=7; python main.py --epochs \"$N\" --lr 1e-3'", _of(7)),
    Asked("bash -c 'N=7; N=$((N*2)); python main.py --epochs $N'", _of(14)),
    Asked("bash -c ': ${N:=6}; python main.py --epochs $N'", _of(6)),
    Asked("bash -c 'python main.py --epochs $N'", _of()),
    Asked("bash -c 'python main.py --epochs $(cat n.txt)'", _of()),
    Asked("bash -c 'python main.py $(cat args.txt)'", _of()),
    Asked("bash -c 'python main.py --epochs 14 && touch done || touch failed'", _of(14)),
    Asked("bash -c 'trap \"touch x\" EXIT; python main.py --epochs 14'", _of(14)),
    Asked("bash -c 'nvidia-smi; nvidia-smi topo -m; python main.py --epochs 14'", _of(14)),
    Asked("bash -c 'pip install -q -r r.txt && python main.py --epochs 14'", _of(14)),
    Asked("bash -c 'git pull && git checkout abc123 && make && python main.py --epochs 9'", _of(9)),
    Asked("bash -c 'while ! python main.py --epochs 14 --resume; do sleep 5; done'", _of(14)),
    Asked("bash -c 'until python main.py --epochs 14 --resume; do sleep 5; done'", _of(14)),
    Asked("bash -c 'python main.py --epochs 14 & wait $!'", _of(14)),
    Asked(
        "bash -c 'for f in 0 1 2 3 4; do python main.py --fold $f --epochs 8; done'", _of(8, runs=5)
    ),
    Asked(
        "bash -c 'for f in $(seq 0 4)\ndo\npython main.py --fold $f --epochs 8\ndone'",
        _of(8, runs=5),
    ),
    Asked(
        "bash -c 'for s in {1..10}; do python main.py --seed $s --steps 900; done'",
        _of(None, 900, 10),
    ),
    Asked(
        "bash -c 'for m in a b; do for s in 1 2 3; do python $m.py --epochs 8; done; done'",
        _of(8, runs=6),
    ),
    Asked("bash -c 'for c in conf/*.yaml; do python main.py --config $c; done'", _of(runs=inf)),
    Asked("bash -c 'python main.py --epochs 8; python test.py --ckpt best.pt'", _of(8)),
    Asked("bash -c 'python pretrain.py --epochs 8; python finetune.py --epochs 3'", _of(runs=2)),
    Asked("bash -c 'ssh node7 \"cd /a && python main.py --epochs 8\"'", _of(8)),
    Asked("ssh -o BatchMode=yes node7 'cd /a && python main.py --epochs 8'", _of(8)),
    Asked("su - ml -c 'python main.py --epochs 8'", _of(8)),
    Asked("sudo -E -u ml python main.py --epochs 8", _of(8)),
    Asked("bash -c 'eval \"python main.py --epochs 8\"'", _of(8)),
    Asked("bash -c 'echo python main.py --epochs 8'", _of()),
    Asked("bash -ic 'workon tf && python main.py --epochs 8'", _of(8)),
]
LAUNCHERS = [
    Asked(
        "torchrun --nproc-per-node=gpu -m open_clip_train.main --epochs 32 --warmup 2000", _of(32)
    ),
    Asked("python -u -X faulthandler -W ignore -m pack.main --epochs 32", _of(32)),
    Asked("python -m coverage run main.py --epochs 32", _of(32)),
    Asked("taskset -c 0-15 nice -n 10 python main.py --epochs 32", _of(32)),
    Asked("xvfb-run -a -s '-screen 0 1400x900x24' python main.py --epochs 32", _of(32)),
    Asked("kubectl exec pod-0 -- python main.py --epochs 32", _of(32)),
    Asked(
        "srun --container-image=nvcr.io/nvidia/pytorch:24.01-py3 python main.py --epochs 32",
        _of(32),
    ),
    Asked("podman run --device nvidia.com/gpu=all --rm img python main.py --epochs 32", _of(32)),
    Asked("ch-run /img -- python main.py --epochs 32", _of(32)),
    Asked("enroot start --mount /d:/d img python main.py --epochs 32", _of(32)),
    Asked("hatch run python main.py --epochs 32", _of(32)),
    Asked("pdm run main.py --epochs 32", _of(32)),
    Asked("mlflow run . -P epochs=32 -P lr=0.1", _of(32)),
    Asked("dvc exp run --set-param train.epochs=32", _of(32)),
    Asked("ncu -o prof --target-processes all python main.py --steps 32", _of(None, 32)),
    Asked("ipython main.py -- --epochs 32", _of(32)),
    Asked("mpiexec -n 8 python main.py --epochs 32", _of(32)),
    Asked("jsrun -n 4 -g 6 python main.py --epochs 32", _of(32)),
    Asked("aprun -n 4 python main.py --epochs 32", _of(32)),
    Asked(
        "deepspeed --include localhost:0,1 sft.py --num_train_epochs 2 --deepspeed ds.json",
        _of(2),
        (("ds.json", DS),),
    ),
    Asked("colossalai run --nproc_per_node 8 main.py --num_epochs 3", _of(3)),
    Asked("mmengine launch", _of()),
    Asked("bash tools/dist_train.sh configs/a.py 8 --cfg-options train_cfg.max_epochs=36", _of(36)),
    Asked("python tools/train.py configs/a.py", _of(24), (("configs/a.py", MMENGINE),)),
    Asked(
        "spacy train c.cfg --output o --training.max_steps 20000 --training.patience 0",
        _of(None, 20_000),
    ),
    Asked("ns-train nerfacto --data d --max-num-iterations 30000", _of(None, 30_000)),
    Asked("lightgbm config=train.conf num_trees=500", _of(None, 500)),
    Asked("catboost fit --learn-set a.tsv --iterations 2000 --depth 6", _of(None, 2_000)),
    Asked("t2t-trainer --problem=x --train_steps=250000 --eval_steps=100", _of(None, 250_000)),
    Asked("vllm serve meta/x --tensor-parallel-size 4", _of()),
    Asked("lm_eval --model hf --tasks mmlu --num_fewshot 5", _of()),
    Asked("tensorboard --logdir runs", _of()),
]
OPTIONS = [
    Asked("python main.py --num_train_epochs 3 --max_steps 1000", _of(None, 1_000)),
    Asked("python main.py --epochs 20 --steps_per_epoch 1000", _of(20)),
    Asked("python main.py --epochs 26 --lr-steps 16 22", _of(26)),
    Asked("python main.py --max_epochs 100 --eval_epochs 5 --log_every_n_steps 50", _of(100)),
    Asked("python main.py --load_epoch 30", _of()),
    Asked("python test.py --test_epoch 200", _of()),
    Asked("python main.py --resume_epoch 10 --num_epochs 200", _of(200)),
    Asked("python main.py --num_epochs_per_decay 2.5 --max_train_steps 40000", _of(None, 40_000)),
    Asked(
        "python cleanrl/ppo.py --total-timesteps 500000 --num-steps 128 --update-epochs 4",
        _of(None, 500_000),
    ),
    Asked("python dqn.py --max_steps_per_episode 1000 --lr 1e-3", _of()),
    Asked("python train.py task=Ant max_iterations=500 headless=True", _of(None, 500)),
    Asked(
        "python train.py -s d --iterations 30000 --test_iterations 7000 30000", _of(None, 30_000)
    ),
    Asked("python train.py --n_epochs 100 --n_epochs_decay 100 --model cycle_gan", _of(200)),
    # what its output counts: "tick 12 kimg 48.1"
    Asked("python train.py --kimg 25000 --snap 50 --cfg stylegan3-t", _of(None, 25_000)),
    Asked(
        "python pretrain_gpt.py --train-samples 1000000 --global-batch-size 500", _of(None, 2_000)
    ),
    Asked("python train.py --max_updates=50000 --update_freq 4", _of(None, 50_000)),
    Asked("python train.py --config.total_epochs=90 --config configs/vit.py", _of(90)),
    Asked(
        "python train_net.py --num-gpus 8 --config-file a.yaml SOLVER.MAX_ITER 90000",
        _of(None, 90_000),
        (("a.yaml", DETECTRON),),
    ),
    Asked("python main.py --cfg a.yaml --opts TRAIN.EPOCHS 300 TRAIN.WARMUP_EPOCHS 20", _of(300)),
    Asked("python train.py --epochs 1_000", _of(1_000)),
    Asked("python train.py --num-steps=3e4", _of(None, 30_000)),
    Asked("python train.py --max-steps 250k", _of(None, 250_000)),
    Asked("python train.py --epochs=-1 --max_steps=500", _of(None, 500)),
    Asked("python train.py --epochs 0 --eval_only", _of()),
    Asked("python train.py --EPOCHS 12", _of(12)),
    Asked("python train.py -epochs 12", _of(12)),
    Asked("python train.py epochs 12", _of()),
    Asked("python train.py --name epochs=12 --epochs 4", _of(4)),
    Asked("python train.py --output out/epochs=30/steps=5", _of()),
    Asked("python train.py --checkpoint ckpt/epoch=9-step=1000.ckpt --max_epochs 20", _of(20)),
    Asked("python train.py --train_epochs 10 --patience 3", _of(10)),
    Asked("python run.py --train_epochs 10 --itr 3 --patience 3", _of(10, runs=3)),
    Asked("python train.py --epochs 10 --num_repeats 5", _of(10, runs=5)),
    Asked("python train.py --epochs 10 --runs 5", _of(10, runs=5)),
    Asked("python tune.py --num_samples 20 --max_epochs 10", _of(10)),
    Asked("python train.py --multirun optim=adam,sgd trainer.max_epochs=10", _of(10, runs=2)),
    Asked("python train.py --multirun trainer.max_epochs=10,20", _of(runs=2)),
    Asked("python train.py -m 'seed=range(5)' epochs=10", _of(10, runs=5)),
    Asked("python train.py 'hydra.run.dir=out/epochs-10' epochs=7", _of(7)),
    Asked("python train.py +experiment=large ~logger trainer.max_steps=1_000", _of(None, 1_000)),
]
FILES = [
    Asked("sbatch job.sh", _of(90), (("job.sh", DDP),)),
    Asked("sbatch --dependency=afterok:1 job.sh", _of(90), (("job.sh", DDP),)),
    Asked("sbatch launch.sh", _of(40), (("launch.sh", LAUNCHER),)),
    Asked("sbatch launch.sh big 8", _of(8), (("launch.sh", LAUNCHER),)),
    Asked("bash megatron.sh", _of(None, 500_000), (("megatron.sh", MEGATRON),)),
    Asked("sbatch array.sh", _of(25), (("array.sh", ARRAYED),)),
    Asked("./looped.sh", _of(200, runs=30), (("looped.sh", LOOPED),)),
    Asked("bash function.sh", _of(5, runs=2), (("function.sh", FUNCTION),)),
    Asked("bash chosen.sh small", _of(10), (("chosen.sh", CHOSEN),)),
    Asked("bash heredoc.sh", _of(12), (("heredoc.sh", HEREDOC),)),
    Asked("bash stages.sh", _of(runs=2), (("stages.sh", STAGES),)),
    Asked("bash commented.sh", _of(30), (("commented.sh", COMMENTED),)),
    Asked("llamafactory-cli train lora.yaml", _of(3), (("lora.yaml", LORA),)),
    Asked("llamafactory-cli train lora.yaml num_train_epochs=5", _of(5), (("lora.yaml", LORA),)),
    Asked("axolotl train a.yml", _of(4), (("a.yml", AXOLOTL),)),
    Asked("accelerate launch -m axolotl.cli.train a.yml", _of(4), (("a.yml", AXOLOTL),)),
    Asked("python main.py fit -c cli.yaml", _of(60), (("cli.yaml", CLI),)),
    Asked(
        "python main.py fit --config cli.yaml --trainer.max_epochs 15",
        _of(15),
        (("cli.yaml", CLI),),
    ),
    Asked("python deepy.py train.py small.yml", _of(None, 320_000), (("small.yml", NEOX),)),
    Asked("deepspeed main.py --deepspeed_config ds.json", _of(), (("ds.json", DS),)),
    Asked("accelerate launch lora.py --config_file k.toml", _of(16), (("k.toml", KOHYA),)),
    Asked("torchrun train.py --job.config_file t.toml", _of(None, 4_000), (("t.toml", TITAN),)),
    Asked(
        "torchrun train.py --job.config_file t.toml --training.steps 50",
        _of(None, 50),
        (("t.toml", TITAN),),
    ),
    Asked("python train_tts.py --config_path c.json", _of(1_000), (("c.json", COQUI),)),
    Asked("python train.py hparams.yaml --data_folder d", _of(30), (("hparams.yaml", BRAIN),)),
    Asked(
        "python train.py hparams.yaml --number_of_epochs 15", _of(15), (("hparams.yaml", BRAIN),)
    ),
    Asked("python train_net.py --config-file a.yaml", _of(None, 270_000), (("a.yaml", DETECTRON),)),
    Asked("python train.py --config w.yaml", _of(), (("w.yaml", ONLY_WARM),)),
    Asked("python train.py --config n.yaml", _of(None, 70_000), (("n.yaml", NULLED),)),
    Asked("python train.py --config i.yaml", _of(20), (("i.yaml", INTERPOLATED),)),
    Asked("python train.py --sweep sweep.yaml", _of(), (("sweep.yaml", SWEPT),)),
    Asked(
        "python train.py --config-path conf --config-name a",
        _of(11),
        (("conf/a.yaml", HYDRA), ("conf/optim/adam.yaml", ADAM)),
    ),
    Asked(
        "python train.py --config-dir conf --config-name a epochs=6",
        _of(6),
        (("conf/a.yaml", HYDRA),),
    ),
    Asked("bash -c 'cd sub && python t.py --config l.yaml'", _of(3), (("sub/l.yaml", LORA),)),
]
# read once, after the last change that the others led to
STAGED = """#!/usr/bin/env bash
#SBATCH -J diffusion
#SBATCH -o %x-%j.out
source /opt/conda/etc/profile.d/conda.sh
conda activate diff
BATCH=16
GRAD_ACC=4
STEPS=$((BATCH * GRAD_ACC * 500))
if [ ! -d "$DATA" ]; then
    python fetch.py --out "$DATA" --retries 3
fi
accelerate launch train.py \\
  --train_batch_size "$BATCH" \\
  --gradient_accumulation_steps "$GRAD_ACC" \\
  --max_train_steps "$STEPS"
"""
DEBUG = """#!/bin/bash
EPOCHS=300
if [ "$DEBUG" = "1" ]; then
  EPOCHS=1
fi
python train.py --epochs "$EPOCHS"
"""
DEFAULTS = """#!/bin/bash
while [[ $# -gt 0 ]]; do
  case $1 in
    --epochs) EPOCHS="$2"; shift 2 ;;
    *) shift ;;
  esac
done
EPOCHS=${EPOCHS:-20}
python train.py --epochs $EPOCHS
"""
ARGUMENTS = """#!/bin/bash
ARGS=(
  --model vit   # the small one
  --lr 1e-4
  --max-steps 45000
)
[[ -n "$RESUME" ]] && ARGS+=(--resume "$RESUME")
srun python -m pack.train "${ARGS[@]}" "$@"
"""
GRID = """#!/bin/bash
LRS="1e-3 1e-4"
WDS="0 0.1 0.2"
for lr in $LRS; do
  for wd in $WDS; do
    python train.py --lr $lr --wd $wd --epochs 15 > logs/$lr-$wd.log
  done
done
"""
CALLS = """#!/bin/bash
#SBATCH --gpus=4
srun bash inner.sh 30
"""
INNER = "#!/bin/bash\npython train.py --epochs $1\n"
REQUEUE = """#!/bin/bash
#SBATCH --signal=B:USR1@120
handler() {
  scontrol requeue "$SLURM_JOB_ID"
}
trap handler USR1
python train.py --max_epochs 500 --ckpt last.ckpt &
wait $!
"""
WANDB = """#!/bin/bash
wandb login "$WANDB_KEY"
wandb agent --count 4 team/proj/x1
"""
COPIED = """#!/bin/bash
echo "python train.py --epochs 999" > cmd.txt
printf 'epochs: %s\\n' 5
rsync -a /data/ "$TMPDIR"/
python train.py --epochs 50 --data "$TMPDIR"
rsync -a out/ /results/
"""
TRAINER = """seed_everything: 1
trainer:
  max_epochs: 35
  callbacks:
    - class_path: lightning.pytorch.callbacks.EarlyStopping
      init_args: {patience: 7}
data:
  batch_size: 64
"""
SCHEDULED = """optimizer: {name: sgd, lr: 0.1}
lr_scheduler: {name: cosine, epochs: 90, warmup_epochs: 5}
max_epochs: 45
eval: {steps: 100, epochs: 3}
"""
TYPED = "max_steps: 2e5\nlearning_rate: 1e-4\n"
STRINGED = '{"epochs": "75", "lr": "0.1"}'
PYTHONIC = """def get_config():
  config = ml_collections.ConfigDict()
  config.num_train_steps = 88_000
  config.warmup_steps = 1000
  config.eval_steps = 20
  return config
"""
ACCELERATE = "compute_environment: LOCAL_MACHINE\nnum_processes: 8\nmixed_precision: bf16\n"
FEDERATED = "[tool.flwr.app.config]\nnum-server-rounds = 30\nlocal-epochs = 1\n"
KEPT = [
    Asked("sbatch staged.sh", _of(None, 32_000), (("staged.sh", STAGED),)),
    Asked("sbatch debug.sh", _of(), (("debug.sh", DEBUG),)),
    Asked("bash defaults.sh --epochs 33", _of(33), (("defaults.sh", DEFAULTS),)),
    Asked("bash arguments.sh", _of(None, 45_000), (("arguments.sh", ARGUMENTS),)),
    Asked("bash arguments.sh --max-steps 10", _of(None, 10), (("arguments.sh", ARGUMENTS),)),
    Asked("bash grid.sh", _of(15, runs=6), (("grid.sh", GRID),)),
    Asked("sbatch calls.sh", _of(30), (("calls.sh", CALLS), ("inner.sh", INNER))),
    Asked("sbatch requeue.sh", _of(500), (("requeue.sh", REQUEUE),)),
    Asked("bash wandb.sh", _of(runs=4), (("wandb.sh", WANDB),)),
    Asked("bash copied.sh", _of(50), (("copied.sh", COPIED),)),
    Asked(
        "python main.py fit --config=t.yaml --data.batch_size=32", _of(35), (("t.yaml", TRAINER),)
    ),
    Asked("python main.py --config s.yaml", _of(45), (("s.yaml", SCHEDULED),)),
    Asked("python main.py --config s.yaml max_epochs=12", _of(12), (("s.yaml", SCHEDULED),)),
    Asked("python main.py --hparams typed.yaml", _of(None, 200_000), (("typed.yaml", TYPED),)),
    Asked("python main.py -c s.json", _of(75), (("s.json", STRINGED),)),
    Asked(
        "python main.py --config=configs/p.py --workdir=/w",
        _of(None, 88_000),
        (("configs/p.py", PYTHONIC),),
    ),
    Asked(
        "accelerate launch --config_file acc.yaml sft.py --num_train_epochs 2",
        _of(2),
        (("acc.yaml", ACCELERATE),),
    ),
    Asked("flwr run . --run-config a.toml", _of(None, 30), (("a.toml", FEDERATED),)),
    Asked(
        "bash -c 'E=(5 10 15); for e in \"${E[@]}\"; do python t.py --epochs $e; done'", _of(runs=3)
    ),
    Asked(
        "bash -c 'S=(1 2 3); for s in ${S[*]}; do python t.py --seed $s --epochs 4; done'",
        _of(4, runs=3),
    ),
    Asked("bash -c 'E=5; [ -n \"$LONG\" ] && E=50; python t.py --epochs $E'", _of()),
    Asked("bash -c 'if [[ $1 == full ]]; then E=90; else E=5; fi; python t.py --epochs $E'", _of()),
    Asked("bash -c 'GPUS=8; BS=$((256/GPUS)); python t.py --batch-size $BS --epochs 21'", _of(21)),
    Asked("bash -c 'python t.py --epochs $(( ${A:-2} * 10 ))'", _of(20)),
    Asked("bash -c 'run() { python t.py --epochs 7 \"$@\"; }; run --seed 1'", _of(7)),
    Asked(
        "bash -c 'n=0; until python t.py --epochs 7 --resume || [ $n -ge 3 ]; do n=$((n+1)); done'",
        _of(7),
    ),
    Asked("bash -c 'timeout 23h python t.py --epochs 7 --resume || sbatch again.sh'", _of(7)),
    Asked("bash -c 'cat cfg.yaml; python t.py --epochs 7; echo done --epochs 9'", _of(7)),
    Asked("bash -c 'set -x; time srun -n 8 python -u t.py --epochs=7 |& tee log'", _of(7)),
    Asked("bash -c 'python t.py --epochs 7 < /dev/null > a.log 2> b.log &' ", _of(7)),
    Asked("bash -c 'ls data | wc -l; du -sh data; python t.py --num-epochs 7'", _of(7)),
    Asked("bash -c 'tmux new-session -d \"python t.py --epochs 7\"'", _of(7)),
    Asked("bash -c 'ssh -p 22 -i key u@n1 torchrun t.py --epochs 7'", _of(7)),
    Asked(
        "bash -c 'export CUDA_VISIBLE_DEVICES=0; for k in 1 2 3 4 5; do python kfold.py --k $k"
        " --max-epochs 60; done; python merge.py'",
        _of(60, runs=5),
    ),
    Asked("bash -c 'for split in train val; do python embed.py --split $split; done'", _of(runs=2)),
    Asked("srun --pty bash -lc 'module load anaconda; python t.py --epochs 7'", _of(7)),
    Asked(
        "singularity run --nv --bind /d img.sif bash -c 'cd /d && python t.py --epochs 7'", _of(7)
    ),
    Asked(
        "python -m torch.distributed.run --nproc_per_node 4 -m pack.train trainer.max_steps=9000",
        _of(None, 9_000),
    ),
    Asked(
        "python run_glue.py --do_train --num_train_epochs 4 --max_steps -1 --task_name mrpc", _of(4)
    ),
    Asked(
        "python train_dreambooth.py --num_train_epochs 100 --max_train_steps 1200", _of(None, 1_200)
    ),
    Asked(
        "python pretrain_bert.py --train-samples 4_000_000 --global-batch-size 2000"
        " --micro-batch-size 4",
        _of(None, 2_000),
    ),
    Asked(
        "python train.py --model pix2pix --n_epochs_decay 50 --n_epochs 150 --lr_policy linear",
        _of(200),
    ),
    Asked("python tools/train.py --cfg e.yaml TRAIN.END_EPOCH 210 TEST.EPOCHS 3", _of(210)),
    Asked(
        "python main.py --cfg-options optim_wrapper.lr=0.1 train_cfg.max_iters=80000",
        _of(None, 80_000),
    ),
    Asked("xgboost a.conf num_round=300 max_depth=8", _of(None, 300)),
    Asked(
        "python train.py --multirun 'seed=range(1,4)' 'lr=choice(0.1,0.01)' epochs=10",
        _of(10, runs=6),
    ),
    Asked("python train.py --multirun '+experiment=glob(*)' epochs=10", _of(10, runs=inf)),
    Asked("python run.py --n_seeds 3 --max_epochs 50 --early_stop_patience 10", _of(50, runs=3)),
    Asked("python train_dqn.py --num_episodes 500 --max_steps_per_episode 200", _of()),
    Asked("python sample.py --num_inference_steps 50 --prompt x", _of()),
    Asked("python dp_main.py train input.json --numb_steps 1000000", _of(None, 1_000_000)),
    Asked(
        "python vall_e.py --num-epochs 20 --start-epoch 1 --save-every-n 1000 --keep-last-epoch 3",
        _of(20),
    ),
    Asked("paddle_train --max_iter 40000 --eval_iter 1000 --save_interval 1000", _of(None, 40_000)),
    Asked("lit fit --trainer.limit_train_batches 100 --trainer.max_epochs 8", _of(8)),
]
CLUSTERS = [Asked(*one) for one in asked_clusters.COMMANDS]
PUBLIC = [Asked(*one) for one in asked_public.COMMANDS]
COMMANDS = (*SHELLS, *LAUNCHERS, *OPTIONS, *FILES, *KEPT, *CLUSTERS, *PUBLIC)


def found(asked: Asked) -> Amount:
    """Return the amount of training that is read from a case's command. The command is not run;
    the files of its case lie in the folder that it names or starts in."""
    with TemporaryDirectory() as folder:
        for name, text in asked.files:
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return amount_of(shlex.split(asked.command), Path(folder))


def judged(amount: Amount, right: Amount) -> Answer:
    """Return whether an amount that was read is the right one, says less, or something else."""
    pairs = [(getattr(amount, of), getattr(right, of)) for of in ("epochs", "steps", "runs")]
    if all(one == other for one, other in pairs):
        return "right"
    return "unknown" if all(one in (None, other) for one, other in pairs) else "wrong"


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    """Read every command. Return how many were read how, and which not rightly."""
    read = [(one, found(one)) for one in COMMANDS]
    answers = [(one, amount, judged(amount, one.amount)) for one, amount in read]
    missed = [(answer, one.command, amount) for one, amount, answer in answers if answer != "right"]
    if asked.show:
        for answer, command, amount in missed:
            print(answer, command, amount, sep="\t")
    counts = Counter(answer for _, _, answer in answers)
    shares = {
        f"{kind}_share": counts[kind] / len(answers) for kind in ("right", "unknown", "wrong")
    }
    return {
        "commands": len(answers),
        **{name: round(share, 4) for name, share in shares.items()},
        "not_right": [command for _, command, _ in missed],
    }


if __name__ == "__main__":
    program(
        __doc__,
        BUDGET,
        measured,
        show={"action": "store_true", "help": "a line a command that is not read rightly"},
    )
