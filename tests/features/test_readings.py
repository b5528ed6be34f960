"""What runs side by side is as long as the longest of it."""

from __future__ import annotations

import pytest

from features.amounts import Amount
from features.commands import of_commands
from features.shell import of_script

RUN = "python t.py --epochs 3"
LENGTHS = {
    f"({RUN}; {RUN}) & ({RUN}; {RUN}) & wait": 2,
    f"({RUN}; {RUN})& ({RUN}) & wait\n{RUN}": 3,
    f"{RUN} & {RUN}": None,
    f"{RUN} & {RUN} & wait": None,
    f"{RUN} & ({RUN}; {RUN}); wait": 2,
    f"tensorboard --logdir a & {RUN}; {RUN}": 2,
    f"cd a && {RUN} &\ncd b && {RUN} && {RUN} &\n": 2,
    f"for i in 1 2 3; do {RUN}; done & for i in 1 2; do {RUN}; done & wait": 3,
    f"for g in 0 1; do for s in 1 2 3; do {RUN}; done & done; wait": 3,
    f"for g in 0 1; do (for s in 1 2 3; do {RUN}; done) & wait; done": 6,
    f"for g in 0 1; do {RUN} & {RUN}; wait; done": 2,
    f"{{ {RUN}; {RUN}; }} & {{ {RUN}; }} & wait": 2,
    f"each() {{ for s in 1 2 3; do {RUN}; done; }}\neach a &\neach b &\nwait": 3,
    f"bash -c '{RUN}; {RUN}' & bash -c '{RUN}' & wait": 2,
    f"tmux new -d 'true'\\; neww '{RUN}; sh'\\; neww '{RUN}; {RUN}'\\; detach": 2,
    f"for g in 0 1; do tmux new -d '{RUN}; {RUN}'; done": 2,
    f"case $1 in a) {RUN};; esac\n(({RUN})); {RUN}": 3,
}


@pytest.mark.parametrize("script", LENGTHS)
def test_what_runs_side_by_side_is_as_long_as_its_longest_job(script: str) -> None:
    assert of_commands(of_script(script)) == Amount(3, runs=LENGTHS[script])
