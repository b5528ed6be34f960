"""Small trainings that print as the trainers of the field do.

`python -m benchmarks.progress.trainings FORMAT [--epochs N] [--max-steps N]` trains a two-layer
network on made-up digits with numpy, and waits at every step as a trainer waits for its device.
tqdm and LightGBM print with the libraries themselves. The rest of its size is in `SIZES`, in
the environment, where a reader of its output does not look.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from typing import Any

import numpy as np

from features.amounts import Work


class Training:
    """A model, its data, and how long a step and the end of an epoch take."""

    def __init__(self) -> None:
        sizes = json.loads(os.environ["SIZES"])
        self.epochs, self.steps = int(sizes["epochs"]), int(sizes["steps"])
        self.step_s, self.validate_s = float(sizes["step_s"]), float(sizes["validate_s"])
        if "rows" in sizes:
            self._as_asked(sizes)
        self.first = int(sizes.get("first", 0))  # epochs done before: it goes on from a checkpoint
        self.every = int(sizes.get("every", 5))
        self.source = random.Random(sizes.get("seed", 0))
        draw = np.random.default_rng(0)
        self.x = draw.normal(size=(2048, 64))
        self.y = draw.integers(10, size=2048)
        self.w1, self.w2 = draw.normal(size=(64, 128)) / 8, draw.normal(size=(128, 10)) / 11
        self.loss = 2.3
        self.done = 0
        time.sleep(sizes.get("startup_s", 0.5))  # its imports

    def _as_asked(self, sizes: dict[str, float]) -> None:
        """Its size by its command, and the GPUs it may see: each has a batch of its own."""
        work = Work.of(sys.argv)
        assert work is not None
        assert work.batch is not None
        gpus = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
        self.steps = round(sizes["rows"] / (work.batch * gpus))
        self.step_s += work.batch * sizes["row_s"] + (gpus - 1) * sizes["sync_s"]
        self.epochs = round(work.amount / (1 if work.unit == "epoch" else self.steps))

    def step(self) -> float:
        """One step of gradient descent on 64 rows."""
        until = time.monotonic() + self.step_s * self.source.uniform(0.8, 1.2)
        rows = np.arange(64) + 64 * (self.done % 32)
        x, y = self.x[rows], self.y[rows]
        hidden = np.maximum(x @ self.w1, 0)
        logits = hidden @ self.w2
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        self.loss = float(-np.log(p[np.arange(64), y] + 1e-9).mean())
        p[np.arange(64), y] -= 1
        self.w2 -= 0.001 * hidden.T @ p
        self.w1 -= 0.001 * x.T @ ((p @ self.w2.T) * (hidden > 0))
        time.sleep(max(0.0, until - time.monotonic()) + (20 * self.step_s if not self.done else 0))
        self.done += 1
        return self.loss

    def validate(self) -> float:
        """What follows an epoch."""
        time.sleep(self.validate_s * self.source.uniform(0.9, 1.1))
        return self.loss

    def range(self) -> range:
        return range(self.first, self.epochs)

    def now_and_then(self, step: int) -> bool:
        return step % self.every == 0


def out(text: str, end: str = "\n") -> None:
    print(text, end=end, flush=True)


def tqdm_nested(t: Training) -> None:
    from tqdm import trange

    for _ in trange(t.first, t.epochs, initial=t.first, total=t.epochs):
        for _ in trange(t.steps, leave=False):
            t.step()
        t.validate()


def tqdm_epoch(t: Training) -> None:
    from tqdm import tqdm

    for epoch in t.range():
        with tqdm(range(t.steps), desc=f"Epoch {epoch + 1}/{t.epochs}", mininterval=0.05) as bar:
            for _ in bar:
                bar.set_postfix(loss=t.step())
        for _ in tqdm(range(5), desc="Validating"):
            time.sleep(t.validate_s / 5)


def keras3(t: Training) -> None:
    for epoch in t.range():
        out(f"Epoch {epoch + 1}/{t.epochs}")
        for i in range(1, t.steps + 1):
            loss = t.step()
            filled = 20 * i // t.steps
            bar = f"\x1b[32m{'━' * filled}\x1b[0m\x1b[37m{'━' * (20 - filled)}\x1b[0m"
            left = f"{(t.steps - i) * t.step_s:.0f}s"
            out(
                f"\r\x1b[1m{i}/{t.steps}\x1b[0m {bar} \x1b[1m{left}\x1b[0m 28ms/step - "
                f"accuracy: 0.5012 - loss: {loss:.4f}",
                end="",
            )
        t.validate()
        out(
            f"\r\x1b[1m{t.steps}/{t.steps}\x1b[0m \x1b[32m{'━' * 20}\x1b[0m\x1b[37m\x1b[0m "
            "\x1b[1m14s\x1b[0m 28ms/step - loss: 0.3400 - val_loss: 0.41"
        )


def keras2(t: Training) -> None:
    width = 0
    for epoch in t.range():
        out(f"Epoch {epoch + 1}/{t.epochs}")
        for i in range(1, t.steps + 1):
            loss = t.step()
            bar = "=" * (30 * i // t.steps) + ">"
            text = f"{i}/{t.steps} [{bar:.<30.30s}] - ETA: {(t.steps - i) * t.step_s:.0f}s"
            out("\b" * width + "\r" + text + f" - loss: {loss:.4f}", end="")
            width = len(text) + 15
        t.validate()
        out("\b" * width + f"\r{t.steps}/{t.steps} [{'=' * 30}] - 14s 28ms/step - loss: 0.3400")


def keras_log(t: Training) -> None:
    for epoch in t.range():
        out(f"Epoch {epoch + 1}/{t.epochs}")
        for _ in range(t.steps):
            t.step()
        t.validate()
        out(f"{t.steps}/{t.steps} - 14s - 28ms/step - accuracy: 0.5 - loss: {t.loss:.4f}")


def lightning(t: Training) -> None:
    from tqdm import tqdm

    out(
        "GPU available: True (cuda), used: True\n  | Name  | Type | Params\n0 | layer | MLP | 9.5 K"
    )
    for _ in tqdm(range(2), desc="Sanity Checking DataLoader 0"):
        time.sleep(0.05)
    for epoch in t.range():
        with tqdm(range(t.steps), desc=f"Epoch {epoch}", mininterval=0.05) as bar:
            for _ in bar:
                bar.set_postfix_str(f"v_num=0, train_loss={t.step():.3f}")
        for _ in tqdm(range(5), desc="Validation DataLoader 0"):
            time.sleep(t.validate_s / 5)


def hugging_face(t: Training) -> None:
    from tqdm import tqdm

    total = t.epochs * t.steps
    out(
        f"***** Running training *****\n  Num Epochs = {t.epochs}\n  Instantaneous batch size per "
        f"device = 8\n  Total optimization steps = {total:,}"
    )
    bar = tqdm(total=total, initial=t.first * t.steps)
    for epoch in t.range():
        for i in range(t.steps):
            loss = t.step()
            bar.update()
            if t.now_and_then(i):
                bar.write(
                    str(
                        {
                            "loss": round(loss, 4),
                            "grad_norm": 1.2,
                            "learning_rate": 4.9e-05,
                            "epoch": round(epoch + i / t.steps, 2),
                        }
                    )
                )
        for _ in tqdm(range(5), leave=False):
            time.sleep(t.validate_s / 5)
        bar.write(str({"eval_loss": 0.41, "eval_runtime": 1.2, "epoch": float(epoch + 1)}))


def fairseq(t: Training) -> None:
    out(
        "2024-03-01 12:00:00 | INFO | fairseq_cli.train | {'optimization':"
        f" {{'max_epoch': {t.epochs}, 'max_update': 0, 'lr': [0.0005]}}}}"
    )
    for epoch in t.range():
        out(f"2024-03-01 12:00:00 | INFO | fairseq.trainer | begin training epoch {epoch + 1}")
        for i in range(1, t.steps + 1):
            loss = t.step()
            if t.now_and_then(i):
                out(
                    f"2024-03-01 12:00:00 | INFO | train_inner | epoch {epoch + 1:03d}: {i:6d} / "
                    f"{t.steps} loss={loss:.3f}, ppl=45.2, wps=9140, num_updates={t.done}, "
                    "lr=0.0005, gnorm=1.2, train_wall=32, wall=320"
                )
        out("2024-03-01 12:00:00 | INFO | fairseq_cli.train | begin validation on 'valid' subset")
        t.validate()
        out(
            f"2024-03-01 12:00:00 | INFO | valid | epoch {epoch + 1:03d} | valid on 'valid' subset"
            f" | loss 4.91 | ppl 30.1 | num_updates {t.done}"
        )


def _clock(seconds: float) -> str:
    return f"{int(seconds // 3600)}:{int(seconds // 60 % 60):02d}:{int(seconds % 60):02d}"


def mmengine(t: Training) -> None:
    out(f"train_cfg = dict(by_epoch=True, max_epochs={t.epochs}, val_interval=1)")
    began = time.monotonic()
    for epoch in t.range():
        for i in range(1, t.steps + 1):
            loss = t.step()
            if t.now_and_then(i):
                left = (t.epochs - t.first) * t.steps - t.done
                eta = _clock(left * (time.monotonic() - began) / t.done)
                out(
                    f"03/01 12:00:00 - mmengine - INFO - Epoch(train)  [{epoch + 1}][{i:3d}/"
                    f"{t.steps}]  lr: 1.0e-02  eta: {eta}  loss: {loss:.4f}"
                )
        t.validate()
        out(f"03/01 12:00:00 - mmengine - INFO - Epoch(val) [{epoch + 1}][5/5] accuracy: 50.12")


def mmengine_iters(t: Training) -> None:
    total = t.epochs * t.steps
    for i in range(t.first * t.steps + 1, total + 1):
        loss = t.step()
        if t.now_and_then(i):
            out(
                f"03/01 12:00:00 - mmengine - INFO - Iter(train) [{i:5d}/{total}]  "
                f"eta: {_clock((total - i) * t.step_s)}  loss: {loss:.4f}"
            )
        if i % t.steps == 0:
            t.validate()


def detectron2(t: Training) -> None:
    began, total = time.monotonic(), t.epochs * t.steps
    for i in range(t.first * t.steps, total):
        t.step()
        if t.now_and_then(i):
            eta = _clock((total - i - 1) * (time.monotonic() - began) / t.done)
            out(
                f"[03/01 12:00:00 d2.utils.events]:  eta: {eta}  iter: {i}  total_loss: 1"
                "  loss_cls: 0.91  time: 0.3500  lr: 0.02  max_mem: 3400M"
            )
        if (i + 1) % t.steps == 0:
            t.validate()


def megatron(t: Training) -> None:
    total = t.epochs * t.steps
    for i in range(t.first * t.steps + 1, total + 1):
        loss = t.step()
        if t.now_and_then(i):
            out(
                f" [2024-03-01 12:00:00] iteration {i:8d}/{total:8d} | samples: {i * 256}"
                f" | elapsed time per iteration (ms): {1e3 * t.step_s:.1f} |"
                f" global batch size:   256 | lm loss: {loss:.6E} | loss scale: 1.0 |"
            )
        if i % t.steps == 0:
            t.validate()


def deepspeed(t: Training) -> None:
    total = t.epochs * t.steps
    out(f"config: {{'train_batch_size': 256, 'train_iters': {total}}}")
    for i in range(t.first * t.steps + 1, total + 1):
        loss = t.step()
        if t.now_and_then(i):
            out(f"steps: {i} loss: {loss:.4f} iter time (s): {t.step_s:.3f} samples/sec: 91.430")
        if i % t.steps == 0:
            t.validate()


def epoch_bracket(t: Training) -> None:
    for epoch in t.range():
        for i in range(1, t.steps + 1):
            loss = t.step()
            if t.now_and_then(i):
                out(f"Epoch [{epoch + 1}/{t.epochs}], Step [{i}/{t.steps}], Loss: {loss:.4f}")
        t.validate()


def epoch_only(t: Training) -> None:
    for epoch in t.range():
        for _ in range(t.steps):
            t.step()
        out(f"Epoch {epoch + 1}/{t.epochs}: loss {t.loss:.4f}, val loss {t.validate():.4f}")


def epoch_from_zero(t: Training) -> None:  # the transfer-learning tutorial of PyTorch
    for epoch in t.range():
        out(f"Epoch {epoch}/{t.epochs - 1}\n----------")
        for _ in range(t.steps):
            t.step()
        out(f"train Loss: {t.loss:.4f} Acc: 0.5012\nval Loss: {t.validate():.4f} Acc: 0.5")


def step_of(t: Training) -> None:
    total = t.epochs * t.steps
    for i in range(t.first * t.steps + 1, total + 1):
        loss = t.step()
        if t.now_and_then(i):
            out(f"step {i}/{total} | loss {loss:.4f} | lr 1.0e-04 | tok/s 91430")
        if i % t.steps == 0:
            t.validate()


def ranks(t: Training) -> None:
    """Four ranks that write to one output, each a little behind the other."""
    for epoch in t.range():
        lines: list[str] = []
        for i in range(1, t.steps + 1):
            loss = t.step()
            lines += [
                f"[rank{r}]: Epoch {epoch + 1}/{t.epochs} step {i}/{t.steps} loss {loss:.3f}"
                for r in range(4)
            ]
            held = t.source.randrange(3)
            for line in lines[: len(lines) - held]:
                out(line)
            lines = lines[len(lines) - held :]
        t.validate()
        for line in lines:
            out(line)


def ultralytics(t: Training) -> None:
    from tqdm import tqdm

    out("      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size")
    for epoch in t.range():
        bar = tqdm(range(t.steps), bar_format="{l_bar}{bar:10}{r_bar}", mininterval=0.05)
        for _ in bar:
            bar.set_description(
                f"{epoch + 1:>7}/{t.epochs}      2.3G {t.step():10.4g}      0.456  "
                "    0.789         12        640"
            )
        for _ in tqdm(range(4), desc="                 Class     Images  Instances      Box(P"):
            time.sleep(t.validate_s / 4)


def timm(t: Training) -> None:
    out(f"Scheduled epochs: {t.epochs}. LR stepped per epoch.")
    for epoch in t.range():
        for i in range(t.steps):
            loss = t.step()
            if t.now_and_then(i):
                out(
                    f"Train: {epoch} [{i:>4d}/{t.steps} ({100 * i / (t.steps - 1):>3.0f}%)]  Loss: "
                    f"{loss:.3g} (5.62)  Time: 0.350s,  91.43/s  LR: 1.000e-03"
                )
        for i in range(5):
            time.sleep(t.validate_s / 5)
            out(f"Test: [{i:>4d}/4]  Time: 0.100 (0.120)  Loss:   4.91 ( 5.01)  Acc@1:  50.1")


def imagenet(t: Training) -> None:
    for epoch in t.range():
        for i in range(t.steps):
            loss = t.step()
            if t.now_and_then(i):
                out(f"Epoch: [{epoch}][{i + 1:4d}/{t.steps}]\tTime  0.350\tLoss {loss:.4e}")
        for i in range(5):
            time.sleep(t.validate_s / 5)
            out(f"Test: [{i + 1:2d}/5]\tTime  0.100 ( 0.120)\tLoss 4.91e+00\tAcc@1  50.12")


def torchvision(t: Training) -> None:
    for epoch in t.range():
        for i in range(t.steps):
            loss = t.step()
            if t.now_and_then(i):
                out(
                    f"Epoch: [{epoch}]  [{i:4d}/{t.steps}]  eta: {_clock((t.steps - i) * t.step_s)}"
                    f"  lr: 0.1  img/s: 91.4  loss: {loss:.4f} (5.62)"
                )
        out(f"Epoch: [{epoch}] Total time: 0:00:31")
        for i in range(5):
            time.sleep(t.validate_s / 5)
            out(f"Test:   [{i}/5]  eta: 0:00:01  loss: 4.9102 (5.0112)  acc1: 50.1 (50.2)")


def mnist(t: Training) -> None:
    rows = t.steps * 64
    for epoch in t.range():
        for i in range(t.steps):
            loss = t.step()
            if t.now_and_then(i):
                out(
                    f"Train Epoch: {epoch + 1} [{i * 64}/{rows} ({100 * i / t.steps:.0f}%)]\t"
                    f"Loss: {loss:.6f}"
                )
        out(f"\nTest set: Average loss: {t.validate():.4f}, Accuracy: 5012/10000 (50%)\n")


def nanogpt(t: Training) -> None:
    total = t.epochs * t.steps
    for i in range(t.first * t.steps, total + 1):
        if i % t.steps == 0:
            t.validate()
            out(f"step {i}: train loss {t.loss:.4f}, val loss {t.loss:.4f}")
        loss = t.step()
        if t.now_and_then(i):
            out(f"iter {i}: loss {loss:.4f}, time {1e3 * t.step_s:.2f}ms, mfu 12.00%")


def fastai(t: Training) -> None:
    out("epoch     train_loss  valid_loss  accuracy  time    ")
    for epoch in t.range():
        for _ in range(t.steps):
            t.step()
        out(f"{epoch:<9} {t.loss:<11.6f} {t.validate():<11.6f} 0.501200  00:02    ")


def composer(t: Training) -> None:
    for epoch in t.range():
        for i in range(1, t.steps + 1):
            loss = t.step()
            if t.now_and_then(i):
                out(f"[epoch={epoch + 1}/{t.epochs}][batch={i}/{t.steps}]: {loss:.4f}")
        t.validate()


def clu(t: Training) -> None:
    total = t.epochs * t.steps
    for i in range(t.first * t.steps + 1, total + 1):
        t.step()
        if t.now_and_then(i):
            out(
                f"I0301 12:00:00 139 local.py:45] Setting work unit notes: {1 / t.step_s:.1f} "
                f"steps/s, {100 * i / total:.1f}% ({i}/{total}), ETA: 1m"
            )
        if i % t.steps == 0:
            t.validate()


def boosting(t: Training) -> None:
    import lightgbm

    class Waiting:
        order, before_iteration = 0, False

        def __call__(self, env: Any) -> None:
            t.step()

    rounds = t.epochs * t.steps
    data = lightgbm.Dataset(t.x, t.y % 2)
    lightgbm.train(
        {"objective": "binary", "num_threads": 1, "num_leaves": 4},
        data,
        rounds,
        valid_sets=[data],
        callbacks=[Waiting(), lightgbm.log_evaluation(5)],
    )


def folds(t: Training) -> None:
    for fold in range(3):
        out(f"Fold {fold + 1}/3")
        for epoch in range(t.epochs // 3):
            for _ in range(t.steps):
                t.step()
            out(f"Epoch {epoch + 1}/{t.epochs // 3} loss {t.validate():.4f}")


def json_line(t: Training) -> None:
    total = t.epochs * t.steps
    for i in range(t.first * t.steps + 1, total + 1):
        t.step()
        if t.now_and_then(i):
            out(json.dumps({"progress": {"done": i, "of": total}}))
        if i % t.steps == 0:
            t.validate()


def own_file(t: Training) -> None:
    total = t.epochs * t.steps
    for i in range(t.first * t.steps + 1, total + 1):
        t.step()
        with open(os.environ["PELLUCID_PROGRESS"], "w", encoding="utf-8") as file:
            file.write(f"{i}/{total}\n")
        if i % t.steps == 0:
            t.validate()


TRAININGS = {
    function.__name__: function
    for function in (
        tqdm_nested,
        tqdm_epoch,
        keras3,
        keras2,
        keras_log,
        lightning,
        hugging_face,
        fairseq,
        mmengine,
        mmengine_iters,
        detectron2,
        megatron,
        deepspeed,
        epoch_bracket,
        epoch_only,
        epoch_from_zero,
        step_of,
        ranks,
        ultralytics,
        timm,
        imagenet,
        torchvision,
        mnist,
        nanogpt,
        fastai,
        composer,
        clu,
        boosting,
        folds,
        json_line,
        own_file,
    )
}
# what these do not print, their command says, as it has to
NEEDS = {
    "lightning": "epochs",
    "imagenet": "epochs",
    "torchvision": "epochs",
    "mnist": "epochs",
    "fastai": "epochs",
    "nanogpt": "max_iters",
    "boosting": "num_boost_round",
}


def main() -> None:
    name = sys.argv[1]
    if name == "heavy":
        until = time.monotonic() + float(sys.argv[2])
        line = b"Epoch 3/90 [120/500] loss 0.3012 lr 1.0e-02 and so on and on and on\n"
        while time.monotonic() < until:
            sys.stdout.buffer.write(2000 * line)
            time.sleep(0.002)
    else:
        TRAININGS[name](Training())


if __name__ == "__main__":
    main()
