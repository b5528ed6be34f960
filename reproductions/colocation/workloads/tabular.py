"""NeuMF recommendation (He et al. 2017, arXiv:1708.05031) and advantage actor-critic on a
vectorised cart-pole (Mnih et al. 2016, 1602.01783; dynamics of Barto, Sutton & Anderson 1983)."""

# mypy: allow-subclassing-any
# (torch is not followed by the type checker: its modules are Any)

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reproductions.colocation.workloads.task import Batch, Setup, Supervised, Task, adam

ROLLOUT = 16  # environment steps per update
DISCOUNT = 0.99


class NeuMF(nn.Module):
    """Maps user and item ids to one score: a product of factors beside a small net."""

    def __init__(self, users: int, items: int, factors: int) -> None:
        super().__init__()
        self.user_gmf, self.item_gmf = nn.Embedding(users, factors), nn.Embedding(items, factors)
        wide = 4 * factors
        self.user_mlp, self.item_mlp = nn.Embedding(users, wide), nn.Embedding(items, wide)
        self.mlp = nn.Sequential(
            nn.Linear(2 * wide, wide),
            nn.ReLU(True),
            nn.Linear(wide, 2 * factors),
            nn.ReLU(True),
            nn.Linear(2 * factors, factors),
            nn.ReLU(True),
        )
        self.score = nn.Linear(2 * factors, 1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        product = self.user_gmf(users) * self.item_gmf(items)
        deep = self.mlp(torch.cat([self.user_mlp(users), self.item_mlp(items)], 1))
        found: Tensor = self.score(torch.cat([product, deep], 1)).squeeze(1)
        return found


def _loss(model: nn.Module, batch: Batch) -> Tensor:
    users, items, liked = batch
    return F.binary_cross_entropy_with_logits(model(users, items), liked)


class CartPole:
    """`count` cart-poles stepped at once on the device; states (count, 4)."""

    def __init__(self, setup: Setup, count: int) -> None:
        self.setup = setup
        self.state = 0.05 * setup.normal(count, 4)

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Push right where `action` is 1, left where it is 0. Return (reward, done) of each pole,
        and restart the poles that are done.
        """
        x, speed, angle, turn = self.state.unbind(1)
        force = 20.0 * action - 10.0
        sine, cosine = angle.sin(), angle.cos()
        common = (force + 0.05 * turn * turn * sine) / 1.1
        spin = (9.8 * sine - cosine * common) / (0.5 * (4 / 3 - 0.1 * cosine * cosine / 1.1))
        push = common - 0.05 * spin * cosine / 1.1
        change = torch.stack([speed, push, turn, spin], 1)
        state = self.state + 0.02 * change
        done = (state[:, 0].abs() > 2.4) | (state[:, 2].abs() > 0.2095)
        fresh = 0.05 * self.setup.normal(*state.shape)
        self.state = torch.where(done[:, None], fresh, state)
        return torch.ones_like(x), done


class ActorCritic:
    """A task that trains an actor-critic. One step is a rollout of every environment and one update
    of the shared net."""

    def __init__(self, setup: Setup, batch: int) -> None:
        width = 64 if setup.tiny else 256
        self.setup = setup
        self.body = setup.module(
            nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        )
        self.heads = setup.module(nn.Linear(width, 3))  # two action scores and the value
        parameters = [*self.body.parameters(), *self.heads.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=7e-4)
        self.world = CartPole(setup, batch)

    def _look(self, state: Tensor) -> tuple[Tensor, Tensor]:
        out = self.heads(self.body(state))
        return out[:, :2], out[:, 2]

    def step(self) -> Tensor:
        logs, values, rewards, going = [], [], [], []
        for _ in range(ROLLOUT):
            scores, value = self._look(self.world.state)
            chance = scores.softmax(1)
            action = torch.multinomial(chance, 1, generator=self.setup.random).squeeze(1)
            reward, done = self.world.step(action.to(torch.float32))
            logs.append(scores.log_softmax(1).gather(1, action[:, None]).squeeze(1))
            values.append(value)
            rewards.append(reward)
            going.append((~done).to(torch.float32))
        with torch.no_grad():
            ahead = self._look(self.world.state)[1]
            returns = []
            for reward, alive in zip(reversed(rewards), reversed(going), strict=True):
                ahead = reward + DISCOUNT * alive * ahead
                returns.append(ahead)
        target, value = torch.stack(returns[::-1]), torch.stack(values)
        advantage = target - value
        loss = -(torch.stack(logs) * advantage.detach()).mean() + 0.5 * advantage.square().mean()
        self.setup.update(loss, self.optimizer)
        return loss.detach()


def build(name: str, batch: int, setup: Setup) -> Task:
    if name == "A2C":
        return ActorCritic(setup, batch)
    users, items, factors = (2000, 1000, 8) if setup.tiny else (6040, 3706, 32)
    return Supervised(
        setup=setup,
        model=NeuMF(users, items, factors),
        batch=lambda: (
            setup.integers(users, batch),
            setup.integers(items, batch),
            setup.integers(2, batch).to(torch.float32),
        ),
        loss=_loss,
        optimizer=adam(1e-3),
    )
