"""Further trainings, written after the reader to test it on logs that it did not know. Then the
reader was taught the kinds of logs that it had not read."""

from __future__ import annotations

from benchmarks.printed.case import BARS, FEW, MANY, SOME, Case
from benchmarks.printed.log import Run, again, by_epoch, by_step, preceded, ranks, short, strides
from benchmarks.printed.shapes import hugging_face, one_bar, tqdm_epochs


def unknown_length(t: Run) -> None:
    """Print Lightning's bars for a stream of data, whose length Lightning learns in the first
    epoch."""
    t.begin()
    for e in t.epochs():
        begun_s = t.now
        for k in strides(t):
            if e == t.sizes.first:
                took = t.now - begun_s
                t.put(
                    f"\rEpoch {e}: |          | {k}/? [{short(took)}<?, {k / took:.2f}it/s, v_num=3]"
                )
            else:
                t.bar(f"Epoch {e}", k, t.sizes.steps, begun_s, after="v_num=3")
        t.put("\n")
        t.validate()
    t.end()


def keras_unknown(t: Run) -> None:
    """Print a training of Keras on a dataset whose length Keras learns in the first epoch."""
    t.begin()
    for e in t.epochs():
        t.line("Epoch {n}/{epochs}", n=e + 1)
        for k in strides(t):
            of = "Unknown" if e == 0 else f"{t.sizes.steps}"
            t.put(
                f"\r\x1b[1m{k}/{of}\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m "
                f"\x1b[1m{t.now - t._began:.0f}s\x1b[0m 28ms/step - loss: {t._loss:.4f}"
            )
        t.validate()
        t.line(
            "\r\x1b[1m{steps}/{steps}\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m "
            "\x1b[1m14s\x1b[0m 28ms/step - loss: {loss:.4f} - val_loss: {loss:.4f}"
        )
    t.end()


def rich_bars(t: Run) -> None:
    """Print Lightning's rich bar, each new state on a line of its own, as where the output is no
    terminal."""
    t.begin()
    for e in t.epochs():
        begun_s, shown_s = t.now, 0.0
        for k in strides(t):
            if t.now - shown_s < 0.5 and k < t.sizes.steps:
                continue
            shown_s, pace = t.now, k / (t.now - begun_s)
            t.line(
                "\x1b[2K\x1b[37mEpoch {e}/{last} \x1b[0m \x1b[35m━━━━━━━━━╸\x1b[0m\x1b[90m━━━━━━\x1b[0m "
                "\x1b[37m{k}/{steps}\x1b[0m \x1b[37m{past} • {rest}\x1b[0m \x1b[37m{pace:.2f}it/s\x1b[0m "
                "\x1b[37mv_num: 0.000\x1b[0m",
                e=e,
                k=k,
                past=clock(t.now - begun_s),
                rest=clock((t.sizes.steps - k) / pace),
                pace=pace,
            )
        t.validate()
    t.end()


def clock(seconds: float) -> str:
    """Return a length of time as rich prints it, h:mm:ss."""
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


def fastprogress(t: Run) -> None:
    """Print fastai's bars as in a console, with a line of figures after each epoch."""
    t.begin()
    t.line("epoch     train_loss  valid_loss  accuracy  time")
    for e in t.epochs():
        begun_s = t.now
        for k in strides(t):
            took = t.now - begun_s
            left = took * (t.sizes.steps - k) / k
            t.put(
                f"\rEpoch {e + 1}/{t.sizes.epochs} : |{'█' * (20 * k // t.sizes.steps):-<20s}| "
                f"{100 * k / t.sizes.steps:.2f}% [{k}/{t.sizes.steps} {short(took)}<{short(left)} {t._loss:.4f}]"
            )
        t.validate()
        t.line(
            "\n{e}         {loss:.6f}    0.456012    0.789012  {took}",
            e=e,
            took=short(t.now - begun_s),
        )
    t.end()


def unsloth(t: Run) -> None:
    """Print the banner of Unsloth, then the output of transformers, with a line of figures after
    every 2 % of the steps."""
    t.line(
        "==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = 1\n"
        "   \\\\   /|    Num examples = 9,143 | Num Epochs = {epochs} | Total steps = {total}\n"
        "O^O/ \\_/ \\    Batch size per device = 2 | Gradient accumulation steps = 4"
    )
    hugging_face(True, False, 0.02)(t)


def kaggle(t: Run) -> None:
    """Print one fold as notebooks of competitions do, with the time elapsed and left."""
    t.line("========== fold: 0 training ==========") if not t.parts else None
    t.begin()
    for e in t.epochs():
        began_s = t.now
        for k in range(t.sizes.every, t.sizes.steps + 1, t.sizes.every):
            t.steps(t.sizes.every)
            took = t.now - began_s
            left = took * (t.sizes.steps - k) / k
            t.line(
                "Epoch: [{n}][{k}/{steps}] Elapsed {took} (remain {left}) Loss: {loss:.4f}({loss:.4f}) Grad: 1.2  LR: 0.00002",
                n=e + 1,
                k=k,
                took=spoken(took),
                left=spoken(left),
            )
        t.steps(t.sizes.steps % t.sizes.every)
        for k in range(1, 6):
            t.validate(5)
            t.line("EVAL: [{k}/5] Elapsed 0m 3s (remain 0m 1s) Loss: {loss:.4f}({loss:.4f})", k=k)
        t.line(
            "Epoch {n} - avg_train_loss: {loss:.4f}  avg_val_loss: {loss:.4f}  time: {took:.0f}s",
            n=e + 1,
            took=t.now - began_s,
        )
    t.end()


def spoken(seconds: float) -> str:
    """Return a length of time in minutes and seconds, such as "3m 20s"."""
    return f"{int(seconds) // 60}m {int(seconds) % 60}s"


def sb3_bar(t: Run) -> None:
    """Print the rich bar of Stable-Baselines3."""
    t.begin()
    begun_s, shown_s = t.now, 0.0
    for e in t.epochs():
        for k in strides(t):
            if t.now - shown_s < 0.3:
                continue
            shown_s, h = t.now, e * t.sizes.steps + k
            pace = h / (t.now - begun_s)
            share = 100 * h / t.total
            t.put(
                f"\r\x1b[35m{share:3.0f}%\x1b[0m \x1b[38;2;249;38;114m━━━━━━━\x1b[0m \x1b[32m{h:,d}/{t.total:,d} \x1b[0m "
                f"[ \x1b[33m{clock(t.now - begun_s)}\x1b[0m < \x1b[36m{clock((t.total - h) / pace)}\x1b[0m , \x1b[31m{pace:,.0f} it/s\x1b[0m ]"
            )
    t.end()


def parlai(t: Run) -> None:
    """Print reports as ParlAI does, with the number of epochs done as a decimal fraction and the
    time left."""
    t.begin()
    t.line("12:00:00 | training...")
    for e in t.epochs():
        for k in range(t.sizes.every, t.sizes.steps + 1, t.sizes.every):
            t.steps(t.sizes.every)
            h = e * t.sizes.steps + k
            t.line(
                "12:00:00 | time:{wall:.0f}s total_exs:{rows} total_steps:{h} epochs:{share:.2f} time_left:{left_s:.0f}s\n"
                "    clen  ctpb  exps  gnorm  loss  lr\n    45.2  912  34.1  1.203  {loss:.3f}  1e-05",
                h=h,
                rows=16 * h,
                share=e + k / t.sizes.steps,
            )
        t.steps(t.sizes.steps % t.sizes.every)
        t.line("12:00:00 | running eval: valid")
        t.validate()
    t.end()


def deepmd(t: Run) -> None:
    """Print batches and the time left, as DeePMD-kit does."""
    t.begin()
    t.line("[2026-03-01 12:00:00,123] DEEPMD INFO    Start to train {total} steps.")
    for e in t.epochs():
        for k in range(t.sizes.every, t.sizes.steps + 1, t.sizes.every):
            t.steps(t.sizes.every)
            h = e * t.sizes.steps + k
            t.line(
                "[2026-03-01 12:00:00,123] DEEPMD INFO    batch {h:7d}: trn: rmse = 1.2e+01, rmse_e = 5.1e-02, lr = 1.0e-03\n"
                "[2026-03-01 12:00:00,123] DEEPMD INFO    batch {h:7d}: total wall time = 12.03 s, eta = {eta}",
                h=h,
            )
        t.steps(t.sizes.steps % t.sizes.every)
    t.end()


def sweep_of_bars(t: Run) -> None:
    """Print the bars of Lightning in each of the four jobs of a Hydra sweep."""
    t.line("[2026-03-01 12:00:00,123][HYDRA] Launching 4 jobs locally")
    again(
        tqdm_epochs("Epoch {e}", "Validation DataLoader 0", "v_num={loss:.1f}"),
        "[2026-03-01 12:00:00,123][HYDRA] \t#{i} : model.lr=0.01 seed=3",
        4,
        summary="`Trainer.fit` stopped: `max_epochs={epochs}` reached.",
    )(t)


def optuna_lightning(t: Run) -> None:
    """Print six trials of Optuna, each of which trains with Lightning's bars."""
    t.line("[I 2026-03-01 12:00:00,123] A new study created in memory with name: no-name")
    again(
        tqdm_epochs("Epoch {e}", "Validation DataLoader 0", "v_num={loss:.1f}"),
        "GPU available: True (cuda), used: True",
        6,
        summary="[I 2026-03-01 12:00:00,123] Trial {i} finished with value: 0.3012 and parameters: {{'lr': 0.01}}. Best is trial 0 with value: 0.29.",
    )(t)


def bracketed_folds(t: Run) -> None:
    """Print a training with three folds: a line for each epoch, which begins with the fold in
    brackets."""
    for i in (1, 2, 3):
        by_epoch(end=f"[fold {i}] epoch {{n}}/{{epochs}} loss={{loss:.4f}} val={{loss:.4f}}")(t)


def unknown_folds(t: Run) -> None:
    """Print the log of a training with five folds that never states how many folds there are."""
    for i in range(5):
        t.line(f"Training fold {i} ...")
        by_epoch(end="  epoch {n}/{epochs} train {loss:.4f} val {loss:.4f}")(t)
        t.line(f"fold {i} done, best val 0.3012")


TOKENS = {
    "Running tokenizer on dataset (num_proc=8)": " examples",
    "Grouping texts in chunks of 2048": " examples",
    "Saving the dataset (4/4 shards)": " examples",
}


def bar_of_epochs(t: Run) -> None:
    """Print one bar over all epochs, without a label."""
    t.begin()
    begun_s = t.now
    for e in t.epochs():
        t.steps(t.sizes.steps)
        t.validate()
        t.bar("", e + 1, t.sizes.epochs, begun_s)
    t.end()


CASES = (
    Case(
        "Lightning, a stream",
        "python train.py fit --trainer.max_epochs {epochs}",
        unknown_length,
        SOME,
        BARS,
    ),
    Case("Keras, a stream", "python train.py --epochs {epochs}", keras_unknown, SOME, BARS),
    Case(
        "Lightning, rich",
        "python -m app.fit trainer.max_epochs={epochs}",
        rich_bars,
        SOME,
        BARS,
    ),
    Case("fastprogress", "python train.py --epochs {epochs}", fastprogress, SOME, BARS),
    Case("Unsloth", "python sft.py", unsloth, FEW, BARS),
    Case(
        "competition",
        "python train.py --epochs {epochs} --n_fold 4",
        again(kaggle, "========== fold: {i} training ==========", 4),
        SOME,
    ),
    Case(
        "competition, one fold",
        "python train.py --epochs {epochs} --fold 2",
        kaggle,
        SOME,
    ),
    Case("SB3, rich bar", "python ppo.py --total-timesteps {total}", sb3_bar, SOME, BARS),
    Case("ParlAI", "parlai train_model -t a -eps {epochs}", parlai, FEW),
    Case("DeePMD", "dp train input.json", deepmd, FEW),
    Case(
        "Hydra sweep of bars",
        "python train.py -m model.lr=0.1,0.01 seed=1,2 trainer.max_epochs={epochs}",
        sweep_of_bars,
        SOME,
        (100.0, 300.0),
    ),
    Case(
        "Optuna and Lightning",
        "python tune.py --n_trials 6 --max_epochs {epochs}",
        optuna_lightning,
        SOME,
        (60.0, 150.0),
    ),
    Case(
        "LLaMA-Factory, tokens",
        "bash -c 'source env.sh && llamafactory-cli train --num_train_epochs {epochs} --stage sft'",
        preceded(hugging_face(), TOKENS, 0.04),
        FEW,
        BARS,
    ),
    Case(
        "Kaldi-like ranks",
        "srun --label -n8 python train.py --epochs {epochs}",
        ranks(
            by_epoch(
                "epoch: {n}/{epochs} | batch {k} of {steps} | loss {loss:.4f} | {per_s:.2f} it/s"
            ),
            "{rank}: ",
            8,
        ),
        SOME,
    ),
    Case(
        "ranks with bars",
        "torchrun --nproc_per_node 4 train.py --max_steps {total}",
        ranks(one_bar("train", "loss={loss:.3f}"), "", 2),
        SOME,
        BARS,
    ),
    Case(
        "DeepLearningExamples",
        "mpirun -np 8 python main.py --epochs {epochs}",
        by_epoch(
            "DLL 2026-03-01 12:00:00.123456 - Epoch: {e} Iteration: {i}  train.loss : {loss:.5f}  train.ips : 9143.12 images/s"
        ),
        SOME,
    ),
    Case(
        "MACE",
        "mace_run_train --name a --max_num_epochs {epochs}",
        by_epoch(
            end="2026-03-01 12:00:00.123 INFO: Epoch {e}: head: default, loss={loss:8.8f}, MAE_E_per_atom=    1.20 meV, MAE_F=   30.12 meV / A"
        ),
        MANY,
    ),
    Case(
        "HiFi-GAN",
        "python train.py --config a.json --training_epochs {epochs}",
        by_epoch(
            "Steps : {h:d}, Gen Loss Total : {loss:4.3f}, Mel-Spec. Error : 0.512, s/b : {s:4.3f}",
            begin="Epoch: {n}",
            end="Time taken for epoch {n} is 123 sec\n",
        ),
        SOME,
    ),
    Case(
        "VITS",
        "python train.py -c a.json -m a",
        by_epoch(
            "INFO:a:Train Epoch: {n} [{percent:.0f}%]\nINFO:a:[2.301, 2.012, {loss:.4f}, {h}, 0.0002]",
            head="INFO:a:{{'train': {{'log_interval': 200, 'epochs': {epochs}, 'learning_rate': 0.0002}}}}",
            end="INFO:a:====> Epoch: {n}",
        ),
        SOME,
    ),
    Case(
        "Tacotron",
        "python train.py --output_directory a --iters {total}",
        by_step("Train loss {h} {loss:.6f} Grad Norm 1.203412 {s:.2f}s/it"),
    ),
    Case(
        "RecBole",
        "python run_recbole.py --model BPR --epochs={epochs}",
        by_epoch(
            end="01 Mar 12:00    INFO  epoch {e} training [time: 12.03s, train loss: {loss:.4f}]\n"
            "01 Mar 12:00    INFO  epoch {e} evaluating [time: 1.20s, valid_score: 0.301200]"
        ),
        MANY,
    ),
    Case(
        "gensim",
        "python w2v.py --epochs {epochs}",
        by_epoch(
            "2026-03-01 12:00:00,123 : INFO : EPOCH {e} - PROGRESS: at {percent:.2f}% examples, 512034 words/s, in_qsize 7, out_qsize 0",
            end="2026-03-01 12:00:00,123 : INFO : EPOCH {e}: training on 91430120 raw words (81230120 effective words) took 120.3s, 675034 effective words/s",
        ),
        SOME,
    ),
    Case(
        "DeepLabCut",
        "python -m dlc --epochs {epochs}",
        by_epoch(
            end="Epoch {n}/{epochs} (lr=0.0005), train loss {loss:.5f}, valid loss {loss:.5f}"
        ),
        MANY,
    ),
    Case(
        "Cellpose",
        "python -m cellpose --train --dir a --n_epochs {epochs}",
        by_epoch(
            end="2026-03-01 12:00:00,123 [INFO] {e}, train_loss={loss:.4f}, test_loss={loss:.4f}, LR=0.100000, time {took:.2f}s"
        ),
        MANY,
    ),
    Case(
        "ML-Agents",
        "mlagents-learn a.yaml --max-steps {total}",
        by_step(
            "[INFO] Walker. Step: {h}. Time Elapsed: {wall:.3f} s. Mean Reward: 0.512. Std of Reward: 0.120. Training."
        ),
    ),
    Case(
        "TF detection",
        "python model_main_tf2.py --num_train_steps={total}",
        by_step(
            "INFO:tensorflow:Step {h} per-step time {s:.3f}s\nI0301 12:00:00.123456 139 model_lib_v2.py:705] Step {h} per-step time {s:.3f}s"
        ),
    ),
    Case(
        "LAVIS",
        "python -m torch.distributed.run train.py --cfg-path a.yaml --options run.max_epoch={epochs}",
        by_epoch(
            "Train: data epoch: [{e}]  [{i:4d}/{steps}]  eta: {here}  lr: 0.000010  loss: {loss:.4f}  time: {s:.4f}  data: 0.0000  max mem: 34012",
            begin="2026-03-01 12:00:00,123 [INFO] Start training epoch {e}, {steps} iters per inner epoch.",
        ),
        SOME,
    ),
    Case(
        "NVIDIA Modulus",
        "python a.py training.max_steps={total}",
        by_step("[12:00:00] - [step: {h:10d}] loss: {loss:.3e}, time/iteration:  {ms:.3e} ms"),
    ),
    Case(
        "Habitat",
        "python -u -m habitat_baselines.run habitat_baselines.num_updates={total}",
        by_step("2026-03-01 12:00:00,123 update: {h}\tfps: {per_s:.3f}\t"),
    ),
    Case(
        "Acme",
        "python run.py --num_steps {total}",
        by_step(
            "[Learner] Grad Norm = 1.203 | Learner Steps = {h} | Loss = {loss:.3f} | Walltime = {wall:.3f}"
        ),
    ),
    Case(
        "MLPerf",
        "python main.py --num-epochs {epochs}",
        by_epoch(
            begin=':::MLLOG {{"namespace": "", "time_ms": 1772366400123, "event_type": "INTERVAL_START", "key": "epoch_start", "value": null, "metadata": {{"file": "main.py", "lineno": 120, "epoch_num": {n}}}}}',
            end=':::MLLOG {{"namespace": "", "time_ms": 1772366400123, "event_type": "INTERVAL_END", "key": "epoch_stop", "value": null, "metadata": {{"file": "main.py", "lineno": 139, "epoch_num": {n}}}}}',
        ),
        SOME,
    ),
    Case(
        "remaining in words",
        "python train.py",
        by_step("[{h}/{total}] loss={loss:.4f} elapsed {wall:.0f}s remaining {left_s:.0f}s"),
    ),
    Case(
        "seeds, as arguments",
        "python train.py --epochs {epochs} --seeds 1 2 3",
        again(
            by_epoch(end="ep {n:03d} train={loss:.4f} valid={loss:.4f} best=0.3012"),
            "running seed {i}",
            3,
            begin=1,
        ),
        SOME,
    ),
    Case(
        "settings printed, then lines",
        "python train.py --config a.json",
        by_epoch(
            head='{{\n  "model": "vit_b",\n  "batch_size": 64,\n  "num_epochs": {epochs},\n  "lr": 0.001\n}}',
            step="[{time}] ep={e} it={i}/{steps} loss={loss:.4f} lr=1.0e-03",
            end="[{time}] ep={e} val_acc=0.5120",
        ),
        SOME,
    ),
    Case(
        "loguru",
        "uv run python -m app.train --epochs {epochs}",
        by_epoch(
            end="2026-03-01 12:00:00.123 | INFO     | app.train:fit:120 - [epoch {n:>3}/{epochs}] train_loss={loss:.4f} val_loss={loss:.4f} ({took:.1f}s)"
        ),
        SOME,
    ),
    Case(
        "sentence-transformers",
        "python st.py --num_epochs {epochs}",
        preceded(
            hugging_face(True, False),
            {"Computing widget examples": "example", "Filter": " examples"},
            0.02,
        ),
        FEW,
        BARS,
    ),
    Case(
        "skorch",
        "python fit.py --epochs {epochs}",
        by_epoch(
            head="  epoch    train_loss    valid_acc    valid_loss     dur\n"
            "-------  ------------  -----------  ------------  ------",
            end="{n:7d}        \x1b[36m{loss:.4f}\x1b[0m       \x1b[32m0.5750\x1b[0m        {loss:.4f}  {took:.4f}",
        ),
        MANY,
    ),
    Case(
        "Chainer",
        "python train_mnist.py --epoch {epochs}",
        by_epoch(
            head="epoch       main/loss   validation/main/loss  main/accuracy  elapsed_time",
            end="\x1b[J{n:<11d} {loss:<11.6f} {loss:<21.6f} 0.941717       {took:<13.6g}",
        ),
        SOME,
    ),
    Case(
        "Word2Vec",
        "python w2v.py --epochs {epochs}",
        by_epoch(
            end="2026-03-01 12:00:00,123 : INFO : EPOCH {e}: training on 9143012 raw words (8123012 effective words) took {took:.1f}s, 675034 effective words/s"
        ),
        MANY,
    ),
    Case("all steps in a bar", "python t.py --epochs {epochs}", one_bar("", ""), SOME, BARS),
    Case("a bar of epochs", "python gnn.py --epochs {epochs}", bar_of_epochs, MANY, BARS),
    Case("folds in brackets", "python cv.py --folds 3 --epochs {epochs}", bracketed_folds, SOME),
    Case("folds, not known how many", "python cv.py", unknown_folds, SOME),
)
