"""DCGAN on 64 x 64 images (Radford et al. 2016, arXiv:1511.06434) and PointNet (Qi et al. 2017,
1612.00593, classification with both transform nets)."""

# mypy: allow-subclassing-any
# (torch is not followed by the type checker: its modules are Any)

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reproductions.colocation.workloads.task import POOL, Batch, Setup, Supervised, Task, adam

LATENT = 100


def generator(width: int) -> nn.Module:
    layers: list[nn.Module] = []
    inputs, outputs = LATENT, width * 8
    for stage in range(4):
        layers += [
            nn.ConvTranspose2d(inputs, outputs, 4, 1 if stage == 0 else 2, 0 if stage == 0 else 1,
                               bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(True),
        ]  # fmt: skip
        inputs, outputs = outputs, outputs // 2
    return nn.Sequential(*layers, nn.ConvTranspose2d(inputs, 3, 4, 2, 1, bias=False), nn.Tanh())


def discriminator(width: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True)]
    for stage in range(3):
        inputs = width << stage
        layers += [
            nn.Conv2d(inputs, inputs * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(inputs * 2),
            nn.LeakyReLU(0.2, True),
        ]
    return nn.Sequential(*layers, nn.Conv2d(width * 8, 1, 4, 1, 0, bias=False), nn.Flatten())


class Adversarial:
    """A task that trains a DCGAN. One step updates the discriminator, on real and fake images, and
    then the generator."""

    def __init__(self, setup: Setup, batch: int) -> None:
        width = 16 if setup.tiny else 64
        self.setup, self.batch = setup, batch
        self.make, self.judge = setup.module(generator(width)), setup.module(discriminator(width))
        self.make_optimizer = torch.optim.Adam(self.make.parameters(), 2e-4, (0.5, 0.999))
        self.judge_optimizer = torch.optim.Adam(self.judge.parameters(), 2e-4, (0.5, 0.999))
        self.pool = [setup.normal(batch, 3, 64, 64).tanh() for _ in range(POOL)]
        self.steps = 0

    def _loss(self, images: Tensor, real: bool) -> Tensor:
        verdict: Tensor = self.judge(images)
        target = torch.full_like(verdict, float(real))
        return F.binary_cross_entropy_with_logits(verdict, target)

    def step(self) -> Tensor:
        real = self.pool[self.steps % POOL]
        self.steps += 1
        with self.setup.forward():
            fake = self.make(self.setup.normal(self.batch, LATENT, 1, 1))
            loss = self._loss(real, True) + self._loss(fake.detach(), False)
        self.setup.update(loss, self.judge_optimizer)
        with self.setup.forward():
            fooled = self._loss(fake, True)
        self.setup.update(fooled, self.make_optimizer)
        self.judge_optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def shared(*widths: int) -> nn.Sequential:
    """Return a small net with layers of these widths that is applied to every point alike."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Conv1d(inputs, outputs, 1), nn.BatchNorm1d(outputs), nn.ReLU(True)]
    return nn.Sequential(*layers)


class Transform(nn.Module):
    """Predicts a k x k matrix from a cloud and applies it."""

    def __init__(self, k: int, width: int) -> None:
        super().__init__()
        self.k = k
        self.points = shared(k, width, 2 * width, 16 * width)
        self.matrix = nn.Sequential(
            nn.Linear(16 * width, 4 * width), nn.ReLU(True), nn.Linear(4 * width, k * k)
        )

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.matrix(self.points(x).amax(2)).view(-1, self.k, self.k)
        eye = torch.eye(self.k, device=x.device, dtype=change.dtype)
        return torch.bmm(change + eye, x.to(change.dtype))


class PointNet(nn.Module):
    """Maps clouds of points, (batch, 3, points), to class scores."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            Transform(3, width),
            shared(3, width, width),
            Transform(width, width),
            shared(width, width, 2 * width, 16 * width),
        )
        self.head = nn.Sequential(
            nn.Linear(16 * width, 8 * width),
            nn.BatchNorm1d(8 * width),
            nn.ReLU(True),
            nn.Linear(8 * width, 4 * width),
            nn.BatchNorm1d(4 * width),
            nn.ReLU(True),
            nn.Dropout(0.3),
            nn.Linear(4 * width, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(x).amax(2))
        return scores


def _loss(model: nn.Module, batch: Batch) -> Tensor:
    clouds, labels = batch
    return F.cross_entropy(model(clouds), labels)


def build(name: str, batch: int, setup: Setup) -> Task:
    if name == "DCGAN":
        return Adversarial(setup, batch)
    points = 512 if setup.tiny else 2500
    return Supervised(
        setup=setup,
        model=PointNet(16, 16 if setup.tiny else 64),
        batch=lambda: (setup.normal(batch, 3, points), setup.integers(16, batch)),
        loss=_loss,
        optimizer=adam(1e-3),
    )
