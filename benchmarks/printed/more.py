"""Further trainings used in developing the reader. At first they had been set aside to judge it."""

from __future__ import annotations

from benchmarks.printed.case import BARS, FEW, MANY, SOME, Case
from benchmarks.printed.log import (
    Run,
    again,
    by_epoch,
    by_step,
    preceded,
    ranks,
)
from benchmarks.printed.shapes import boosting, nested, one_bar, tqdm_epochs


def coqui(t: Run) -> None:
    """Print headings and blocks of steps, as Coqui TTS does."""
    t.begin()
    for e in t.epochs():
        t.line(
            "\n > EPOCH: {e}/{epochs}\n --> out/run-March-01\n\n > TRAINING (2026-03-01 12:00:00)",
            e=e,
        )
        for k in range(t.sizes.every, t.sizes.steps + 1, t.sizes.every):
            t.steps(t.sizes.every)
            t.line(
                "\n   --> TIME: 2026-03-01 12:00:00 -- STEP: {k}/{steps} -- GLOBAL_STEP: {h}\n     | > loss: "
                "{loss:.5f}  (2.30120)\n     | > step_time: {s:.4f}",
                k=k,
                h=e * t.sizes.steps + k,
            )
        t.steps(t.sizes.steps % t.sizes.every)
        t.line("\n > EVALUATION")
        t.validate()
    t.end()


def nerfstudio(t: Run) -> None:
    """Print a table of the steps done, each with its percentage of the run."""
    t.begin()
    t.line("Step (% Done)       Train Iter (time)    ETA (time)           Train Rays / Sec")
    for e in t.epochs():
        for k in range(t.sizes.every, t.sizes.steps + 1, t.sizes.every):
            t.steps(t.sizes.every)
            h = e * t.sizes.steps + k
            left = (t.total - h) * (t.now - t._began) / h
            t.line(
                "{step:<19} {ms:.3f} ms            {left:<20} 1.12 M",
                left=f"{left // 60:.0f} m, {left % 60:.0f} s",
                step=f"{h} ({100 * h / t.total:.2f}%)",
            )
        t.steps(t.sizes.steps % t.sizes.every)
    t.end()


CASES = (
    Case(
        "BasicSR",
        "python basicsr/train.py -opt a.yml",
        by_step(
            "2026-03-01 12:00:00,123 INFO: [train..][epoch: 12, iter:{h:8,d}, lr:(2.000e-04,)] [eta: {eta}, time (data): {s:.3f} (0.010)] l_pix: {loss:.4e} "
        ),
    ),
    Case(
        "StyleGAN",
        "python train.py --outdir out --gpus 8 --kimg {total}",
        by_step(
            "tick {h:<5d} kimg {h:<8.1f} time 10m 12s      sec/tick {s:<7.1f} sec/kimg {s:<7.2f} maintenance 0.1    cpumem 5.12   gpumem 34.01"
        ),
    ),
    Case(
        "Marian",
        "marian -c a.yml --after-epochs {epochs}",
        by_epoch(
            "[2026-03-01 12:00:00] Ep. {n} : Up. {h} : Sen. 91,430 : Cost {loss:.6f} * 9,143 : Time 12.03s : 9143.01 words/s : gNorm 1.2034"
        ),
        SOME,
    ),
    Case("Coqui TTS", "python train_tts.py --config_path a.json", coqui, SOME),
    Case("nerfstudio", "ns-train nerfacto --data a --max-num-iterations {total}", nerfstudio, SOME),
    Case(
        "Caffe",
        "caffe train -solver a.prototxt -gpu all",
        by_step(
            "I0301 12:00:00.123456 139 solver.cpp:239] Iteration {h} ({per_s:.4f} iter/s, 12.034s/40 iters), loss = {loss:.4f}"
        ),
    ),
    Case(
        "Darknet",
        "./darknet detector train a.data b.cfg",
        by_step(
            " {h}: {loss:.6f}, {loss:.6f} avg loss, 0.001000 rate, 3.203412 seconds, 6400 images, {left_h} hours left"
        ),
    ),
    Case(
        "fastText",
        "fasttext supervised -input a -epoch {epochs}",
        by_step(
            "Progress: {percent:5.1f}% words/sec/thread:  512034 lr:  0.041203 avg.loss:  {loss:.6f} ETA:   0h 3m12s"
        ),
        SOME,
    ),
    Case(
        "spaCy",
        "python -m spacy train a.cfg --gpu-id 0 --training.max_steps={total}",
        by_step(
            "{percent:3.0f}  {h:7}         {loss:8.2f}     512.03   51.20   51.20   51.20    0.51",
            head="E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  ENTS_P  ENTS_R  SCORE\n---  ------  ------------  --------  ------  ------  ------  ------",
        ),
    ),
    Case(
        "scikit-learn MLP",
        "python mlp.py --max_iter {epochs}",
        by_epoch(end="Iteration {n}, loss = {loss:.8f}\nValidation score: 0.512034"),
        MANY,
    ),
    Case(
        "Sample Factory",
        "python -m sf_examples.train --train_for_env_steps={total}",
        by_step(
            "[2026-03-01 12:00:00,123][00139] Fps is (10 sec: 9143.1, 60 sec: 9102.3, 300 sec: 9001.2). Total num frames: {h}. Throughput: 0: 9143.1. Samples: 9143. Policy #0 lag: (min: 0.0, avg: 1.2, max: 3.0)"
        ),
    ),
    Case(
        "Tianshou",
        "python a.py --epoch {epochs}",
        tqdm_epochs("Epoch #{n}", "", "env_step={loss:.0f}, loss={loss:.3f}"),
        SOME,
        BARS,
    ),
    Case(
        "RLlib",
        "python tune_ppo.py --stop-iters {epochs}",
        by_epoch(
            end="Training finished iteration {n} at 2026-03-01 12:00:00. Total running time: {took:.0f}s"
        ),
        MANY,
    ),
    Case(
        "OLMo",
        "torchrun train.py a.yaml --max_duration={total}",
        by_step(
            "2026-03-01 12:00:00.123\thost:0\tolmo.train:953\tINFO\t[step={h}/{total},epoch=0]\n    optim/total_grad_norm=1.203\n    train/CrossEntropyLoss={loss:.3f}"
        ),
    ),
    Case(
        "lingua",
        "torchrun -m apps.main.train config=a.yaml steps={total}",
        by_step(
            "0: INFO    26-03-01 12:00:00.123456 - 0:12:03 - step: {h}  acc: 0  loss: {loss:.4f}  grad: 1.20e+00  flops: 1.12e+14  wps: 9.14e+03  iter: {s:.4f}  data: 0.0012  lr: 3.00e-04  mem: 42%  pow: 512 W"
        ),
    ),
    Case(
        "Levanter",
        "python -m levanter.main.train_lm --config a.yaml",
        one_bar("train", "loss={loss:.3f}"),
        SOME,
        BARS,
    ),
    Case(
        "Axolotl",
        "axolotl train a.yaml",
        preceded(
            one_bar("", ""),
            {
                "Dropping Long Sequences": " examples",
                "Add position_id column (Sample Packing)": " examples",
            },
        ),
        FEW,
        BARS,
    ),
    Case(
        "Ludwig",
        "ludwig train --config a.yaml",
        one_bar("Training", "loss={loss:.3f}", test="Evaluation valid"),
        SOME,
        BARS,
    ),
    Case(
        "DiT",
        "torchrun train.py --epochs {epochs}",
        by_epoch(
            "[2026-03-01 12:00:00] (step={h:07d}) Train Loss: {loss:.4f}, Train Steps/Sec: {per_s:.2f}",
            begin="[2026-03-01 12:00:00] Beginning epoch {e}...",
        ),
        SOME,
    ),
    Case(
        "MAE",
        "torchrun main_pretrain.py --epochs {epochs}",
        by_epoch(
            "Epoch: [{e}]  [{i:4d}/{steps}]  eta: {here}  lr: 0.000100  loss: {loss:.4f} ({loss:.4f})  time: {s:.4f}  data: 0.0101  max mem: 34012",
            begin="log_dir: ./out",
            end="Epoch: [{e}] Total time: 0:12:03 (0.5120 s / it)\nAveraged stats: lr: 0.000100  loss: {loss:.4f}",
        ),
        (10, 90),
    ),
    Case(
        "BEVFusion",
        "torchpack dist-run -np 8 python tools/train.py a.yaml",
        by_epoch(
            "2026-03-01 12:00:00,123 - mmdet3d - INFO - Epoch [{n}][{k}/{steps}]\tlr: 1.000e-04, eta: {eta}, time: {s:.3f}, data_time: 0.010, memory: 3400, loss/object: {loss:.4f}, loss: {loss:.4f}, grad_norm: 1.2034"
        ),
        FEW,
    ),
    Case(
        "OpenPCDet",
        "python train.py --cfg_file a.yaml --epochs {epochs}",
        nested("epochs", "train"),
        SOME,
        BARS,
    ),
    Case(
        "YOLOX",
        "python -m yolox.tools.train -n yolox-s -d 8 -b 64 max_epoch {epochs}",
        by_epoch(
            "2026-03-01 12:00:00 | INFO     | yolox.core.trainer:261 - epoch: {n}/{epochs}, iter: {k}/{steps}, gpu mem: 3400Mb, mem: 12.0Gb, iter_time: {s:.3f}s, data_time: 0.010s, total_loss: {loss:.1f}, lr: 1.000e-02, size: 640, ETA: {eta}"
        ),
        MANY,
    ),
    Case(
        "wenet",
        "torchrun wenet/bin/train.py --config a.yaml",
        by_epoch(
            "2026-03-01 12:00:00,123 DEBUG TRAIN | steps/sec {per_s:.1f}| Batch {e}/{k} loss {loss:.6f} loss_att 5.12 lr 0.00012 rank 0",
            begin="2026-03-01 12:00:00,123 INFO Epoch {e} Step 12 TRAIN info lr 1.2e-04 rank 0",
        ),
        SOME,
    ),
    Case(
        "OpenFold",
        "python train_openfold.py a b c d e --max_epochs {epochs}",
        tqdm_epochs("Epoch {e}", "Validation DataLoader 0", "v_num=0, train/loss={loss:.1f}"),
        SOME,
        BARS,
    ),
    Case(
        "RT-DETR",
        "torchrun tools/train.py -c a.yml",
        by_epoch(
            "Epoch: [{e}]  [{i:4d}/{steps}]  eta: {here}  lr: 0.000100  loss: {loss:.4f} ({loss:.4f})  loss_vfl: 0.51  time: {s:.4f}  data: 0.0101  max mem: 34012",
            head="{{'epoches': {epochs}, 'batch_size': 16}}",
            test="Test:  [{i}/5]  eta: 0:00:01    time: 0.5120  data: 0.0101",
        ),
        MANY,
    ),
    Case(
        "Whisper, two rounds of data",
        "python run_speech.py --max_steps {total}",
        preceded(one_bar("", ""), {"Filter": " examples", "Resampling": "it"}),
        SOME,
        BARS,
    ),
    Case(
        "plain words",
        "uv run train.py --epochs={epochs}",
        by_epoch(end="finished epoch {n} of {epochs} in {took:.1f} seconds; mean loss {loss:.4f}"),
        SOME,
    ),
    Case(
        "json lines",
        "python train.py --epochs {epochs}",
        by_epoch('{{"epoch": {e}, "step": {h}, "loss": {loss:.4f}, "lr": 0.0001}}'),
        SOME,
    ),
    Case(
        "key=value",
        "python train.py --total_steps {total}",
        by_step(
            "ts=2026-03-01T12:00:00Z level=info msg=train step={h} total={total} loss={loss:.4f}"
        ),
    ),
    Case("percent", "python train.py", by_step("progress: {percent:.1f}% loss {loss:.4f}")),
    Case(
        "two stages",
        "python train.py --epochs {epochs}",
        again(
            by_epoch(end="Epoch [{n}/{epochs}] loss: {loss:.4f} val: {loss:.4f}"),
            "Stage {i}/{times}",
            2,
            begin=1,
        ),
        SOME,
    ),
    Case(
        "cross validation",
        "python cv.py --k-folds 4 --epochs {epochs}",
        again(
            by_epoch(end="epoch {n:3d}/{epochs} | loss {loss:.4f} | val {loss:.4f}"), "FOLD {i}", 4
        ),
        SOME,
    ),
    Case(
        "LightGBM stops early",
        "python lgb.py --num_boost_round {epochs} --early_stopping_round 20",
        boosting(
            "[{n}]\tvalid_0's auc: {loss:.6f}",
            "Training until validation scores don't improve for 20 rounds",
        ),
        MANY,
        stops=(0.25, 0.9),
    ),
    Case(
        "Lightning stops early",
        "python train.py --max_epochs {epochs} --early_stopping_patience 5",
        tqdm_epochs("Epoch {e}", "Validation DataLoader 0", "v_num=0"),
        (20, 60),
        BARS,
        stops=(0.25, 0.9),
    ),
    Case(
        "mpirun ranks",
        "mpirun -np 4 python train.py --epochs {epochs}",
        ranks(
            by_epoch("Train Epoch: {n} [{k}/{steps} ({percent:.0f}%)]\tLoss: {loss:.6f}"),
            "[1,{rank}]<stdout>:",
        ),
        SOME,
    ),
    Case(
        "bars, restarted",
        "torchrun --max-restarts 3 train.py --max_steps {total}",
        one_bar("train", "loss={loss:.3f}"),
        (8, 20),
        BARS,
        crashes=True,
    ),
)
