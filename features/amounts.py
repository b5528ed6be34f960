"""How much a job is to do, as its command or its own settings have it: epochs, or steps.

>>> of_command(["python", "train.py", "--epochs", "90"])
Amount(epochs=90.0, steps=None)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

MOST = 1e12  # what is above stands for "no end" (HF Trainer: 2^63 - 1 epochs)
_COUNTED = {
    "epochs": "epochs? epoch_num train(ing)?_epochs n_?epochs? nb_epochs? (num|max|total)_epochs? "
    "(num|max|total)_train(ing)?_epochs? scheduled_epochs",
    "steps": "steps iters iterations n_?iters? (train(ing)?|max|num|total|max_train|num_train"
    "|num_training|total_train|total_training|total_optimization)_(steps?|iters?|iterations?)"
    " max_updates? total_num_update total_timesteps num_boost_round n_estimators",
}
_NAMES = {unit: re.compile(f"(?:{'|'.join(names.split())})$") for unit, names in _COUNTED.items()}
_VALUE = re.compile(r"(\d[\d_,]*(?:\.\d+)?(?:e\d+)?|\.\d+)([kKM]?)$")
_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}
# as settings are printed before a run: Namespace(max_update=50000, ...), "Num Epochs = 3"
_PRINTED = re.compile(
    r"\b((?:num|max|total|train|training|scheduled|n|nb)[ _][a-z_ ]{0,24}|epochs)"
    r"['\"]?\s?[=:]\s?['\"]?(\d[\d_,]*)(?!\d|[.:/]\d)",
    re.IGNORECASE,
)


class Amount(NamedTuple):
    """What is to be done; None where nothing says so. Both: whichever comes first ends it."""

    epochs: float | None = None
    steps: float | None = None


def of_command(command: Sequence[str]) -> Amount:
    """What the arguments of a command ask for: `--epochs 90`, `--max-steps=5000`,
    `trainer.max_epochs=90`. The last of a kind holds, as with most parsers."""
    found: dict[str, float] = {}
    for i, part in enumerate(command):
        name, equals, value = part.partition("=")
        if not equals:
            if not part.startswith("-"):
                continue
            value = command[i + 1] if i + 1 < len(command) else ""
        unit = _unit(name)
        number = _number(value) if unit else None
        if unit and number is not None:
            found[unit] = number
    return Amount(**found)


def printed(line: str) -> list[tuple[str, float]]:
    """(unit, number) of each setting in a printed line that says how much is to be done."""
    found = []
    for match in _PRINTED.finditer(line):
        unit, number = _unit(match[1]), _number(match[2].rstrip(",_"))
        if unit and number is not None:
            found.append((unit, number))
    return found


def _unit(name: str) -> str | None:
    last = re.split(r"[./]", name.lstrip("-+").strip())[-1].lower()
    plain = re.sub(r"[- ]", "_", last)
    return next((unit for unit, names in _NAMES.items() if names.match(plain)), None)


def _number(text: str) -> float | None:
    match = _VALUE.match(text)
    if match is None:
        return None
    number = float(match[1].replace(",", "").replace("_", "")) * _SCALE[match[2]]
    return number if 0 < number <= MOST else None
