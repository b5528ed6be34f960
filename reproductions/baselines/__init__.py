"""Policies for comparison that start whole gangs (all GPUs of a job at once); `scheduler.policies`
loads them by name.
"""

from reproductions.baselines.horus import Horus
from reproductions.baselines.lucid import Lucid
from reproductions.baselines.qssf import Qssf
from reproductions.baselines.sjf import Sjf
from reproductions.baselines.srtf import Srtf
from reproductions.baselines.tiresias import Tiresias
from scheduler.core.policy import Policy

BASELINES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Sjf, Srtf, Qssf, Tiresias, Horus, Lucid)
}
