"""Plans the demo: which user submits which job, and when. The same seed gives the same plan."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from features.codec import Json

JOB = Path(__file__).with_name("job.py")

CLUSTER: Json = {
    "name": "demo-host",
    "gpus_per_node": 8,
    "gpu_type": "A100",
    "gpu_memory_mib": 40_960,
    "vcs": {"vision": 3, "language": 2, "speech": 1},
    "profiling": {"nodes": 1, "lend_from": ["vision"], "limit_s": 4, "max_gpus": 4},
}
USERS = {
    "ada": ("vision", "language"),
    "grace": ("vision",),
    "alan": ("language", "speech"),
    "edsger": ("speech",),
}
# model: median seconds, and its declared profile (nobody measures fake GPUs)
MODELS: dict[str, tuple[float, Json]] = {
    "resnet50": (24, {"gpu_util_pct": 92, "gpu_mem_util_pct": 48, "gpu_mem_mib": 14_200}),
    "mobilenet": (9, {"gpu_util_pct": 31, "gpu_mem_util_pct": 12, "gpu_mem_mib": 3_900}),
    "bert": (30, {"gpu_util_pct": 88, "gpu_mem_util_pct": 55, "gpu_mem_mib": 21_000, "amp": True}),
    "distilbert": (14, {"gpu_util_pct": 52, "gpu_mem_util_pct": 24, "gpu_mem_mib": 8_100}),
    "whisper": (20, {"gpu_util_pct": 64, "gpu_mem_util_pct": 33, "gpu_mem_mib": 11_500}),
    "eval": (4, {"gpu_util_pct": 14, "gpu_mem_util_pct": 4, "gpu_mem_mib": 2_100}),
}
_SENT = {"vision": ("resnet50", "mobilenet", "eval"), "language": ("bert", "distilbert", "eval"),
         "speech": ("whisper", "eval")}  # fmt: skip
_GPUS = ((1, 52), (2, 24), (4, 15), (8, 9))  # how many, how often of 100
FAILS = 0.08


@dataclass(frozen=True, slots=True)
class Sent:
    """One planned submission of the demo: made `after_s` seconds after its start, by `user`, with
    the request `asked`."""

    after_s: float
    user: str
    asked: Json


def plan(jobs: int, minutes: float, seed: int) -> list[Sent]:
    """Return the planned submissions in order of time. They come in waves, so that queues fill and
    empty."""
    random = Random(seed)
    times = sorted(_moment(random) * minutes * 60 for _ in range(jobs))
    return [Sent(at, *_job(random, i)) for i, at in enumerate(times, 1)]


def _moment(random: Random) -> float:
    """Return a random time of a submission, as a share (0 to 1) of the demo's length. Three of four
    are in one of three waves."""
    if random.random() < 0.25:
        return random.random()
    wave = random.choice((0.08, 0.4, 0.72))
    return min(max(random.gauss(wave, 0.07), 0.0), 1.0)


def _job(random: Random, number: int) -> tuple[str, Json]:
    user = random.choices(list(USERS), (4, 3, 2, 2))[0]
    vc = random.choice(USERS[user])
    model = random.choices(_SENT[vc], range(len(_SENT[vc]), 0, -1))[0]
    seconds = round(min(max(random.lognormvariate(0, 0.6) * MODELS[model][0], 1.5), 90.0), 1)
    gpus = 1 if model == "eval" else random.choices(*zip(*_GPUS, strict=True))[0]
    command = [sys.executable, "-I", str(JOB), "--model", model, "--seconds", str(seconds)]
    if random.random() < FAILS:
        command.append("--fail")
    asked: Json = {
        "command": command,
        "gpus": gpus,
        "vc": vc,
        "name": f"{model}-{number:03d}",
        "time_limit_s": 300.0,
    }
    if random.random() < 0.1:
        asked["share"] = False
    return user, asked


def declared() -> Iterator[Json]:
    """Yield profiles by command, in the format of the `local` backend's fake GPUs."""
    for model, (_, profile) in MODELS.items():
        yield {"command": f"*--model {model} *", "amp": False, **profile}
