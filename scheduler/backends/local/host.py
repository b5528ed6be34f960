"""This host as nodes of a cluster: which GPUs a decision means, and which of them a command sees.

Several nodes of the cluster may be mapped to one host. On a machine without GPUs, fake ones can be
declared.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

from features.files import write_json
from features.given import read_text
from features.job import COUNTERS, Profile
from profiler import environment
from profiler.errors import DriverMissing
from profiler.samplers.nvml import Survey, open_nvml, survey
from scheduler.backends.base import Launch

LATER = 1024  # GPUs of a node that was declared later are numbered from a multiple of it
KNOWN = "gpus.json"  # in the spool: the GPUs of this host, as they were when all of them answered
PLACE = "silent:"  # stands for the GPU of a number that does not answer
PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}  # of another user's command


class HostError(ValueError):
    """Raised if the host lacks the declared GPUs, or a launch does not fit the host. The message is
    one line.
    """


@dataclass(frozen=True, slots=True)
class Declared:
    """The profile to be used for commands that match a pattern, declared and not measured.

    Attributes:
        command: shell-style pattern on the words of the command, joined by blanks.
    """

    command: str
    profile: Profile


def read_declared(path: Path) -> tuple[Declared, ...]:
    """Return declared profiles from a file: a JSON list of objects with ``command`` and the fields
    of a `Profile`. Raise HostError, naming the entry and the field, where it cannot be read.
    """
    try:
        entries = json.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise HostError(f"profiles {path}: {error}") from None
    if not isinstance(entries, list):
        raise HostError(f"profiles {path}: expected a list of objects")
    return tuple(_declared(entry, f"profiles {path}, entry {i}") for i, entry in enumerate(entries))


def _declared(entry: Any, where: str) -> Declared:
    if not isinstance(entry, dict) or not isinstance(entry.get("command"), str):
        raise HostError(f"{where}: expected an object with a command")
    numbers = {}
    for name, most in (("gpu_util_pct", 100), ("gpu_mem_util_pct", 100), ("gpu_mem_mib", 1e7)):
        value = entry.get(name)
        if not isinstance(value, int | float) or not 0 <= value <= most:
            raise HostError(f"{where}: {name} is {value!r}; it has to be a number from 0 to {most}")
        numbers[name] = float(value)
    for name, most in COUNTERS.items():
        value = entry.get(name)
        if value is None:
            continue
        if not isinstance(value, int | float) or not 0 <= value <= most:
            raise HostError(
                f"{where}: {name} is {value!r}; it has to be a number from 0 to {most:g}"
            )
        numbers[name] = float(value)
    amp = entry.get("amp")
    if amp not in (None, True, False):
        raise HostError(f"{where}: amp is {amp!r}; it has to be true, false or null")
    return Declared(entry["command"], Profile(**numbers, amp=amp))


@dataclass(frozen=True, slots=True)
class Host:
    """The GPUs of this host, as nodes of the cluster.

    Attributes:
        devices: for each node, the names of its GPUs in CUDA_VISIBLE_DEVICES.
        fake: whether the GPUs are only declared; nothing is ever measured on them.
        declared: profiles of commands, on fake GPUs.
        silent: the GPUs of `devices` that do not answer, each with the reason.
    """

    devices: tuple[tuple[str, ...], ...]
    fake: bool = False
    declared: tuple[Declared, ...] = ()
    silent: dict[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def with_fake(cls, sizes: Sequence[int], declared: Sequence[Declared] = ()) -> Host:
        """Return a host with declared GPUs, numbered through all nodes. `sizes`: number of GPUs of
        each node.
        """
        there = [str(number) for number in range(sum(sizes))]
        return cls(_dealt(there, sizes), fake=True, declared=tuple(declared))

    @classmethod
    def here(
        cls, sizes: Sequence[int], nvml_module: Any = None, *, known: Path | None = None
    ) -> Host:
        """Return this host, with its GPUs assigned in order to nodes of the given sizes. A GPU that
        does not answer keeps its index, so that the indices of later GPUs stay the same.

        Args:
            known: file in which `keep` stored the assignment. With it, GPUs that the driver no
                longer lists keep their index.

        Raise HostError when there are too few GPUs, or none answers.
        """
        try:
            nvml = open_nvml(nvml_module)
            found = survey(nvml)
            nvml.nvmlShutdown()
        except DriverMissing as error:
            raise HostError(
                f"this host has no GPU to run jobs on ({error}); declare fake GPUs instead"
            ) from None
        there = _slots(found)
        if found.gpus and len(there) < sum(sizes):
            before = _read_known(known, sizes)
            if {gpu.uuid for gpu in found.gpus} <= {d for node in before for d in node}:
                return cls(before).again(found)[0]
        if len(there) < sum(sizes) or not found.gpus:
            silent = f" ({found.words()})" if found.silent else ""
            raise HostError(
                f"the cluster has {len(sizes)} nodes with {sum(sizes)} GPUs, this host has "
                f"{len(found.gpus)} GPUs{silent}"
            )
        silent_ones = {_place(label): why for label, why in found.silent.items()}
        return cls(_dealt(there, sizes), silent=silent_ones)

    def keep(self, known: Path) -> None:
        """Write the names of this host's GPUs (UUIDs, by node) to a file, if all are known. Do
        nothing for fake GPUs.
        """
        named = not any(d.startswith(PLACE) for node in self.devices for d in node)
        if named and not self.fake:
            with suppress(OSError):  # then only a start without one of them needs it
                write_json(known, self.devices)

    def again(self, found: Survey) -> tuple[Host, dict[str, str]]:
        """Return this host with its GPUs updated after a new survey (`found`), and the GPUs that do
        not answer, each with the reason.
        """
        by_place = {_place(gpu.label): gpu.uuid for gpu in found.gpus}
        devices = tuple(tuple(by_place.get(d, d) for d in node) for node in self.devices)
        answer = {gpu.uuid for gpu in found.gpus}
        lost = [d for node in devices for d in node if d not in answer]
        reasons = list(found.silent.values())
        plain = reasons[0] if len(set(reasons)) == 1 else "it is not listed any more"
        silent = {device: found.silent.get(device.removeprefix(PLACE), plain) for device in lost}
        return replace(self, devices=devices, silent=silent), silent

    def chosen(self, launch: Launch) -> tuple[str, ...]:
        """Return the names of a launch's GPUs in CUDA_VISIBLE_DEVICES. Raise HostError where this
        host does not have them.
        """
        found: list[str] = []
        for node, gpus in zip(launch.nodes, launch.gpus, strict=True):
            if self.fake and not (node < len(self.devices) and max(gpus) < len(self.devices[node])):
                # it came later, or has more GPUs than it began with
                found += [f"{LATER + LATER * node + gpu}" for gpu in gpus]
                continue
            if not 0 <= node < len(self.devices):
                raise HostError(f"this host is no node {node}")
            for gpu in gpus:
                if not 0 <= gpu < len(self.devices[node]):
                    raise HostError(f"node {node} has no GPU {gpu}")
                if (why := self.silent.get(self.devices[node][gpu])) is not None:
                    raise HostError(f"GPU {gpu} of node {node} does not answer: {why}")
                found.append(self.devices[node][gpu])
        return tuple(found)

    def declared_profile(self, command: Sequence[str]) -> Profile | None:
        """Return the first declared profile with a pattern that matches a command, or None."""
        words = " ".join(command)
        found = (d.profile for d in self.declared if fnmatchcase(words, d.command))
        return next(found, None)

    def environment(self, launch: Launch) -> dict[str, str]:
        """Return the environment of the command: variables of the service on an allow-list, those
        of the launch, and the GPUs.

        Another user's command starts from a plain environment instead of the service's. Raise
        HostError for an invalid name of a variable, or a NUL byte.
        """
        mine = launch.user in ("", own_user())
        found = environment.scrubbed(os.environ) if mine else dict(PLAIN)
        for name, value in launch.environment.items():
            if not (name.isascii() and name.isidentifier()) or "\0" in value:
                raise HostError(f"environment: {name!r} is no name, or its value holds a NUL byte")
            found[name] = value
        return found | {
            "CUDA_VISIBLE_DEVICES": ",".join(self.chosen(launch)),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "PELLUCID_JOB_ID": printable(launch.job_id),
            "PELLUCID_ATTEMPT": str(launch.attempt),
            "PELLUCID_NODES": ",".join(map(str, launch.nodes)),
        }


def own_user() -> str:
    """Return the name of this process's account; "" when it has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""


def printable(text: str) -> str:
    """Return a text in a form that an environment variable can hold: encoded as UTF-8, NUL bytes
    replaced.
    """
    return text.encode("utf-8", "replace").decode().replace("\0", "?")


def check_command(launch: Launch) -> None:
    """Raise HostError for a command or working folder that cannot be used: empty, with a NUL byte,
    or a relative path.
    """
    words: Mapping[str, Sequence[str]] = {"command": launch.command, "workdir": [launch.workdir]}
    if not launch.command or not launch.command[0]:
        raise HostError("the command is empty")
    for what, texts in words.items():
        if any("\0" in text for text in texts):
            raise HostError(f"the {what} holds a NUL byte")
    if launch.workdir and not os.path.isabs(launch.workdir):
        raise HostError(f"the workdir {launch.workdir!r} is no absolute path")


def _place(label: str) -> str:
    return PLACE + label


def _slots(found: Survey) -> list[str]:
    """Return the names of this host's GPUs, in the order of their bus addresses: the UUID, or for a
    GPU that does not answer its bus address.
    """
    slots = [(gpu.label, gpu.uuid) for gpu in found.gpus]
    slots += [(label, _place(label)) for label in found.silent]
    return [name for _, name in sorted(slots, key=lambda s: [int(n) for n in s[0].split(":")])]


def _read_known(known: Path | None, sizes: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """Return the names of GPUs by node that `Host.keep` wrote, if they fit nodes of these sizes;
    else ().
    """
    if known is None:
        return ()
    try:
        devices = tuple(tuple(map(str, node)) for node in json.loads(read_text(known)))
    except (OSError, ValueError, TypeError):
        return ()
    return devices if [len(node) for node in devices] == list(sizes) else ()


def _dealt(gpus: Sequence[str], sizes: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    left = iter(gpus)
    return tuple(tuple(islice(left, size)) for size in sizes)
