"""What trainers of the field print, on a clock of its own. tqdm prints itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

NOW = "03/01 12:00:00"


class Training:
    """How long a step and the end of an epoch take, and a clock that who waits moves on."""

    def __init__(self, clock: Any, out: Callable[[str], object], **sizes: float):
        self.clock, self.write = clock, out
        self.epochs, self.steps = int(sizes["epochs"]), int(sizes["steps"])
        self.step_s, self.validate_s = sizes["step_s"], sizes["validate_s"]
        self.every, self.done, self.loss = 5, 0, 2.3
        self.total = self.epochs * self.steps
        self.source = random.Random(0)
        clock.sleep(1.0)  # its imports
        self.began = clock.now

    def step(self) -> float:
        self.clock.sleep(
            self.step_s * self.source.uniform(0.8, 1.2) + 20 * self.step_s * (not self.done)
        )
        self.done += 1
        return self.loss

    def validate(self, parts: int = 1) -> None:
        self.clock.sleep(self.validate_s * self.source.uniform(0.9, 1.1) / parts)

    def out(self, text: str, end: str = "\n") -> None:
        self.write(text + end)

    def line(self, text: str, **fields: Any) -> None:
        """A line, if there is one, with what may stand in it."""
        if text:
            pace = (self.clock.now - self.began) / max(1, self.done)
            left = self.total - self.done
            known: dict[str, Any] = {
                "epochs": self.epochs, "last": self.epochs - 1, "steps": self.steps,
                "total": self.total, "rows": 64 * self.steps, "loss": self.loss, "done": self.done,
                "eta": _clock(left * pace), "ms": 1e3 * self.step_s, "per_s": 1 / self.step_s,
            }  # fmt: skip
            self.out(text.format(**known, **fields))


def _clock(seconds: float) -> str:
    return f"{int(seconds // 3600)}:{int(seconds // 60 % 60):02d}:{int(seconds % 60):02d}"


def by_epoch(
    step: str = "", *, head: str = "", begin: str = "", test: str = "", end: str = ""
) -> Callable[[Training], None]:
    """Epochs of steps, every fifth of which prints a line, and a test of five parts.

    Fields: `e`, `i` count from 0, `n`, `k` from 1; what `Training.line` knows.
    """

    def run(t: Training) -> None:
        t.line(head)
        for e in range(t.epochs):
            t.line(begin, e=e, n=e + 1)
            for i in range(t.steps):
                t.step()
                if i % t.every == 0:
                    left = _clock((t.steps - i) * t.step_s)
                    at = {"e": e, "n": e + 1, "i": i, "k": i + 1, "row": i * 64, "epoch_eta": left}
                    t.line(step, **at, percent=100 * i / t.steps)
            for i in range(5):
                t.validate(5)
                t.line(test, i=i, k=i + 1)
            t.line(end, e=e, n=e + 1)

    return run


def by_step(step: str, *, head: str = "", begin: str = "") -> Callable[[Training], None]:
    """Steps without epochs; what is printed before each validation is `begin`."""

    def run(t: Training) -> None:
        t.line(head)
        for i in range(t.total):
            if i and i % t.steps == 0:
                t.validate()
                t.line(begin, i=i)
            t.step()
            if i % t.every == 0:
                t.line(step, i=i, k=i + 1, percent=100 * (i + 1) / t.total, samples=i * 256)

    return run


def tqdm_nested(t: Training) -> None:
    from tqdm import trange

    for _ in trange(t.epochs):
        for _ in trange(t.steps, leave=False):
            t.step()
        t.validate()


def tqdm_epochs(head: str, description: str, test: str) -> Callable[[Training], None]:
    def run(t: Training) -> None:
        from tqdm import tqdm

        t.line(head)
        for e in range(t.epochs):
            words = description.format(e=e, n=e + 1, epochs=t.epochs)
            with tqdm(range(t.steps), desc=words, mininterval=0.05) as bar:
                for _ in bar:
                    bar.set_postfix(loss=t.step())
            for _ in tqdm(range(5), desc=test):
                t.validate(5)

    return run


def hugging_face(t: Training) -> None:
    from tqdm import tqdm

    t.line("***** Running training *****\n  Num Epochs = {epochs}\n  Instantaneous batch size per "
           "device = 8\n  Total optimization steps = {total:,}")  # fmt: skip
    bar = tqdm(total=t.total)
    for e in range(t.epochs):
        for i in range(t.steps):
            t.step()
            bar.update()
            if i % t.every == 0:
                bar.write(str({"loss": 2.3, "grad_norm": 1.2, "epoch": round(e + i / t.steps, 2)}))
        for _ in tqdm(range(5), leave=False):
            t.validate(5)
        bar.write(str({"eval_loss": 0.41, "eval_runtime": 1.2, "epoch": float(e + 1)}))


def keras3(t: Training) -> None:
    for e in range(t.epochs):
        t.line("Epoch {n}/{epochs}", n=e + 1)
        for i in range(1, t.steps + 1):
            t.step()
            filled = 20 * i // t.steps
            bar = f"\x1b[32m{'━' * filled}\x1b[0m\x1b[37m{'━' * (20 - filled)}\x1b[0m"
            left = f"{(t.steps - i) * t.step_s:.0f}s"
            t.out(f"\r\x1b[1m{i}/{t.steps}\x1b[0m {bar} \x1b[1m{left}\x1b[0m 28ms/step - "
                  "accuracy: 0.5012 - loss: 2.3000", end="")  # fmt: skip
        t.validate()
        t.out(f"\r\x1b[1m{t.steps}/{t.steps}\x1b[0m \x1b[32m{'━' * 20}\x1b[0m\x1b[37m\x1b[0m "
              "\x1b[1m14s\x1b[0m 28ms/step - loss: 0.3400 - val_loss: 0.41")  # fmt: skip


def keras2(t: Training) -> None:
    width = 0
    for e in range(t.epochs):
        t.line("Epoch {n}/{epochs}", n=e + 1)
        for i in range(1, t.steps + 1):
            t.step()
            bar = "=" * (30 * i // t.steps) + ">"
            text = f"{i}/{t.steps} [{bar:.<30.30s}] - ETA: {(t.steps - i) * t.step_s:.0f}s"
            t.out("\b" * width + "\r" + text + " - loss: 2.3000", end="")
            width = len(text) + 15
        t.validate()
        t.out("\b" * width + f"\r{t.steps}/{t.steps} [{'=' * 30}] - 14s 28ms/step - loss: 0.3400")


def ranks(t: Training) -> None:
    """Four ranks that write to one output, each a little behind the other."""
    for e in range(t.epochs):
        lines: list[str] = []
        for i in range(1, t.steps + 1):
            t.step()
            words = f"Epoch {e + 1}/{t.epochs} step {i}/{t.steps} loss 2.300"
            lines += [f"[rank{r}]: {words}" for r in range(4)]
            held = t.source.randrange(3)
            for line in lines[: len(lines) - held]:
                t.out(line)
            lines = lines[len(lines) - held :]
        t.validate()
        for line in lines:
            t.out(line)


def folds(t: Training) -> None:
    for fold in range(3):
        t.out(f"Fold {fold + 1}/3")
        for e in range(t.epochs // 3):
            for _ in range(t.steps):
                t.step()
            t.validate()
            t.out(f"Epoch {e + 1}/{t.epochs // 3} loss 2.3000")


_FAIRSEQ = "2024-03-01 12:00:00 | INFO | "
TRAININGS: dict[str, Callable[[Training], None]] = {
    "tqdm_nested": tqdm_nested,
    "tqdm_epoch": tqdm_epochs("", "Epoch {n}/{epochs}", "Validating"),
    "keras3": keras3,
    "keras2": keras2,
    "keras_log": by_epoch(
        begin="Epoch {n}/{epochs}",
        end="{steps}/{steps} - 14s - 28ms/step - accuracy: 0.5 - loss: {loss:.4f}",
    ),
    "lightning": tqdm_epochs(
        "GPU available: True (cuda), used: True\n  | Name | Type | Params\n0 | layer | MLP | 9.5 K",
        "Epoch {e}",
        "Validation DataLoader 0",
    ),
    "hugging_face": hugging_face,
    "fairseq": by_epoch(
        _FAIRSEQ + "train_inner | epoch {n:03d}: {k:6d} / {steps} loss={loss:.3f}, ppl=45.2, "
        "wps=9140, num_updates={done}, lr=0.0005, gnorm=1.2, train_wall=32, wall=320",
        head=_FAIRSEQ + "fairseq_cli.train | {{'optimization': {{'max_epoch': {epochs}, "
        "'max_update': 0, 'lr': [0.0005]}}}}",
        begin=_FAIRSEQ + "fairseq.trainer | begin training epoch {n}",
        end=_FAIRSEQ + "valid | epoch {n:03d} | valid on 'valid' subset | loss 4.91 | ppl 30.1 | "
        "num_updates {done}",
    ),
    "mmengine": by_epoch(
        NOW + " - mmengine - INFO - Epoch(train)  [{n}][{k:3d}/{steps}]  lr: 1.0e-02  eta: {eta}  "
        "loss: {loss:.4f}",
        head="train_cfg = dict(by_epoch=True, max_epochs={epochs}, val_interval=1)",
        end=NOW + " - mmengine - INFO - Epoch(val) [{n}][5/5] accuracy: 50.12",
    ),
    "mmengine_iters": by_step(
        NOW + " - mmengine - INFO - Iter(train) [{k:5d}/{total}]  eta: {eta}  loss: {loss:.4f}"
    ),
    "detectron2": by_step(
        "[" + NOW + " d2.utils.events]:  eta: {eta}  iter: {i}  total_loss: 1  loss_cls: 0.91  "
        "time: 0.3500  lr: 0.02  max_mem: 3400M"
    ),
    "megatron": by_step(
        " [2024-03-01 12:00:00] iteration {k:8d}/{total:8d} | samples: {samples} | elapsed time per"
        " iteration (ms): {ms:.1f} | global batch size:   256 | lm loss: {loss:.6E} |"
    ),
    "deepspeed": by_step(
        "steps: {k} loss: {loss:.4f} iter time (s): 0.050 samples/sec: 91.430",
        head="config: {{'train_batch_size': 256, 'train_iters': {total}}}",
    ),
    "epoch_bracket": by_epoch("Epoch [{n}/{epochs}], Step [{k}/{steps}], Loss: {loss:.4f}"),
    "epoch_only": by_epoch(end="Epoch {n}/{epochs}: loss {loss:.4f}, val loss {loss:.4f}"),
    "epoch_from_zero": by_epoch(  # the transfer-learning tutorial of PyTorch
        begin="Epoch {e}/{last}\n----------",
        end="train Loss: {loss:.4f} Acc: 0.5012\nval Loss: {loss:.4f} Acc: 0.5",
    ),
    "step_of": by_step("step {k}/{total} | loss {loss:.4f} | lr 1.0e-04 | tok/s 91430"),
    "ranks": ranks,
    "ultralytics": tqdm_epochs(
        "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size",
        "{n:>7}/{epochs}      2.3G       2.30      0.456      0.789         12        640",
        "                 Class     Images  Instances      Box(P",
    ),
    "timm": by_epoch(
        "Train: {e} [{i:>4d}/{steps} ({percent:>3.0f}%)]  Loss: {loss:.3g} (5.62)  Time: 0.350s,  "
        "91.43/s  LR: 1.000e-03",
        head="Scheduled epochs: {epochs}. LR stepped per epoch.",
        test="Test: [{i:>4d}/4]  Time: 0.100 (0.120)  Loss:   4.91 ( 5.01)  Acc@1:  50.1",
    ),
    "imagenet": by_epoch(
        "Epoch: [{e}][{k:4d}/{steps}]\tTime  0.350\tLoss {loss:.4e}",
        test="Test: [{k:2d}/5]\tTime  0.100 ( 0.120)\tLoss 4.91e+00\tAcc@1  50.12",
    ),
    "torchvision": by_epoch(
        "Epoch: [{e}]  [{i:4d}/{steps}]  eta: {epoch_eta}  lr: 0.1  img/s: 91.4  loss: {loss:.4f}",
        test="Test:   [{i}/5]  eta: 0:00:01  loss: 4.9102 (5.0112)  acc1: 50.1 (50.2)",
    ),
    "mnist": by_epoch(
        "Train Epoch: {n} [{row}/{rows} ({percent:.0f}%)]\tLoss: {loss:.6f}",
        end="\nTest set: Average loss: {loss:.4f}, Accuracy: 5012/10000 (50%)\n",
    ),
    "nanogpt": by_step(
        "iter {i}: loss {loss:.4f}, time {ms:.2f}ms, mfu 12.00%",
        begin="step {i}: train loss {loss:.4f}, val loss {loss:.4f}",
    ),
    "fastai": by_epoch(
        head="epoch     train_loss  valid_loss  accuracy  time    ",
        end="{e:<9} {loss:<11.6f} {loss:<11.6f} 0.501200  00:02    ",
    ),
    "composer": by_epoch("[epoch={n}/{epochs}][batch={k}/{steps}]: {loss:.4f}"),
    "clu": by_step(
        "I0301 12:00:00 139 local.py:45] Setting work unit notes: {per_s:.1f} steps/s, "
        "{percent:.1f}% ({k}/{total}), ETA: 1m"
    ),
    "boosting": by_step("[{k}]\tvalid_0's binary_logloss: {loss:.6f}"),
    "folds": folds,
    "json_line": by_step('{{"progress": {{"done": {k}, "of": {total}}}}}'),
}  # fmt: skip
# what these do not print, their command says, as it has to
NEEDS = {
    "lightning": "epochs",
    "imagenet": "epochs",
    "torchvision": "epochs",
    "mnist": "epochs",
    "fastai": "epochs",
    "nanogpt": "steps",
    "boosting": "steps",
}
