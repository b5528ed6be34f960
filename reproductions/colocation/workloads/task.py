"""What all workloads share: a device, a precision, and how one optimiser step is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn

from reproductions.colocation.workloads import Size

POOL = 4  # synthetic batches made beforehand and taken in turn


class Task(Protocol):
    """A training job that can be advanced one step at a time."""

    def step(self) -> Tensor:
        """Make one optimiser step. Return the loss, still on the device."""
        ...


class Setup:
    """The device and precision with which a task computes.

    Mixed precision is float16 with loss scaling on a GPU, bfloat16 on a CPU.
    """

    def __init__(self, device: str, amp: bool, size: Size = "full", seed: int = 0) -> None:
        self.device = torch.device(device)
        self.amp, self.size = amp, size
        self.random = torch.Generator(device=self.device)
        self.random.manual_seed(seed)
        torch.manual_seed(seed)
        self._dtype = torch.float16 if self.device.type == "cuda" else torch.bfloat16
        scale = amp and self.device.type == "cuda"
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=scale)

    @property
    def tiny(self) -> bool:
        return self.size == "tiny"

    def forward(self) -> AbstractContextManager[None]:
        """Return a context in which a loss is computed."""
        found: AbstractContextManager[None] = torch.autocast(
            self.device.type, dtype=self._dtype, enabled=self.amp
        )
        return found

    def update(self, loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
        """Compute gradients, step the optimiser, and clear the gradients."""
        scaled: Tensor = self._scaler.scale(loss)
        scaled.backward()
        self._scaler.step(optimizer)
        self._scaler.update()
        optimizer.zero_grad(set_to_none=True)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, device=self.device, generator=self.random)

    def integers(self, high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, device=self.device, generator=self.random)

    def module(self, model: nn.Module) -> nn.Module:
        return model.to(self.device).train()


Batch = Sequence[Tensor]


class Supervised:
    """A task with a model, a loss and synthetic batches. Most of the families are such tasks."""

    def __init__(
        self,
        setup: Setup,
        model: nn.Module,
        batch: Callable[[], Batch],
        loss: Callable[[nn.Module, Batch], Tensor],
        optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    ) -> None:
        self.setup = setup
        self.model = setup.module(model)
        self.optimizer = optimizer(self.model)
        self.loss = loss
        self.pool = [batch() for _ in range(POOL)]
        self.steps = 0

    def step(self) -> Tensor:
        data = self.pool[self.steps % POOL]
        self.steps += 1
        with self.setup.forward():
            loss = self.loss(self.model, data)
        self.setup.update(loss, self.optimizer)
        return loss.detach()


def sgd(rate: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda model: torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)


def adam(rate: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda model: torch.optim.Adam(model.parameters(), lr=rate)
