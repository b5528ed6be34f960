"""How much a job is to do, as its command or its own settings have it: epochs, or steps.

>>> of_command(["python", "train.py", "--epochs", "90"])
Amount(epochs=90.0, steps=None)
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

LONGEST = 4096  # characters of a line for a shell that are split: shlex takes their square
MOST = 1e12  # what is above stands for "no end" (HF Trainer: 2^63 - 1 epochs)
_COUNTED = {
    "epochs": "epochs? epoch_num train(ing)?_epochs n_?epochs? nb_epochs? (num|max|total)_epochs? "
    "(num|max|total)_train(ing)?_epochs? scheduled_epochs",
    "steps": "steps iters iterations n_?iters? (train(ing)?|max|num|total|max_train|num_train"
    "|num_training|total_train|total_training|total_optimization)_(steps?|iters?|iterations?)"
    " max_updates? total_num_update total_timesteps num_boost_round n_estimators",
}
_NAMES = {unit: re.compile(f"(?:{'|'.join(names.split())})$") for unit, names in _COUNTED.items()}
_BATCH = re.compile(
    "bs|b|(train_|mini_?|global_|micro_|per_device_(train_)?|per_gpu_(train_)?)?batch_?(size)?$"
)
# their effect is learned by the GPUs that the job asks for
_GPUS = re.compile("(n|num|number_of)?_?(gpus?|devices)(_per_node)?$|nproc_per_node|nproc$|nnodes$")
_VALUE = re.compile(r"(\d[\d_,]*(?:\.\d+)?(?:e\d+)?|\.\d+)([kKM]?)$")
_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}
# as settings are printed before a run: Namespace(max_update=50000, ...), "Num Epochs = 3"
_PRINTED = re.compile(
    r"\b((?:num|max|total|train|training|scheduled|n|nb)[ _][a-z_ ]{0,24}|epochs)"
    r"['\"]?\s?[=:]\s?['\"]?(\d[\d_,]*)(?!\d|[.:/]\d)",
    re.IGNORECASE,
)


class Amount(NamedTuple):
    """What is to be done; None where nothing says so. Epochs and steps: whichever comes first ends
    it.

    Attributes:
        patience: after so many units without an improvement it stops early; 0: not known when.
        runs: how many such runs there are, one after the other (folds, seeds, trials).
    """

    epochs: float | None = None
    steps: float | None = None
    patience: float | None = None
    runs: float | None = None


def of_command(command: Sequence[str]) -> Amount:
    """What the arguments of a command ask for: `--epochs 90`, `--max-steps=5000`,
    `trainer.max_epochs=90`. The last of a kind holds, as with most parsers."""
    found: dict[str, float] = {}
    for name, value, _ in _settings(command):
        unit = _unit(name)
        number = _number(value) if unit else None
        if unit and number is not None:
            found[unit] = number
    return Amount(**found)


@dataclass(frozen=True, slots=True)
class Work:
    """What a job's command asks for, and what tells it from other commands of its user. Numbers
    and digests only.

    Attributes:
        unit: ``epoch`` or ``step``.
        amount: how many of them.
        batch: its batch size; None where it names none.
        script: digest of the program.
        words: digest of its other arguments, whatever numbers are in them.
        rest: digest of these numbers, and of where it runs.
    """

    unit: str
    amount: float
    batch: float | None
    script: str
    words: str
    rest: str

    @classmethod
    def of(
        cls, command: Sequence[str], more: Mapping[str, float] | None = None, workdir: str = ""
    ) -> Work | None:
        """Of a command; `more`: settings of files it names, which its own arguments override.

        None: it does not say how much it is to do.
        """
        if len(command) > 2 and command[-2] in ("-c", "-lc") and command[0].endswith("sh"):
            if len(command[-1]) > LONGEST:
                return None
            try:
                command = shlex.split(command[-1])
            except ValueError:
                return None
        whole = [f"{name}={value}" for name, value in (more or {}).items()] + list(command)
        amount, batch = of_command(whole), None
        taken: set[int] = set()
        for name, value, where in _settings(whole):
            plain, number = _plain(name), _number(value)
            if number is None:
                continue
            if _BATCH.match(plain):
                batch = number
            elif not (_unit(name) or _GPUS.match(plain)):
                continue
            taken.update(where)
        unit = "epoch" if amount.epochs else "step"
        much = amount.epochs or amount.steps
        if much is None:
            return None
        program = _program(whole)
        others = [w for i, w in enumerate(whole) if i not in taken and w != program]
        words = [re.sub(r"(?<![A-Za-z])\d[\d.e+-]*", "#", word) for word in others]
        return cls(unit, much, batch, *map(_digest, ([program], words, [workdir, *others])))


def of_settings(settings: object) -> dict[str, float]:
    """What parsed settings say of how much is to be done, and of the batch size, however deep."""
    found: dict[str, float] = {}
    if isinstance(settings, Mapping):
        for name, value in settings.items():
            plain = _plain(str(name))
            if isinstance(value, Mapping):
                found |= of_settings(value)
            elif type(value) in (int, float) and (_unit(plain) or _BATCH.match(plain)):
                number = _number(str(value))
                found |= {} if number is None else {plain: number}
    return found


def _settings(command: Sequence[str]) -> Iterator[tuple[str, str, range]]:
    """Name, value and places of what may be a setting among the arguments of a command."""
    for i, part in enumerate(command):
        name, equals, value = part.partition("=")
        if equals:
            yield name, value, range(i, i + 1)
        elif part.startswith("-") and i + 1 < len(command):
            yield name, command[i + 1], range(i, i + 2)


def _program(command: Sequence[str]) -> str:
    """The script, or module, that a command runs; behind launchers such as torchrun."""
    for part in command:
        if not part.startswith("-") and re.search(r"\.(py|sh|R|jl|ipynb|lua|m)$", part):
            return part
    modules = [word for flag, word in pairwise(command) if flag == "-m"]
    plain = (word for word in command if "=" not in word)
    return modules[-1] if modules else next(plain, "")


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]


_PATIENCE = re.compile(
    r"(?:patience['\"]?\s?[=:]\s?|(?:don't|do not|hasn't|not) improved? (?:for|in|since) "
    r"|[Ee]arly ?[Ss]topping counter: \d{1,6} out of )(\d{1,6})(?![\d.])"
)


def patience(line: str) -> float | None:
    """After how many units without an improvement it stops, as a printed line has it; None where
    it says nothing of that."""
    found = _PATIENCE.search(line)
    if found is not None:
        return float(found[1]) or None
    return None


def printed(line: str) -> list[tuple[str, float]]:
    """(unit, number) of each setting in a printed line that says how much is to be done."""
    found = []
    for match in _PRINTED.finditer(line):
        unit, number = _unit(match[1]), _number(match[2].rstrip(",_"))
        if unit and number is not None:
            found.append((unit, number))
    return found


def _unit(name: str) -> str | None:
    plain = _plain(name)
    return next((unit for unit, names in _NAMES.items() if names.match(plain)), None)


def _plain(name: str) -> str:
    last = re.split(r"[./]", name.lstrip("-+").strip())[-1].lower()
    return re.sub(r"[- ]", "_", last)


def _number(text: str) -> float | None:
    match = _VALUE.match(text)
    if match is None:
        return None
    number = float(match[1].replace(",", "").replace("_", "")) * _SCALE[match[2]]
    return number if 0 < number <= MOST else None
