"""What a target of make is read to run, held against `make -n`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from features.recipes import of_target

FILES = {
    "variables": ("A = 4\nB := $(A)1\nC ?= 7\nA ?= 9\nt:\n\tpy $(A) ${B} $(C) $$HOME $$(A)\n", "t"),
    "some that are given": ("A = 4\nB = $(A)0\nC ?= 5\nt:\n\tpy $(A) $(B) $(C)\n", "t A=6 C=8"),
    "one that grows": ("A = 4\nA += 5\nB += 6\nt:\n\tpy $(A) $(B)\n", "t"),
    "one that is told apart": ("export A = 4\noverride B = 5\nt:\n\tpy $(A) $(B)\n", "t"),
    "the last value": ("A=4\nA=5\nt:\n\tpy $(A)\nA=6\n", "t"),
    "the value by then": ("A := 4\nB := $(A)\nA := 5\nt:\n\tpy $(B)\n", "t"),
    "a value that comes later": ("B = $(A)\nA = 4\nt:\n\tpy $(B)\n", "t"),
    "values in values": ("D = x\nS = $(D)/y\nR = ${S}/z\nt:\n\tpy $(R)\n", "t"),
    "the first": (".PHONY: u t\nt: u\n\tpy 1\nu:\n\tpy 2\n", ""),
    "each once": ("t: a b\n\tpy 1\na: c\n\tpy 2\nb: c\n\tpy 3\nc:\n\tpy 4\n", "t"),
    "two that are named": ("a:\n\tpy 2\nb:\n\tpy 3\n", "b a"),
    "long lines": ("A = 1 \\\n 2\nt:\n\tpy $(A) \\\n 3\n", "t"),
    "quiet lines": ("t:\n\t@py 1\n\t-py 2\n\t@-py 3\n\n\tpy 4\nu:\n\tpy 5\n", "t"),
    "comments": ("# t: u\nA = 4 # four\nt: # u\n\tpy $(A)\nu:\n\tpy 5\n", "t"),
    "one without a recipe": ("t: x.o\n\tpy 1\nx.o: ;\n", "t"),
    "a recipe for two": ("a b: c\n\tpy 1\nc:\n\tpy 2\n", "b"),
    "a recipe in the line": ("t: ; py 5\n", "t"),
    "needs of two lines": ("t: a\nt: b\n\tpy 1\na:\n\tpy 2\nb:\n\tpy 3\n", "t"),
    "needs behind a recipe": ("t: a\n\tpy 1\nt: b\na:\n\tpy 2\nb:\n\tpy 3\n", "t"),
    "needs in order": ("t: | a\n\tpy 1\na:\n\tpy 2\n", "t"),
}


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
@pytest.mark.parametrize("name", FILES)
def test_a_target_is_read_as_make_runs_it(name: str, tmp_path: Path) -> None:
    text, arguments = FILES[name]
    (tmp_path / "Makefile").write_text(text)
    told = subprocess.run(
        ["make", "-n", "-s", *arguments.split()],
        cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    runs = told.stdout.replace("\\\n", " ").splitlines()
    found = of_target(text, "make", arguments.split()).splitlines()
    assert [one.split() for one in found] == [one.split() for one in runs]


@pytest.mark.parametrize("line", ["py 1 $(NONE) 2", "py 1 ${NONE} 2"])
def test_what_is_not_known_stays_as_it_is_written(line: str) -> None:
    assert of_target(f"A = 4\nt:\n\t{line}\n", "make", ["t"]) == line


def test_just_hands_words_to_a_target() -> None:
    text = "n := '7'\ntrain e o='1': data\n    py {{e}} {{o}} {{n}}\n\ndata:\n    get\n"
    assert of_target(text, "just", ["train", "4"]) == "get\npy 4 1 7"
    assert of_target(text, "just", ["train", "4", "5"]) == "get\npy 4 5 7"
