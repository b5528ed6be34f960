"""Reference workloads: common training jobs in torch, with a true step count.

Each runs on synthetic data made on the device, so that what is measured is the GPU and not a disk.
Names, datasets (as shapes) and batch sizes follow the public single-GPU measurements of Lucid's
artifact where it has them, so that two GPUs can be compared row by row. This module is light:
torch is loaded only when a workload is built.

    python -m reproductions.colocation.workloads ResNet50 --batch 64 --amp --seconds 20
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal

from profiler.errors import BadOption

Size = Literal["full", "tiny"]


@dataclass(frozen=True, slots=True)
class Workload:
    """One family of workloads.

    Attributes:
        name: the model, as it is written in measurements.
        dataset: which data its shapes are those of.
        batches: batch sizes measured by the campaign.
        tiny_batch: batch size that a CPU manages in well under a second.
        module: where its builder is, under `reproductions.colocation.workloads`.
        amp: whether mixed precision makes sense for it.
    """

    name: str
    dataset: str
    batches: tuple[int, ...]
    tiny_batch: int
    module: str
    amp: bool = True


WORKLOADS: dict[str, Workload] = {
    each.name: each
    for each in (
        Workload(
            name="ResNet50",
            dataset="ImageNet",
            batches=(32, 64, 128),
            tiny_batch=8,
            module="vision",
        ),
        Workload(
            name="ResNet18",
            dataset="CIFAR-10",
            batches=(32, 64, 128),
            tiny_batch=32,
            module="vision",
        ),
        Workload(
            name="MobileNetV2",
            dataset="CIFAR-10",
            batches=(32, 64, 128),
            tiny_batch=16,
            module="vision",
        ),
        Workload(
            name="MobileNetV3",
            dataset="ImageNet",
            batches=(32, 64, 128),
            tiny_batch=16,
            module="vision",
        ),
        Workload(
            name="EfficientNet",
            dataset="CIFAR-10",
            batches=(32, 64, 128),
            tiny_batch=16,
            module="vision",
        ),
        Workload(
            name="VGG", dataset="CIFAR-10", batches=(32, 64, 128), tiny_batch=32, module="vision"
        ),
        Workload(
            name="DCGAN", dataset="LSUN", batches=(32, 64, 128), tiny_batch=16, module="generative"
        ),
        Workload(
            name="PointNet",
            dataset="ShapeNet",
            batches=(32, 64, 128),
            tiny_batch=16,
            module="generative",
        ),
        Workload(name="LSTM", dataset="Wikitext2", batches=(64, 128), tiny_batch=16, module="text"),
        Workload(
            name="Transformer", dataset="Multi30k", batches=(32, 64), tiny_batch=16, module="text"
        ),
        Workload(name="BERT", dataset="SQuAD", batches=(8, 32), tiny_batch=8, module="text"),
        Workload(name="GPT", dataset="Wikitext2", batches=(4, 16), tiny_batch=8, module="text"),
        Workload(
            name="NeuMF", dataset="MovieLens", batches=(64, 128), tiny_batch=512, module="tabular"
        ),
        Workload(
            name="A2C",
            dataset="CartPole",
            batches=(32, 64, 128),
            tiny_batch=64,
            module="tabular",
            amp=False,
        ),
    )
}


@dataclass(frozen=True, slots=True, order=True)
class Config:
    """A workload with its options: one line of a campaign."""

    model: str
    batch: int
    amp: bool = False

    @property
    def dataset(self) -> str:
        return WORKLOADS[self.model].dataset

    def __str__(self) -> str:
        return f"{self.model}/{self.batch}{'/amp' if self.amp else ''}"


def parse_config(text: str, size: Size = "full") -> Config:
    """Read ``MODEL[/BATCH][/amp]``, and return the configuration. The batch size defaults to
    `default_batch`. Raises BadOption if the text is no configuration.
    """
    name, *options = text.split("/")
    workload = WORKLOADS.get(name)
    if workload is None:
        raise BadOption(f"unknown workload {name!r}; there are {', '.join(WORKLOADS)}")
    batch, amp = default_batch(workload, size), False
    for option in options:
        if option == "amp":
            amp = True
        elif option.isdecimal() and 0 < int(option) <= 65536:
            batch = int(option)
        else:
            raise BadOption(f"workload {text!r}: {option!r} is neither a batch size nor 'amp'")
    if amp and not workload.amp:
        raise BadOption(f"{name} has no mixed-precision version")
    return Config(name, batch, amp)


def default_batch(workload: Workload, size: Size) -> int:
    """Return the smallest batch size measured, or the tiny one."""
    return workload.tiny_batch if size == "tiny" else workload.batches[0]


def all_configs(size: Size = "full") -> list[Config]:
    """Return every family x batch size x precision, in a fixed order. If `size` is "tiny", return
    each family once, with its tiny batch size and without mixed precision."""
    found = []
    for each in WORKLOADS.values():
        batches = each.batches if size == "full" else (each.tiny_batch,)
        precisions = (False, True) if each.amp and size == "full" else (False,)
        found += [Config(each.name, b, a) for b, a in product(batches, precisions)]
    return found
