"""Trainings in the shapes of lines that people pasted into public trackers; the reader is worked on
with them.
"""

from __future__ import annotations

from benchmarks.printed.case import BARS, FEW, MANY, SOME, Case
from benchmarks.printed.log import Run, by_epoch, by_step, long, strides


def progress_bar(t: Run) -> None:
    """Print bars of the package `progress`, each redrawn on its line."""
    t.begin()
    for e in t.epochs():
        t.line("\nEpoch: [{n} | {epochs}] LR: 0.100000", n=e + 1)
        begun_s, shown_s = t.now, 0.0
        for k in strides(t):
            if t.now - shown_s < 0.5 and k < t.sizes.steps:
                continue
            shown_s, took = t.now, t.now - begun_s
            t.put(
                f"\rProcessing |{'#' * (32 * k // t.sizes.steps):32s}| ({k}/{t.sizes.steps}) Data: 0.010s | "
                f"Batch: {took / k:.3f}s | Total: {long(took)} | ETA: {long(took / k * (t.sizes.steps - k))} | "
                f"Loss: {t._loss:.4f} | top1: 51.2034"
            )
        t.put("\n")
        t.validate()
    t.end()


def one_line_again(t: Run) -> None:
    """Print a line in braces that is redrawn, with the steps in thousands, as vocoders do."""
    t.begin()
    for e in t.epochs():
        shown_s = 0.0
        for k in strides(t):
            if t.now - shown_s < 0.5 and k < t.sizes.steps:
                continue
            shown_s = t.now
            h = e * t.sizes.steps + k
            t.put(
                f"\r{{| Epoch: {e + 1} ({k}/{t.sizes.steps}) | Loss: {t._loss:.4f} | "
                f"{1 / t.sizes.step_s:.1f} steps/s | Step: {h // 1000}k | }}"
            )
        t.put(" \n")
        t.validate()
    t.end()


def with_minutes(t: Run) -> None:
    """Print the time elapsed and, in brackets, the time left, as a tutorial does."""
    t.begin()
    for e in t.epochs():
        done = 0
        for k in range(t.sizes.every, t.sizes.steps + 1, t.sizes.every):
            t.steps(k - done)
            done = k
            h = e * t.sizes.steps + k
            took = t.now - t._began
            left = took * (t.total - h) / h
            t.line(
                f"{took // 60:.0f}m {took % 60:.0f}s (- {left // 60:.0f}m {left % 60:.0f}s) "
                f"({h} {100 * h / t.total:.0f}%) {{loss:.4f}}"
            )
        t.steps(t.sizes.steps - done)
    t.end()


CASES = (
    Case(
        "end of epoch",
        "python train.py --dataroot a --n_epochs {epochs}",
        by_epoch(
            "(epoch: {n}, iters: {k}, time: {s:.3f}, data: 0.010) G_GAN: {loss:.3f} G_L1: 12.034 D_real: 0.512",
            end="End of epoch {n} / {epochs} \t Time Taken: {took:.0f} sec",
        ),
        SOME,
    ),
    Case(
        "two numbers",
        "python train_sony.py --epochs {epochs}",
        by_epoch("{n} {k} Loss={loss:.3f} Time={s:.3f}"),
        SOME,
    ),
    Case(
        "stages with need",
        "python main.py --epochs {epochs}",
        by_epoch(
            "  Iter: [{k:03d}/{steps}]   Freq 129.1   loss_target 0.000   loss_source {loss:.3f}   loss_total {loss:.3f}   [2026-03-01 12:00:00]",
            begin="==>>[2026-03-01 12:00:00] [Epoch={e:03d}/{epochs:03d}] Stage 1, [Need: 00:00:00]",
        ),
        (10, 60),
    ),
    Case("progress's bars", "python cifar.py --epochs {epochs}", progress_bar, SOME, BARS),
    Case(
        "passes over what was collected",
        "python optimizer.py --iterations {epochs}",
        by_epoch(
            test="2026-03-01 12:00:00,123 INFO      epoch {k}/5",
            end="2026-03-01 12:00:00,123 INFO     steps_per_s=443.39, reward_per_sec=-0.0046, loss={loss:.4f}\n2026-03-01 12:00:00,123 INFO     iteration {n}/{epochs}",
        ),
        MANY,
    ),
    Case(
        "a value a line",
        "python pg_re.py --num_iterations {epochs}",
        by_epoch(
            end="-----------------\nIteration: \t {e}\nNumTrajs: \t 200\nNumTimesteps: \t 32549\nLoss:     \t {loss:.6f}\nMaxRew: \t -199.9095\nElapsed time\t {took:.4f} seconds\n-----------------"
        ),
        MANY,
    ),
    Case("vocoder", "python vocoder_train.py a b --epochs {epochs}", one_line_again, SOME, BARS),
    Case(
        "boxed table",
        "python train.py --max_iterations {epochs}",
        by_epoch(
            head="+--------------+--------------+--------------+\n| Iteration    | Loss         | Elapsed Time |\n+--------------+--------------+--------------+",
            end="| {n:<12d} | {loss:<12.5f} | {wall:.2f}s        |",
        ),
        MANY,
    ),
    Case(
        "training and eval epoch",
        "python main.py --config a.yaml --num-epoch {epochs}",
        by_epoch(
            begin="[ Sun Mar  1 12:00:00 2026 ] Training epoch: {n}",
            end="[ Sun Mar  1 12:00:00 2026 ] \tMean training loss: {loss:.4f}.  Mean training acc: 70.04%.\n[ Sun Mar  1 12:00:00 2026 ] \tTime consumption: [Data]16%, [Network]84%\n[ Sun Mar  1 12:00:00 2026 ] Eval epoch: {n}\n[ Sun Mar  1 12:00:00 2026 ] \tMean test loss of 8 batches: 0.5755.",
        ),
        MANY,
    ),
    Case(
        "complete",
        "python train.py --max_epoch {epochs}",
        by_epoch(
            end="2026-03-01 12:00:00,123 - INFO: ===> Epoch {n} Complete: Avg. Loss: {loss:.6f} time: {took:.2f}\n2026-03-01 12:00:00,123 - INFO: ===> Epoch {n}: testing psnr = 34.21, ssim = 0.934, time: 0.02"
        ),
        MANY,
    ),
    Case(
        "accuracies",
        "python gcn.py --epochs {epochs}",
        by_epoch(end="Epoch: {n:03d}, Loss: {loss:.4f}, Train: 0.5120, Val: 0.4512, Test: 0.4512"),
        MANY,
    ),
    Case(
        "iteration and step",
        "python train.py --training-iterations {epochs}",
        by_epoch(
            end="Iteration {n} - loss: nll_per_pixel: {loss:.6f} mse: 0.011103 kld: 0.147033 - lr: 5.0000e-04 - step: {h} - elapsed_time: 20.140 min"
        ),
        MANY,
    ),
    Case(
        "average of epoch",
        "python main.py -num_epochs {epochs}",
        by_epoch(
            end="average training of epoch {e}: loss {loss:.5f} acc 0.69500 auc 0.00000\naverage test of epoch {e}: loss {loss:.5f} acc 0.73214 auc 0.00000"
        ),
        MANY,
    ),
    Case(
        "rows of an epoch",
        "python quickstart.py --epochs {epochs}",
        by_epoch(
            "loss: {loss:>7f}  [{k:>5d}/{steps:>5d}]",
            begin="Epoch {n}\n-------------------------------",
            end="Test Error: \n Accuracy: 51.2%, Avg loss: {loss:>8f} \n",
        ),
        SOME,
    ),
    Case(
        "ep of",
        "python train.py --epochs {epochs}",
        by_epoch(
            end="  Ep {n:>5}/{epochs} | train={loss:.4f}  eval={loss:.4f}  train_r=0.5120  patience 3"
        ),
        MANY,
    ),
    Case("minutes and seconds", "python train.py --n-iters {total}", with_minutes, SOME),
    Case(
        "number after a hash",
        "python faceswap.py train -A a -B b -it {total}",
        by_step("[12:00:00] [#{h:05d}] Loss A: {loss:.5f}, Loss B: {loss:.5f}"),
    ),
    Case(
        "batches of a language model",
        "python main.py --cuda --epochs {epochs}",
        by_epoch(
            "| epoch {n:3d} | {k:5d}/{steps:5d} batches | lr 20.00 | ms/batch {ms:5.2f} | loss {loss:5.2f} | ppl   512.03",
            end="-----------------------------------------------------------------------------------------\n| end of epoch {n:3d} | time: {took:5.2f}s | valid loss {loss:5.2f} | valid ppl   123.40",
        ),
        SOME,
    ),
    Case(
        "between double bars",
        "python train.py --network a",
        by_epoch(
            "Epoch:{n}/{epochs} || Epochiter: {k}/{steps} || Iter: {h}/{total} || L: {loss:.4f} C: 0.5120 || LR: 0.00100000 || Batchtime: {s:.4f} s || ETA: {eta}"
        ),
        SOME,
    ),
    Case(
        "time left of epochs",
        "python train.py --epochs {epochs}",
        by_epoch(
            "[Epoch {n:2d}] step {k:5d}/{steps} loss {loss:.3f}",
            end="[Epoch {n:2d}] train {loss:.4f} val {loss:.4f} ({took:.1f}s)",
        ),
        FEW,
    ),
    Case(
        "Ignite",
        "python main.py --max_epochs {epochs}",
        by_epoch(
            "[{n}/{epochs}][{k}/{steps}] loss: {loss:.4f}",
            end="Epoch[{n}] Complete. Time taken: 00:12:03",
        ),
        SOME,
    ),
    Case(
        "guided diffusion",
        "mpiexec -n 8 python image_train.py --lr_anneal_steps {total}",
        by_step(
            "----------------------------\n| grad_norm    | 0.512     |\n| loss         | {loss:.4f}    |\n| step         | {h:<9} |\n| samples      | {rows:<9} |\n----------------------------"
        ),
    ),
    Case(
        "Sockeye",
        "sockeye-train -d a -o b --max-num-epochs {epochs}",
        by_epoch(
            "[INFO:sockeye.training] Epoch[{n}] Batch [{h}] Speed: 9143.12 samples/sec 91431.20 tokens/sec 3.12 updates/sec lr=0.000200 ppl=45.2"
        ),
        SOME,
    ),
    Case(
        "GluonCV",
        "python train.py --num-epochs {epochs}",
        by_epoch(
            "Epoch[{e}] Batch [{i}]\tSpeed: 914.312 samples/sec\taccuracy=0.512\tlr=0.100000",
            end="[Epoch {e}] training: accuracy=0.512034\n[Epoch {e}] speed: 914 samples/sec\ttime cost: 120.341",
        ),
        SOME,
    ),
    Case(
        "resumed",
        "python train.py --total_iters {total} --resume",
        by_step("Iter {h}/{total}  loss {loss:.4f}  lr 1.0e-4  {per_s:.2f} it/s"),
        resumes=True,
    ),
)
