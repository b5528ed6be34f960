"""What of the environment a profiled command sees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.environment import scrubbed
from profiler.errors import BadOption

NAMES = st.from_regex(r"\A[A-Z][A-Z0-9_]{0,20}\Z")


def test_paths_and_thread_counts_pass_secrets_do_not() -> None:
    source = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "OMP_NUM_THREADS": "4",
        "HF_HOME": "/cache",
        "HF_TOKEN": "hf_x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "TORCH_API_KEY": "x",
        "SSH_AUTH_SOCK": "/s",
        "MY_OWN": "1",
    }
    assert scrubbed(source).keys() == {"PATH", "LC_ALL", "OMP_NUM_THREADS", "HF_HOME"}


def test_what_is_named_is_passed_or_set() -> None:
    source = {"WANDB_MODE": "offline", "HF_TOKEN": "x"}
    found = scrubbed(source, ["WANDB_MODE", "HF_TOKEN", "A=b=c", "EMPTY="])
    assert found == {"WANDB_MODE": "offline", "HF_TOKEN": "x", "A": "b=c", "EMPTY": ""}


@pytest.mark.parametrize("item", ["", "=x", "A-B=1", "1A=2", "A B", "NOT_SET_HERE", "A=\0"])
def test_bad_items_are_named(item: str) -> None:
    with pytest.raises(BadOption, match="--env"):
        scrubbed({}, [item])


@given(st.dictionaries(NAMES, st.text(max_size=5)), NAMES)
def test_nothing_that_looks_secret_passes_unnamed(source: dict[str, str], name: str) -> None:
    found = scrubbed(source)
    assert found.items() <= source.items()
    assert not any("TOKEN" in key or "SECRET" in key or "PASSW" in key for key in found)
    assert scrubbed({**source, name: "v"}, [name])[name] == "v"
