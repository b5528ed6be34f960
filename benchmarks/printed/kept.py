"""Trainings that were not used in developing the reader. It is judged by these, too."""

from __future__ import annotations

from benchmarks.printed.case import BARS, FEW, MANY, SOME, Case
from benchmarks.printed.log import again, by_epoch, by_step, ranks
from benchmarks.printed.shapes import hugging_face, one_bar, tqdm_epochs

CASES = (
    Case(
        "Dopamine",
        "python train.py --num_iterations {epochs}",
        by_epoch(
            end="I0301 12:00:00.123456 139 run_experiment.py:512] Average training steps per second: 91.43\nStarting iteration {n}"
        ),
        MANY,
    ),
    Case(
        "Catalyst",
        "python train.py --num_epochs {epochs}",
        by_epoch(
            end="train ({n}/{epochs}) loss: {loss:.4f} | loss/mean: {loss:.4f}\nvalid ({n}/{epochs}) loss: {loss:.4f}\n* Epoch ({n}/{epochs})"
        ),
        SOME,
    ),
    Case(
        "MONAI",
        "python -m monai.bundle run --config_file a.json",
        by_epoch(
            "2026-03-01 12:00:00,123 - INFO - Epoch: {n}/{epochs}, Iter: {k}/{steps} -- train_loss: {loss:.4f} ",
            end="2026-03-01 12:00:00,123 - INFO - Epoch[{n}] Complete. Time taken: 00:12:03",
        ),
        SOME,
    ),
    Case(
        "Horovod",
        "horovodrun -np 4 python main.py --epochs {epochs}",
        tqdm_epochs("Train Epoch     #{n}", "Validate Epoch  #1", "loss={loss:.3f}, accuracy=51.2"),
        SOME,
        BARS,
    ),
    Case(
        "ms-swift",
        "swift sft --model a --num_train_epochs {epochs}",
        by_epoch(
            "{{'loss': {loss:.4f}, 'grad_norm': 1.2034, 'learning_rate': 4.1e-05, 'epoch': {share:.2f}, 'global_step/max_steps': '{h}/{total}', 'percentage': '12.00%', 'elapsed_time': '12m 3s', 'remaining_time': '50m 3s', 'memory(GiB)': 34.01}}"
        ),
        FEW,
    ),
    Case("LLaMA-Factory", "llamafactory-cli train a.yaml", hugging_face(), FEW, BARS),
    Case(
        "GPT-NeoX",
        "python deepy.py train.py a.yml",
        by_step(
            " samples/sec: 91.431 | iteration {h:8d}/{total:8d} | elapsed time per iteration (ms): {ms:.1f} | learning rate 6.000E-05 | approx flops per GPU: 112.0TFLOPS | lm_loss: {loss:.6E} |",
            test=" validation results at iteration {h} | lm_loss value: 4.1E+00 |",
        ),
    ),
    Case(
        "PyKEEN",
        "python train.py --epochs {epochs}",
        one_bar("Training epochs on cuda:0", "loss={loss:.3f}"),
        SOME,
        BARS,
    ),
    Case("skrl", "python train.py --timesteps {total}", one_bar("", ""), SOME, BARS),
    Case(
        "left in words",
        "python train.py",
        by_epoch("ep {n}/{epochs} | it {k}/{steps} | loss {loss:.4f} | left {eta}"),
        SOME,
    ),
    Case(
        "GAN",
        "python train.py --n_epochs {epochs}",
        by_epoch(
            "[Epoch {e}/{epochs}] [Batch {i}/{steps}] [D loss: {loss:.4f}] [G loss: {loss:.4f}]"
        ),
        SOME,
    ),
    Case(
        "home-made table",
        "python train.py --epochs {epochs}",
        by_epoch(
            head="| epoch | train loss | val loss | time |",
            end="| {n:5d} | {loss:10.4f} | {loss:8.4f} | {took:4.0f} |",
        ),
        SOME,
    ),
    Case(
        "repeats",
        "python train.py --n_repeats 3 --epochs {epochs}",
        again(
            by_epoch(end="Epoch {n:02d}/{epochs} - loss: {loss:.4f} - val_loss: {loss:.4f}"),
            "Run {i} of {times}",
            3,
            begin=1,
        ),
        SOME,
    ),
    Case(
        "torchrun ranks",
        "torchrun train.py --max_iters {total}",
        ranks(by_step("iter: {h}, loss: {loss:.4f}, lr: 1.0e-4"), "[rank{rank}]: "),
        SOME,
    ),
    Case(
        "patience",
        "python train.py --max-epochs {epochs} --patience 7",
        by_epoch(end="Epoch {n} | train {loss:.4f} | val {loss:.4f} | best 0.3 at 3"),
        (25, 90),
        stops=(0.3, 0.95),
    ),
)
