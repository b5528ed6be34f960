"""Small trainings by real libraries, each with what the library prints by itself.

    python -m benchmarks.printed.trainings keras --epochs 12 --rows 4000

Each takes its time on one CPU thread; `--rows` sets how long an epoch is. What is counted in rounds
or steps is asked for by the library's own name of it (`AMOUNTS`).
"""

# mypy: disable-error-code="import-not-found, untyped-decorator, import-untyped, misc, no-untyped-call"
from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable
from tempfile import mkdtemp
from typing import Any

import numpy as np

WIDTH = 64
Training = Callable[[int, int], None]
# the option that asks for the amount, and how many of the unit are about as long as an epoch
AMOUNTS = {
    "lightgbm": ("--num-boost-round", 20),
    "xgboost": ("--num-boost-round", 20),
    "catboost": ("--iterations", 20),
    "boosting": ("--n-estimators", 20),
    "stable_baselines3": ("--total-timesteps", 4096),
    "sklearn": ("--max-iter", 1),
}
EPOCHS = ("--epochs", 1)


def _rows(rows: int) -> tuple[Any, Any]:
    source = np.random.default_rng(0)
    x = source.normal(size=(rows, WIDTH)).astype("float32")
    return x, (x[:, :8].sum(axis=1) > 0).astype("int64")


def _net() -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Linear(WIDTH, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2)
    )


def _loader(rows: int) -> Any:
    import torch

    x, y = _rows(rows)
    data = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    return torch.utils.data.DataLoader(data, batch_size=64, shuffle=True)


def torch_plain(epochs: int, rows: int) -> None:
    """Train with a hand-written loop that prints a line for each epoch."""
    import torch

    net, loader = _net(), _loader(rows)
    steps = torch.optim.Adam(net.parameters())
    for epoch in range(epochs):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(net(x), y)
            steps.zero_grad()
            loss.backward()
            steps.step()
        print(f"Epoch {epoch + 1}/{epochs} loss: {float(loss):.4f}", flush=True)


def torch_tqdm(epochs: int, rows: int) -> None:
    """Train with a bar of tqdm for each epoch."""
    import torch
    from tqdm import tqdm

    net, loader = _net(), _loader(rows)
    steps = torch.optim.Adam(net.parameters())
    for epoch in range(epochs):
        with tqdm(loader, desc=f"Epoch {epoch + 1}/{epochs}") as bar:
            for x, y in bar:
                loss = torch.nn.functional.cross_entropy(net(x), y)
                steps.zero_grad()
                loss.backward()
                steps.step()
                bar.set_postfix(loss=float(loss))


def accelerate(epochs: int, rows: int) -> None:
    """Train with Accelerate, with one bar over all steps as its examples have it."""
    import torch
    from accelerate import Accelerator
    from tqdm.auto import tqdm

    helper = Accelerator(cpu=True)
    net, loader = _net(), _loader(rows)
    net, steps, loader = helper.prepare(net, torch.optim.Adam(net.parameters()), loader)
    bar = tqdm(range(epochs * len(loader)))
    for _ in range(epochs):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(net(x), y)
            helper.backward(loss)
            steps.step()
            steps.zero_grad()
            bar.update(1)


def transformers(epochs: int, rows: int) -> None:
    """Train a BERT of two layers with the Trainer of transformers."""
    import torch
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        Trainer,
        TrainingArguments,
    )

    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=500,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=128,
        )
    )
    source = torch.Generator().manual_seed(0)
    data = [
        {"input_ids": torch.randint(5, 500, (32,), generator=source), "labels": i % 2}
        for i in range(rows // 4)
    ]
    asked = TrainingArguments(
        mkdtemp(),
        num_train_epochs=epochs,
        per_device_train_batch_size=16,
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    Trainer(model, asked, train_dataset=data).train()


def lightning(epochs: int, rows: int) -> None:
    """Train with Lightning's Trainer and its bar of tqdm; rich's prints nothing into a file."""
    import lightning as pl
    import torch
    from lightning.pytorch.callbacks import TQDMProgressBar

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = _net()

        def training_step(self, batch: Any, _: int) -> Any:
            loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("train_loss", loss, prog_bar=True)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

    pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        callbacks=[TQDMProgressBar()],
    ).fit(Module(), _loader(rows))


def keras(epochs: int, rows: int) -> None:
    """Train with Keras' fit, on torch."""
    os.environ["KERAS_BACKEND"] = "torch"
    import keras as library

    layers = library.layers
    model = library.Sequential([layers.Input((WIDTH,)), layers.Dense(512, "relu"), layers.Dense(2)])
    loss = library.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    model.fit(*_rows(rows), epochs=epochs, batch_size=64)


def lightgbm(rounds: int, rows: int) -> None:
    """Train LightGBM. Its evaluation is printed after every tenth round."""
    import lightgbm as library

    x, y = _rows(rows * 4)
    data = library.Dataset(x, y)
    library.train(
        {
            "objective": "binary",
            "num_threads": 1,
            "num_leaves": 255,
            "verbose": -1,
            "metric": "auc",
        },
        data,
        num_boost_round=rounds,
        valid_sets=[data],
        callbacks=[library.log_evaluation(10)],
    )


def xgboost(rounds: int, rows: int) -> None:
    """Train XGBoost. Its evaluation is printed after each round."""
    import xgboost as library

    x, y = _rows(rows * 4)
    data = library.DMatrix(x, y)
    library.train(
        {"objective": "binary:logistic", "nthread": 1, "max_depth": 8},
        data,
        num_boost_round=rounds,
        evals=[(data, "train")],
    )


def catboost(iterations: int, rows: int) -> None:
    """Train CatBoost with its own lines."""
    from catboost import CatBoostClassifier

    CatBoostClassifier(
        iterations=iterations,
        thread_count=1,
        depth=8,
        verbose=10,
        train_dir=mkdtemp(),
    ).fit(*_rows(rows * 2))


def sklearn(epochs: int, rows: int) -> None:
    """Train a perceptron of scikit-learn, verbose."""
    from sklearn.neural_network import MLPClassifier

    MLPClassifier((256, 256), max_iter=epochs, verbose=True, n_iter_no_change=10**6, tol=0.0).fit(
        *_rows(rows)
    )


def boosting(trees: int, rows: int) -> None:
    """Train gradient boosting of scikit-learn, verbose."""
    from sklearn.ensemble import GradientBoostingClassifier

    GradientBoostingClassifier(n_estimators=trees, verbose=1, max_depth=4).fit(*_rows(rows // 2))


def stable_baselines3(steps: int, _: int) -> None:
    """Train PPO of Stable Baselines3 on CartPole."""
    from stable_baselines3 import PPO

    PPO("MlpPolicy", "CartPole-v1", verbose=1, device="cpu", n_steps=1024).learn(
        total_timesteps=steps
    )


def ignite(epochs: int, rows: int) -> None:
    """Train with Ignite's engine and its own logger."""
    import torch
    from ignite.engine import Events, create_supervised_trainer

    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    net = _net()
    trainer = create_supervised_trainer(
        net, torch.optim.Adam(net.parameters()), torch.nn.functional.cross_entropy
    )

    @trainer.on(Events.ITERATION_COMPLETED(every=50))
    def _(engine: Any) -> None:
        state = engine.state
        done = (state.iteration - 1) % state.epoch_length + 1
        print(
            f"Epoch[{state.epoch}/{state.max_epochs}] Iteration[{done}/{state.epoch_length}] Loss: {state.output:.2f}",
            flush=True,
        )

    trainer.run(_loader(rows), max_epochs=epochs)


def skorch(epochs: int, rows: int) -> None:
    """Train with Skorch and its table."""
    import torch
    from skorch import NeuralNetClassifier

    NeuralNetClassifier(
        _net(), max_epochs=epochs, criterion=torch.nn.CrossEntropyLoss, batch_size=64, lr=0.01
    ).fit(*_rows(rows))


def gensim(epochs: int, rows: int) -> None:
    """Train Word2Vec of gensim with its log."""
    from gensim.models import Word2Vec

    logging.basicConfig(level=logging.INFO, format="%(asctime)s : %(levelname)s : %(message)s")
    source = np.random.default_rng(0)
    texts = [[str(w) for w in line] for line in source.integers(0, 2000, size=(rows, 40))]
    Word2Vec(texts, epochs=epochs, workers=1, min_count=1)


TRAININGS: dict[str, Training] = {
    one.__name__: one
    for one in (
        torch_plain,
        torch_tqdm,
        accelerate,
        transformers,
        lightning,
        keras,
        lightgbm,
        xgboost,
        catboost,
        sklearn,
        boosting,
        stable_baselines3,
        ignite,
        skorch,
        gensim,
    )
}


def main() -> None:
    """Train once, as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=sorted(TRAININGS))
    options = sorted({option for option, _ in (EPOCHS, *AMOUNTS.values())})
    parser.add_argument(*options, type=int, required=True, dest="amount")
    parser.add_argument("--rows", type=int, default=4000)
    asked = parser.parse_args()
    try:
        import torch

        torch.set_num_threads(1)
    except ImportError:
        pass
    TRAININGS[asked.library](asked.amount, asked.rows)


if __name__ == "__main__":
    main()
