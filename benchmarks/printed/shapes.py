"""Trainings as common frameworks print them; figures and words are our own.

The reader is worked on with these; `kept.py` holds others, by which it is judged.
"""

from __future__ import annotations

from benchmarks.printed.case import BARS, FEW, MANY, SOME, Case
from benchmarks.printed.log import (
    Run,
    Shape,
    again,
    by_epoch,
    by_step,
    preceded,
    ranks,
    strides,
)


def tqdm_epochs(
    label: str, test: str = "", after: str = "loss={loss:.3f}", head: str = ""
) -> Shape:
    """Return a shape with a bar for each epoch, labelled with its number, and one for its test."""

    def run(t: Run) -> None:
        t.begin()
        t.line(head)
        for e in t.epochs():
            begun_s = t.now
            words = label.format(e=e, n=e + 1, epochs=t.sizes.epochs, last=t.sizes.epochs - 1)
            for k in strides(t):
                t.bar(words, k, t.sizes.steps, begun_s, after=after.format(loss=t._loss))
            t.put("\n")
            begun_s = t.now
            for i in range(1, 21):
                t.validate(20)
                if test:
                    t.bar(test, i, 20, begun_s)
            if test:
                t.put("\n")
        t.end()

    return run


def one_bar(
    label: str = "", after: str = "loss={loss:.3f}", head: str = "", test: str = ""
) -> Shape:
    """Return a shape with one bar over the whole run and, if `test` is given, a bar for the test
    after each epoch."""

    def run(t: Run) -> None:
        t.begin()
        t.line(head)
        begun_s, done = t.now, t.sizes.first * t.sizes.steps
        for e in t.epochs():
            done = e * t.sizes.steps
            for k in strides(t):
                t.bar(label, done + k, t.total, begun_s, after=after.format(loss=t._loss))
            since_s = t.now
            for i in range(1, 21):
                t.validate(20)
                if test:
                    t.bar(test, i, 20, since_s)
        t.end()

    return run


def nested(outer: str, inner: str) -> Shape:
    """Return a shape with a bar over the epochs, labelled `outer`, and within each epoch one over
    its steps, labelled `inner`."""

    def run(t: Run) -> None:
        t.begin()
        begun_s = t.now
        t.bar(outer, 0, t.sizes.epochs, begun_s)
        for e in t.epochs():
            since_s = t.now
            for k in strides(t):
                t.bar(inner, k, t.sizes.steps, since_s, after=f"loss={t._loss:.3f}")
            t.validate()
            t.now += 0.11
            t.bar(outer, e + 1, t.sizes.epochs, begun_s)
        t.end()

    return run


def hugging_face(bars: bool = True, head: bool = True, every: float = 0.05) -> Shape:
    """Return a shape like the output of the Trainer of transformers: figures as dicts and, with
    `bars`, a bar. With `head`, the numbers of epochs and steps come first. `every`: share of all
    steps between two dicts."""

    def run(t: Run) -> None:
        t.begin()
        if head:
            t.line(
                "***** Running training *****\n  Num examples = 91,430\n  Num Epochs = {epochs:,}\n"
                "  Instantaneous batch size per device = 8\n  Gradient Accumulation steps = 2\n"
                "  Total optimization steps = {total:,}"
            )
        begun_s, told = t.now, max(1, round(every * t.total))
        for e in t.epochs():
            done = e * t.sizes.steps
            before = done // told
            for k in strides(t) if bars else range(1, t.sizes.steps + 1):
                if not bars:
                    t.steps(1)
                if bars:
                    t.bar("", done + k, t.total, begun_s)
                if (done + k) // told > before:
                    before = (done + k) // told
                    t.line(
                        "{{'loss': {loss:.4f}, 'grad_norm': 1.2034, 'learning_rate': 4.1e-05, "
                        "'epoch': {share:.2f}}}",
                        share=e + k / t.sizes.steps,
                    )
            since_s = t.now
            for i in range(1, 13):
                t.validate(12)
                if bars:
                    t.bar("", i, 12, since_s)
            t.line(
                "{{'eval_loss': {loss:.4f}, 'eval_runtime': 1.2034, 'eval_samples_per_second': "
                "91.43, 'epoch': {n:.1f}}}",
                n=e + 1,
            )
        t.line("{{'train_runtime': {wall:.4f}, 'train_loss': {loss:.4f}, 'epoch': {epochs:.1f}}}")
        t.end()

    return run


def keras(version: int = 3) -> Shape:
    """Return a shape like the output of `fit` with its bar, of Keras 2 or 3."""

    def run(t: Run) -> None:
        t.begin()
        for e in t.epochs():
            t.line("Epoch {n}/{epochs}", n=e + 1)
            shown_s = 0.0
            for k in strides(t):
                if t.now - shown_s < 0.05:
                    continue
                shown_s, filled = t.now, 20 * k // t.sizes.steps
                left = f"{(t.sizes.steps - k) * t.sizes.step_s:.0f}s"
                if version == 3:
                    t.put(
                        f"\r\x1b[1m{k}/{t.sizes.steps}\x1b[0m \x1b[32m{'━' * filled}\x1b[0m\x1b[37m"
                        f"{'━' * (20 - filled)}\x1b[0m \x1b[1m{left}\x1b[0m 28ms/step - accuracy: "
                        f"0.5012 - loss: {t._loss:.4f}"
                    )
                else:
                    t.put(
                        "\b" * 70 + f"\r{k}/{t.sizes.steps} [{'=' * filled:.<20s}] - ETA: {left} - "
                        f"loss: {t._loss:.4f}"
                    )
            t.validate()
            t.line(
                "\r{steps}/{steps} [====================] - 14s 28ms/step - loss: {loss:.4f} - "
                "val_loss: {loss:.4f}"
            )
        t.end()

    return run


def ultralytics(version: int = 8) -> Shape:
    """Return a shape with YOLO's bars, a heading before each, and those of the test."""

    def run(t: Run) -> None:
        t.begin()
        t.line("Starting training for {epochs} epochs...")
        for e in t.epochs():
            head = "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size"
            t.line("\n" + head)
            number = f"{e + 1}/{t.sizes.epochs}" if version == 8 else f"{e}/{t.sizes.epochs - 1}"
            begun_s = t.now
            for k in strides(t):
                words = f"{number:>11}      3.21G     {t._loss:.4g}      1.312      1.204         31        640"
                t.bar(words, k, t.sizes.steps, begun_s)
            t.put("\n")
            begun_s = t.now
            for i in range(1, 16):
                t.validate(15)
                t.bar(
                    "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95)",
                    i,
                    15,
                    begun_s,
                )
            t.put("\n")
        t.end()

    return run


def boosting(line: str, head: str = "", every: int = 0) -> Shape:
    """Return a shape with a line for each round of boosting; with `every`, for the first and each
    `every`-th."""

    def run(t: Run) -> None:
        t.begin()
        t.line(head)
        for e in t.epochs():
            t.steps(t.sizes.steps)
            if not every or (e + 1) % every == 0 or e == 0:
                rest = (t.sizes.epochs - e - 1) * t.sizes.steps * t.sizes.step_s
                t.line(line, e=e, n=e + 1, left=spelled(rest), took=spelled(t.now - t._began))
        t.end()

    return run


def spelled(seconds: float) -> str:
    """Return a length of time as CatBoost prints it."""
    if seconds < 60:
        return f"{seconds:.3g}s"
    minutes = int(seconds // 60)
    return (
        f"{minutes // 60}h {minutes % 60}m {int(seconds % 60)}s"
        if minutes >= 60
        else f"{minutes}m {int(seconds % 60)}s"
    )


def rsl_rl(t: Run) -> None:
    """Print a block for each learning iteration, as Isaac Lab does."""
    t.begin()
    for e in t.epochs():
        t.steps(t.sizes.steps)
        left = (t.sizes.epochs - e - 1) * (t.now - t._began) / (e + 1)
        t.line(
            "#"
            * 80
            + "\n                       Learning iteration {e}/{epochs}                       \n\n"
            "                       Computation: 45213 steps/s (collection: 0.512s, learning 0.103s)\n"
            "             Mean action noise std: 0.94\n                        Mean reward: 12.03\n"
            + "-"
            * 80
            + "\n                   Total timesteps: {frames}\n                    Iteration "
            "time: 0.62s\n                        Total time: {wall:.2f}s\n                               ETA: "
            "{left:.1f}s\n",
            e=e,
            frames=4096 * (e + 1),
            left=left,
        )
    t.end()


def sb3(t: Run) -> None:
    """Print tables of Stable-Baselines3."""
    t.begin()
    t.line("Using cuda device")
    for e in t.epochs():
        for k in range(t.sizes.every, t.sizes.steps + 1, t.sizes.every):
            t.steps(t.sizes.every)
            t.line(
                "----------------------------------\n| time/                   |             |\n"
                "|    fps                  | {per_s:<11.0f} |\n|    iterations           | {h:<11} |\n"
                "|    time_elapsed         | {wall:<11.0f} |\n|    total_timesteps      | {h:<11} |\n"
                "| train/                  |             |\n|    loss                 | {loss:<11.4f} |\n"
                "----------------------------------",
                h=e * t.sizes.steps + k,
            )
        t.steps(t.sizes.steps % t.sizes.every)
        t.validate()
    t.end()


def kohya(t: Run) -> None:
    """Print one bar of steps and a line before each epoch."""
    t.begin()
    begun_s = t.now
    for e in t.epochs():
        t.line("\nepoch {n}/{epochs}", n=e + 1)
        for k in strides(t):
            t.bar("steps", e * t.sizes.steps + k, t.total, begun_s, after=f"avr_loss={t._loss:.3f}")
        t.validate()
    t.end()


TOKENS = {
    "Map": " examples",
    "Tokenizing train dataset": " examples",
    "Packing train dataset": " examples",
}
_LOG = "[2026-03-01 12:00:00,123] [INFO] "
_MM = "2026/03/01 12:00:00 - mmengine - INFO - "

CASES = (
    # --- bars at ten a second
    Case(
        "tqdm, a bar an epoch",
        "python train.py --epochs {epochs}",
        tqdm_epochs("Epoch {n}/{epochs}", "Validating"),
        SOME,
        BARS,
    ),
    Case(
        "tqdm, few epochs",
        "python train.py --num_epochs={epochs}",
        tqdm_epochs("Epoch {n}/{epochs}"),
        FEW,
        BARS,
    ),
    Case(
        "tqdm, epochs from 0",
        "python train.py --epochs {epochs}",
        tqdm_epochs("Epoch {e}", "val"),
        SOME,
        BARS,
    ),
    Case(
        "tqdm, nested", "python train.py --epochs {epochs}", nested("Epochs", "Batches"), SOME, BARS
    ),
    Case(
        "tqdm, nested, no labels", "python train.py --epochs {epochs}", nested("", ""), SOME, BARS
    ),
    Case("tqdm, one bar", "python train.py --max_steps {total}", one_bar("Training"), SOME, BARS),
    Case(
        "Lightning",
        "python train.py --trainer.max_epochs {epochs}",
        tqdm_epochs(
            "Epoch {e}",
            "Validation DataLoader 0",
            "v_num=0, train_loss={loss:.3f}",
            "GPU available: True (cuda), used: True\n  | Name  | Type | Params | Mode\n0 | model | Net  | 9.5 M  | train",
        ),
        SOME,
        BARS,
    ),
    Case(
        "Lightning, one epoch",
        "srun python train.py trainer.max_epochs={epochs}",
        tqdm_epochs("Epoch {e}", "Validation DataLoader 0", "v_num=3"),
        (1, 1),
        BARS,
    ),
    Case(
        "Ultralytics",
        "yolo detect train data=a.yaml epochs={epochs} imgsz=640",
        ultralytics(),
        SOME,
        BARS,
    ),
    Case(
        "YOLOv5",
        "python train.py --img 640 --epochs {epochs} --data a.yaml",
        ultralytics(5),
        SOME,
        BARS,
    ),
    Case(
        "YOLO stops early",
        "yolo train data=a.yaml epochs={epochs} patience=10",
        ultralytics(),
        (40, 90),
        BARS,
        stops=(0.3, 0.9),
    ),
    Case("Keras 3", "python train.py --epochs {epochs}", keras(), SOME, BARS),
    Case("Keras 2", "python train.py --epochs {epochs}", keras(2), SOME, BARS),
    Case(
        "transformers", "python run_clm.py --num_train_epochs {epochs}", hugging_face(), FEW, BARS
    ),
    Case(
        "transformers, resumed",
        "torchrun run_clm.py --num_train_epochs {epochs} --resume_from_checkpoint a",
        hugging_face(),
        SOME,
        BARS,
        resumes=True,
    ),
    Case(
        "TRL, tokens first",
        "accelerate launch sft.py --num_train_epochs {epochs}",
        preceded(hugging_face(), TOKENS),
        FEW,
        BARS,
    ),
    Case(
        "diffusers",
        "accelerate launch train_lora.py --max_train_steps={total}",
        one_bar("Steps", "lr=0.0001, step_loss={loss:.4f}"),
        SOME,
        BARS,
    ),
    Case(
        "kohya", "accelerate launch train_network.py --max_train_epochs {epochs}", kohya, SOME, BARS
    ),
    Case(
        "3D Gaussians",
        "python train.py -s a --iterations {total}",
        one_bar("Training progress", "Loss={loss:.7f}"),
        SOME,
        BARS,
    ),
    Case(
        "verl under Ray",
        "python3 -m verl.trainer.main_ppo trainer.total_epochs={epochs}",
        ranks(one_bar("Training Progress", ""), "", 1),
        FEW,
        BARS,
    ),
    Case(
        "torchtune",
        "tune run lora_finetune_single_device epochs={epochs}",
        tqdm_epochs("{n}|225|Loss: 1.2034", after=""),
        FEW,
        BARS,
    ),
    Case(
        "AllenNLP",
        "allennlp train a.jsonnet -s out",
        tqdm_epochs("accuracy: 0.5012, loss: 2.3012 ||", "accuracy: 0.5 ||", ""),
        SOME,
        BARS,
    ),
    Case(
        "SpeechBrain",
        "python train.py hparams/train.yaml --number_of_epochs {epochs}",
        tqdm_epochs("", "", "train_loss={loss:.3f}"),
        SOME,
        BARS,
    ),
    Case(
        "NeMo",
        "torchrun train.py trainer.max_steps={total}",
        one_bar("Epoch 0: ", "v_num=0, reduced_train_loss={loss:.3f}, global_step=99.00"),
        FEW,
        BARS,
    ),
    # --- lines within epochs
    Case(
        "transformers, no bar",
        "python train.py --num_train_epochs {epochs} --disable_tqdm true",
        hugging_face(False, False),
        FEW,
    ),
    Case(
        "transformers, no bar, head",
        "deepspeed train.py --deepspeed ds.json --num_train_epochs {epochs}",
        hugging_face(False),
        FEW,
    ),
    Case(
        "timm",
        "python train.py a --model resnet50 --epochs {epochs}",
        by_epoch(
            "Train: {e} [{i:>4d}/{steps} ({percent:>3.0f}%)]  Loss: {loss:#.3g} ({loss:#.3g})  Time: {s:.3f}s, 91.43/s  ({s:.3f}s, 91.43/s)  LR: 1.000e-03  Data: 0.010 (0.020)",
            head="Scheduled epochs: {epochs}. LR stepped per epoch.",
            test="Test: [{i:>4d}/4]  Time: 0.100 (0.120)  Loss:  {loss:>6.3f} ( 5.01)  Acc@1:  50.1",
        ),
        MANY,
    ),
    Case(
        "PyTorch ImageNet",
        "python main.py -a resnet50 --epochs {epochs} /data",
        by_epoch(
            "Epoch: [{e}][{k:4d}/{steps}]\tTime  {s:.3f} ( {s:.3f})\tData  0.010 ( 0.020)\tLoss {loss:.4e}",
            test="Test: [{k:2d}/5]\tTime  0.100 ( 0.120)\tLoss 4.91e+00\tAcc@1  50.12",
            end=" *   Acc@1 50.123 Acc@5 76.2",
        ),
        (10, 90),
    ),
    Case(
        "torchvision",
        "torchrun train.py --epochs {epochs} --batch-size 32",
        by_epoch(
            "Epoch: [{e}]  [{i:4d}/{steps}]  eta: {here}  lr: 0.1  img/s: 91.4  loss: {loss:.4f} ({loss:.4f})  time: {s:.4f}  data: 0.01  max mem: 3400",
            test="Test:   [{i}/5]  eta: 0:00:01  loss: 4.9102 (5.0112)  acc1: 50.1 (50.2)",
        ),
        (10, 90),
    ),
    Case(
        "MNIST",
        "python main.py --epochs {epochs}",
        by_epoch(
            "Train Epoch: {n} [{k}/{steps} ({percent:.0f}%)]\tLoss: {loss:.6f}",
            end="\nTest set: Average loss: {loss:.4f}, Accuracy: 9012/10000 (90%)\n",
        ),
        SOME,
    ),
    Case(
        "OpenCLIP",
        "torchrun -m training.main --epochs {epochs} --batch-size 320",
        by_epoch(
            "2026-03-01,12:00:00 | INFO | Train Epoch: {e} [{k:>7}/{steps} ({percent:.0f}%)] Data (t): 0.012 Batch (t): {s:.3f}, 914/s, 457/s/gpu LR: 0.000500 Logit Scale: 14.286 Contrastive_loss: {loss:.4f} ({loss:.4f})",
            begin="2026-03-01,12:00:00 | INFO | Start epoch {e}",
            end="2026-03-01,12:00:00 | INFO | Eval Epoch: {n} imagenet-zeroshot-val-top1: 0.1203",
        ),
        SOME,
    ),
    Case(
        "Swin",
        "torchrun main.py --cfg a.yaml --batch-size 128 --opts TRAIN.EPOCHS {epochs}",
        by_epoch(
            "[2026-03-01 12:00:00 swin] (main.py 226): INFO Train: [{e}/{epochs}][{i}/{steps}]\teta {here} lr 0.0007\ttime {s:.4f} ({s:.4f})\tloss {loss:.4f} ({loss:.4f})\tmem 3400MB",
            end="[2026-03-01 12:00:00 swin] (main.py 256): INFO EPOCH {e} training takes 0:31:12",
        ),
        MANY,
    ),
    Case(
        "MMEngine",
        "python tools/train.py configs/a.py",
        by_epoch(
            _MM
            + "Epoch(train) [{n}][{k:>4}/{steps}]  lr: 1.0e-02  eta: {eta}  time: {s:.4f}  data_time: 0.0100  memory: 3400  loss: {loss:.4f}",
            test=_MM
            + "Epoch(val) [{n}][{k}/5]    eta: 0:00:01  time: 0.1012  data_time: 0.0100  memory: 340",
        ),
        SOME,
    ),
    Case(
        "mmdet 2",
        "bash tools/dist_train.sh configs/a.py 8",
        by_epoch(
            "2026-03-01 12:00:00,123 - mmdet - INFO - Epoch [{n}][{k}/{steps}]\tlr: 1.000e-02, eta: {eta}, time: {s:.3f}, data_time: 0.010, memory: 3400, loss: {loss:.4f}",
            end="2026-03-01 12:00:00,123 - mmdet - INFO - Epoch(val) [{n}][500]\tbbox_mAP: 0.1203",
        ),
        SOME,
    ),
    Case(
        "mmseg",
        "python tools/train.py configs/a.py",
        by_step(
            _MM
            + "Iter(train) [{h:>6}/{total}]  base_lr: 1.0e-02  eta: {eta}  time: {s:.4f}  memory: 3400  loss: {loss:.4f}",
            test=_MM + "Iter(val) [500/500]    aAcc: 80.1200  mIoU: 40.1200",
        ),
    ),
    Case(
        "Detectron2",
        "python train_net.py --config-file a.yaml --num-gpus 8",
        by_step(
            "[03/01 12:00:00 d2.utils.events]:  eta: {eta}  iter: {g}  total_loss: {loss:.3f}  loss_cls: 0.91  time: {s:.4f}  last_time: 0.3400  data_time: 0.01  lr: 0.02  max_mem: 3400M",
            test="[03/01 12:00:00 d2.evaluation.evaluator]: Inference done 50/500. Dataloading: 0.0009 s/iter. Inference: 0.0512 s/iter. ETA=0:00:12",
        ),
    ),
    Case(
        "fairseq",
        "fairseq-train data --max-epoch {epochs} --arch transformer",
        by_epoch(
            "2026-03-01 12:00:00 | INFO | train_inner | epoch {n:03d}: {k:6d} / {steps} loss={loss:.3f}, ppl=45.2, wps=9140, ups=3.5, wpb=2611, bsz=91, num_updates={h}, lr=0.0005, gnorm=1.2, train_wall=32, wall={wall:.0f}",
            begin="2026-03-01 12:00:00 | INFO | fairseq.trainer | begin training epoch {n}",
            end="2026-03-01 12:00:00 | INFO | valid | epoch {n:03d} | valid on 'valid' subset | loss 4.91 | ppl 30.1 | num_updates {h}\n2026-03-01 12:00:00 | INFO | train | epoch {n:03d} | loss 5.1 | ppl 40.1 | num_updates {h} | wall {wall:.0f}",
        ),
        SOME,
    ),
    Case(
        "PaddleDetection",
        "python tools/train.py -c configs/a.yml --eval",
        by_epoch(
            "[03/01 12:00:00] ppdet.engine INFO: Epoch: [{e}] [{i:4d}/{steps}] learning_rate: 0.010000 loss: {loss:.6f} eta: {eta} batch_cost: {s:.4f} data_cost: 0.0010 ips: 91.4000 images/s"
        ),
        SOME,
    ),
    Case(
        "PaddleOCR",
        "python tools/train.py -c a.yml -o Global.epoch_num={epochs}",
        by_epoch(
            "[2026/03/01 12:00:00] ppocr INFO: epoch: [{n}/{epochs}], global_step: {h}, lr: 0.000500, loss: {loss:.6f}, avg_reader_cost: 0.00100 s, avg_batch_cost: {s:.5f} s, avg_samples: 64.0, ips: 91.4 samples/s, eta: {eta}"
        ),
        (3, 60),
    ),
    Case(
        "PaddleNLP",
        "python train.py --epochs {epochs}",
        by_epoch(
            "global step {h}, epoch: {n}, batch: {k}, loss: {loss:.5f}, accuracy: 0.51203, speed: {per_s:.2f} step/s"
        ),
        (2, 4),
    ),
    Case(
        "MindSpore",
        "python train.py --epoch_size {epochs}",
        by_epoch(
            "epoch: {n} step: {k}, loss is {loss:.6f}",
            end="Train epoch time: 31203.512 ms, per step time: 33.280 ms",
        ),
        SOME,
    ),
    Case(
        "icefall",
        "./zipformer/train.py --world-size 4 --num-epochs {epochs}",
        by_epoch(
            "2026-03-01 12:00:00,123 INFO [train.py:1094] Epoch {n}, batch {i}, loss[loss={loss:.4f}, simple_loss=0.512, over 9143.00 frames. ], tot_loss[loss={loss:.4f}, over 1203412.23 frames. ], batch size: 91, lr: 2.25e-02, grad_scale: 1.0"
        ),
        SOME,
    ),
    Case(
        "DINOv2",
        "torchrun dinov2/train/train.py --config-file a.yaml",
        by_step(
            "I20260301 12:00:00 12 dinov2 helpers.py:102] Training  [{g:5d}/{total}]  eta: {eta}  lr: 0.0001 (0.0001)  total_loss: {loss:.4f} ({loss:.4f})  time: {s:.6f}  data: 0.0101  max mem: 34012"
        ),
    ),
    Case(
        "ESPnet",
        "./asr.sh --stage 11 --asr_config a.yaml",
        by_epoch(
            "[host] 2026-03-01 12:00:00,123 (trainer:762) INFO: {n}epoch:train:{i}-{k}batch: iter_time=1.2e-04, forward_time=0.112, loss_ctc=51.203, loss={loss:.3f}",
            begin="[host] 2026-03-01 12:00:00,123 (trainer:298) INFO: {n}/{epochs}epoch started",
        ),
        SOME,
    ),
    Case(
        "Flair",
        "python train.py --max_epochs {epochs}",
        by_epoch(
            "2026-03-01 12:00:00,123 epoch {n} - iter {k}/{steps} - loss {loss:.8f} - time (sec): 12.03 - samples/sec: 91.43 - lr: 0.100000",
            end="2026-03-01 12:00:00,123 EPOCH {n} done: loss {loss:.4f} - lr: 0.1",
        ),
        SOME,
    ),
    Case(
        "CycleGAN",
        "python train.py --n_epochs 100 --n_epochs_decay 0 --epochs {epochs}",
        by_epoch(
            "(epoch: {n}, iters: {k}, time: {s:.3f}, data: 0.010) D_A: 0.312 G_A: {loss:.3f} cycle_A: 1.203",
            end="End of epoch {n} / {epochs} \t Time Taken: {took:.0f} sec",
        ),
        SOME,
    ),
    Case(
        "LitGPT",
        "litgpt finetune_lora a --train.epochs {epochs}",
        by_epoch(
            "Epoch {n} | iter {h} step {h} | loss train: {loss:.3f}, val: n/a | iter time: {ms:.2f} ms (step)"
        ),
        (2, 4),
    ),
    Case(
        "Composer",
        "composer train.py a.yaml max_duration={epochs}ep",
        by_epoch(
            "[epoch={n}/{epochs}][batch={k}/{steps}]:\n\t Train time/epoch: {e}\n\t Train loss/train/total: {loss:.4f}"
        ),
        SOME,
    ),
    Case(
        "bracketed",
        "python train.py --epochs {epochs}",
        by_epoch("Epoch [{n}/{epochs}], Step [{k}/{steps}], Loss: {loss:.4f}"),
        SOME,
    ),
    Case(
        "lower case",
        "accelerate launch train.py --num_train_epochs {epochs}",
        by_epoch("epoch {e}, step {i}, loss: {loss:.4f}"),
        SOME,
    ),
    Case(
        "flags in a shell",
        "bash -c 'cd a && conda activate b && python train.py --epochs {epochs}'",
        by_epoch("INFO:root:epoch={e} step={i} loss={loss:.4f} lr=1.0e-04"),
        SOME,
    ),
    # --- a line an epoch
    Case(
        "a line at the end",
        "python train.py --epochs {epochs}",
        by_epoch(end="Epoch {n}/{epochs}: train loss {loss:.4f}, val loss {loss:.4f}, {took:.1f}s"),
        SOME,
    ),
    Case(
        "a line at the end, no total",
        "python train.py --epochs {epochs}",
        by_epoch(end="Epoch {e} train_loss={loss:.4f} val_loss={loss:.4f}"),
        SOME,
    ),
    Case(
        "transfer learning",
        "python train.py",
        by_epoch(
            begin="Epoch {e}/{last}\n----------",
            end="train Loss: {loss:.4f} Acc: 0.5012\nval Loss: {loss:.4f} Acc: 0.5\n",
        ),
        SOME,
    ),
    Case(
        "PyG",
        "python gcn.py --epochs {epochs}",
        by_epoch(end="Epoch: {n:03d}, Loss: {loss:.4f}, Train: 0.8012, Val: 0.7012, Test: 0.7112"),
        MANY,
    ),
    Case(
        "DGL",
        "python train.py --num-epochs {epochs}",
        by_epoch(end="Epoch {e:05d} | Loss {loss:.4f} | Accuracy 0.5012 | Time 1.2034"),
        MANY,
    ),
    Case(
        "Keras, a line",
        "python train.py --epochs {epochs}",
        by_epoch(
            begin="Epoch {n}/{epochs}",
            end="{steps}/{steps} - 14s - 28ms/step - accuracy: 0.5012 - loss: {loss:.4f} - val_loss: {loss:.4f}",
        ),
        SOME,
    ),
    Case(
        "nnU-Net",
        "nnUNetv2_train 4 3d_fullres 0 -tr nnUNetTrainer_{epochs}epochs",
        by_epoch(
            begin="2026-03-01 12:00:00.123456: Epoch {e}",
            end="2026-03-01 12:00:00.123456: train_loss -0.5012\n2026-03-01 12:00:00.123456: val_loss -0.4012\n2026-03-01 12:00:00.123456: Pseudo dice [0.7012]\n2026-03-01 12:00:00.123456: Epoch time: {took:.2f} s",
        ),
        MANY,
    ),
    Case(
        "fastai",
        "python train.py --epochs {epochs}",
        by_epoch(
            head="epoch     train_loss  valid_loss  accuracy  time    ",
            end="{e:<9} {loss:<11.6f} {loss:<11.6f} 0.501200  00:12    ",
        ),
        SOME,
    ),
    Case(
        "flax",
        "python main.py --config.num_epochs={epochs}",
        by_epoch(
            end="I0301 12:00:00.123456 139 train.py:153] epoch:{n:3d}, train_loss: {loss:.4f}, train_accuracy: 50.12, test_loss: {loss:.4f}"
        ),
        SOME,
    ),
    # --- steps that go on
    Case(
        "Megatron",
        "torchrun pretrain_gpt.py --train-iters {total} --global-batch-size 256",
        by_step(
            " [2026-03-01 12:00:00] iteration {h:8d}/{total:8d} | consumed samples: {rows:12d} | elapsed time per iteration (ms): {ms:.1f} | learning rate: 1.0E-04 | global batch size:   256 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: 1.203 |",
            test="validation loss at iteration {h} | lm loss value: 4.1E+00 | lm loss PPL: 6.1E+01 |",
        ),
    ),
    Case(
        "Megatron, resumed",
        "srun torchrun pretrain_gpt.py --train-iters {total} --load a",
        by_step(
            " [2026-03-01 12:00:00] iteration {h:8d}/{total:8d} | consumed samples: {rows:12d} | elapsed time per iteration (ms): {ms:.1f} | lm loss: {loss:.6E} |"
        ),
        resumes=True,
    ),
    Case(
        "Megatron, restarted",
        "torchrun --max-restarts 3 pretrain_gpt.py --train-iters {total}",
        by_step(
            " [2026-03-01 12:00:00] iteration {h:8d}/{total:8d} | consumed samples: {rows:12d} | elapsed time per iteration (ms): {ms:.1f} | lm loss: {loss:.6E} |"
        ),
        crashes=True,
    ),
    Case(
        "DeepSpeed",
        "deepspeed train.py --deepspeed --train-iters {total}",
        by_step(
            _LOG
            + "[logging.py:96:log_dist] [Rank 0] step={h}, skipped=0, lr=[0.0001], mom=[[0.9, 0.95]]\n"
            + _LOG
            + "[timer.py:260:stop] epoch=0/micro_step={h}/global_step={h}, RunningAvgSamplesPerSec=91.43, CurrSamplesPerSec=91.1, MemAllocated=3.4GB"
        ),
    ),
    Case(
        "Megatron-DeepSpeed",
        "deepspeed pretrain.py --train-iters {total}",
        by_step("steps: {h} loss: {loss:.4f} iter time (s): {s:.3f} samples/sec: 91.430"),
    ),
    Case(
        "nanoGPT",
        "python train.py config/a.py --max_iters={total}",
        by_step(
            "iter {g}: loss {loss:.4f}, time {ms:.2f}ms, mfu 12.00%",
            test="step {h}: train loss {loss:.4f}, val loss {loss:.4f}",
        ),
    ),
    Case(
        "MaxText",
        "python3 MaxText/train.py MaxText/configs/base.yml run_name=a steps={total}",
        by_step(
            "completed step: {g}, seconds: {s:.3f}, TFLOP/s/device: 112.034, Tokens/s/device: 9143.2, total_weights: 65536, loss: {loss:.3f}"
        ),
    ),
    Case(
        "torchtitan",
        "torchrun train.py --training.steps {total}",
        by_step(
            "[rank0]:[titan] 2026-03-01 12:00:00,123 - root - INFO - step: {h:2}  loss: {loss:7.4f}  memory: 34.01GiB(42.12%)  tps: 9,143  tflops: 112.03  mfu: 35.92%"
        ),
    ),
    Case(
        "NeMo 2",
        "torchrun pretrain.py trainer.max_steps={total}",
        by_step(
            "Training epoch 0, iteration {g}/{total} | lr: 0.0003 | global_batch_size: 512 | global_step: {g} | reduced_train_loss: {loss:.3f} | train_step_timing in s: {s:.3f} | consumed_samples: {rows}"
        ),
    ),
    Case(
        "CLU",
        "python main.py --config=a.py",
        by_step(
            "I0301 12:00:00.123 139 local.py:45] Setting work unit notes: {per_s:.1f} steps/s, {percent:.1f}% ({h}/{total}), ETA: 1m"
        ),
    ),
    Case(
        "TF estimator",
        "python train.py --train_steps={total}",
        by_step(
            "INFO:tensorflow:global_step/sec: {per_s:.4f}\nINFO:tensorflow:loss = {loss:.6f}, step = {h} (12.034 sec)"
        ),
    ),
    Case(
        "OpenNMT",
        "onmt_train -config a.yaml -train_steps {total}",
        by_step(
            "[2026-03-01 12:00:00,123 INFO] Step {h}/{total:5d}; acc: 51.2; ppl: 45.2; xent: 3.8; lr: 0.00050; sents: 9143; bsz: 3812/ 391/ 8; 9143/9012 tok/s; {wall:6.0f} sec;",
            test="[2026-03-01 12:00:00,123 INFO] Validation perplexity: 30.12",
        ),
    ),
    Case(
        "own progress", "python train.py", by_step('{{"progress": {{"done": {h}, "of": {total}}}}}')
    ),
    Case(
        "step of",
        "python train.py --steps {total}",
        by_step("step {h}/{total} | loss {loss:.4f} | lr 1.0e-04 | tok/s 91430"),
    ),
    # --- rounds and rewards
    Case(
        "XGBoost",
        "python xgb.py --num_boost_round {epochs}",
        boosting("[{e}]\ttrain-rmse:{loss:.5f}\teval-rmse:{loss:.5f}"),
        MANY,
    ),
    Case(
        "XGBoost stops early",
        "python xgb.py --num_boost_round {epochs} --early_stopping_rounds 10",
        boosting("[{e}]\ttrain-rmse:{loss:.5f}\teval-rmse:{loss:.5f}"),
        MANY,
        stops=(0.3, 0.9),
    ),
    Case(
        "LightGBM",
        "python lgb.py --n_estimators {epochs}",
        boosting(
            "[{n}]\ttraining's l2: {loss:.6f}\tvalid_1's l2: {loss:.6f}",
            "[LightGBM] [Info] Number of positive: 9143",
        ),
        MANY,
    ),
    Case(
        "CatBoost",
        "python cb.py",
        boosting(
            "{e}:\tlearn: {loss:.7f}\ttest: {loss:.7f}\tbest: {loss:.7f} ({e})\ttotal: {took}\tremaining: {left}"
        ),
        MANY,
    ),
    Case("Stable-Baselines3", "python -m rl_zoo3.train --algo ppo --env A -n {total}", sb3),
    Case(
        "rl_games",
        "python train.py task=Ant",
        by_epoch(
            end="fps step: 91430 fps step and policy inference: 81230 fps total: 71230 epoch: {n}/{epochs} frames: {h}"
        ),
        MANY,
    ),
    Case("rsl_rl", "./isaaclab.sh -p train.py --task A --headless", rsl_rl, MANY),
    Case(
        "CleanRL",
        "python ppo_atari.py --total-timesteps {total}",
        by_step("global_step={h}, episodic_return=[21.]\nSPS: 9143"),
    ),
    # --- several, stopped, interleaved, restarted
    Case(
        "folds",
        "python cv.py --epochs {epochs} --n_folds 5",
        again(
            by_epoch(end="Epoch {n}/{epochs} loss {loss:.4f} val {loss:.4f}"),
            "===== Fold {i} =====",
            5,
        ),
        SOME,
    ),
    Case(
        "folds of",
        "python cv.py --epochs {epochs}",
        again(
            by_epoch(end="Epoch {n}/{epochs} loss {loss:.4f} val {loss:.4f}"),
            "Fold {i}/{times}",
            4,
            begin=1,
        ),
        SOME,
    ),
    Case(
        "folds without a number of them",
        "python cv.py",
        again(by_epoch(end="Epoch {n}/{epochs} loss {loss:.4f}"), "--- fold {i} ---", 5),
        SOME,
    ),
    Case(
        "seeds in a loop",
        "bash -c 'for s in 0 1 2; do python train.py --epochs {epochs} --seed $s; done'",
        again(by_epoch(end="Epoch {n}/{epochs} loss {loss:.4f} val {loss:.4f}"), "seed {i}", 3),
        SOME,
    ),
    Case(
        "trials",
        "python tune.py --n-trials 20",
        again(
            by_epoch(end="epoch {n}/{epochs} loss {loss:.4f}"),
            "",
            20,
            summary="[I 2026-03-01 12:00:00,123] Trial {i} finished with value: 0.3012 and parameters: {{'lr': 0.01}}. Best is trial 0 with value: 0.29.",
        ),
        FEW,
        (100.0, 600.0),
    ),
    Case(
        "Hydra sweep",
        "python train.py -m lr=0.1,0.01,0.001 trainer.max_epochs={epochs}",
        again(
            by_epoch(end="Epoch {n}/{epochs} loss {loss:.4f} val {loss:.4f}"),
            "[2026-03-01 12:00:00,123][HYDRA] \t#{i} : lr=0.1",
            3,
        ),
        SOME,
    ),
    Case(
        "stops early",
        "python train.py --epochs {epochs} --patience 5",
        by_epoch(end="Epoch {n}/{epochs}: loss {loss:.4f} val {loss:.4f}"),
        (20, 100),
        stops=(0.25, 0.9),
    ),
    Case(
        "stops early by its log",
        "python train.py --epochs {epochs}",
        by_epoch(
            head="EarlyStopping(monitor='val_loss', patience=5)",
            end="Epoch {n}/{epochs}: loss {loss:.4f} val {loss:.4f}",
        ),
        (20, 100),
        stops=(0.25, 0.9),
    ),
    Case(
        "ranks",
        "torchrun --nproc_per_node 4 train.py --epochs {epochs}",
        ranks(by_epoch("Epoch {n}/{epochs} step {k}/{steps} loss {loss:.4f}"), "[rank{rank}]: "),
        SOME,
    ),
    Case(
        "srun ranks",
        "srun -n4 python train.py --epochs {epochs}",
        ranks(by_epoch("Epoch [{n}/{epochs}] Iter [{k}/{steps}] loss {loss:.4f}"), "{rank}: "),
        SOME,
    ),
    Case(
        "ranks that end epochs",
        "torchrun train.py --epochs {epochs}",
        ranks(by_epoch(end="Epoch {n}/{epochs}: loss {loss:.4f}"), "[default{rank}]:"),
        SOME,
    ),
    Case(
        "restarted",
        "torchrun --max-restarts 3 train.py --epochs {epochs}",
        by_epoch("Epoch [{n}/{epochs}], Step [{k}/{steps}], Loss: {loss:.4f}"),
        (6, 40),
        crashes=True,
    ),
    Case(
        "epochs, resumed",
        "python train.py --epochs {epochs} --resume a.pt",
        by_epoch(end="Epoch {n}/{epochs}: train loss {loss:.4f}, val loss {loss:.4f}"),
        (8, 90),
        resumes=True,
    ),
    Case(
        "tokens, then steps",
        "python train.py --max_steps {total}",
        preceded(
            by_step("step {h}/{total} loss {loss:.4f}"),
            {"Tokenizing": " examples", "Grouping texts in chunks of 1024": " examples"},
        ),
        SOME,
    ),
)
