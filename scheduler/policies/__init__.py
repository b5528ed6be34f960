"""One file per policy, and the registry that builds them by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduler.core.arrivals import Forecast
from scheduler.core.pairs import Judge
from scheduler.core.policy import Policy
from scheduler.core.quirks import NONE, Quirks
from scheduler.policies.easy import Easy
from scheduler.policies.fifo import Fifo, FifoSkip
from scheduler.policies.horus import Horus
from scheduler.policies.lucid import Lucid
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.policies.qssf import Qssf
from scheduler.policies.sjf import Sjf
from scheduler.policies.srtf import Srtf
from scheduler.policies.tiresias import Tiresias

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (Fifo, FifoSkip, Easy, Sjf, Srtf, Qssf, Tiresias, Horus, Lucid, Pellucid)
}


class UnknownPolicy(ValueError):
    """No policy of that name."""


def policy_named(name: str) -> type[Policy]:
    """The class of a policy. Raises UnknownPolicy."""
    if name not in POLICIES:
        raise UnknownPolicy(f"no policy {name!r}; there are: {', '.join(POLICIES)}")
    return POLICIES[name]


def build(
    name: str,
    *,
    judge: Judge | None = None,
    forecast: Forecast | None = None,
    quirks: Quirks = NONE,
    gpu_memory_mib: float = 24_576.0,
    borrows: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Policy:
    """A policy by name, with the beliefs and quirks that concern it.

    `borrows` lets the policies that can use idle GPUs of other virtual clusters; `settings` are
    further arguments of `Pellucid`, where not its defaults.
    """
    makers: dict[str, Callable[[], Policy]] = {
        **POLICIES,
        "srtf": lambda: Srtf(ties_preempt=quirks.srtf_ties_preempt),
        "lucid": lambda: Lucid(
            judge,
            forecast,
            gpu_memory_mib=gpu_memory_mib,
            first_partner=quirks.first_partner,
        ),
        "pellucid": lambda: Pellucid(
            judge, gpu_memory_mib=gpu_memory_mib, borrows=borrows, **(settings or {})
        ),
        "horus": lambda: Horus(gpu_memory_mib=gpu_memory_mib),
        "qssf": lambda: Qssf(gpu_count_first=quirks.qssf_gpu_count_first),
    }
    policy_named(name)
    return makers[name]()
