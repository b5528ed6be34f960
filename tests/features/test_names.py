from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.history import KeyHistory
from features.job import Job
from features.names import MAX_LENGTH, normalise
from features.templates import PER_USER, TemplateBook


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ResNet50_lr0.1_run-17", "resnet50-lr0.3-run-18"),
        ("bert/base 2020-09-01 12:00", "BERT-base-2021-01-31-08:30"),
        ("train-3f2a9c1d77", "train-00c4be91aa"),
        ("eval", "  Eval__"),
    ],
)
def test_runs_of_one_template_have_one_name(one: str, other: str) -> None:
    assert normalise(one) == normalise(other) != ""


@pytest.mark.parametrize(
    ("one", "other"), [("resnet50", "vgg16"), ("train", "train-large"), ("deadbeef", "feedface")]
)
def test_words_are_kept_apart(one: str, other: str) -> None:
    assert normalise(one) != normalise(other)


@pytest.mark.parametrize("name", ["", "   ", "17", "2020-09-01", "#", "--__--"])
def test_a_name_without_letters_is_none(name: str) -> None:
    assert normalise(name) == ""


@given(st.text(max_size=300))
def test_normalising_is_bounded_and_settles(name: str) -> None:
    once = normalise(name)
    assert len(once) <= MAX_LENGTH
    assert not any(c.isdigit() for c in once if c.isascii())
    assert normalise(once) == normalise(normalise(once))


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_numbers_never_tell_templates_apart(one: int, other: int) -> None:
    assert normalise(f"train-run{one}") == normalise(f"train-run{other}")


def a_job(name: str = "", user: str = "ann", gpus: int = 1, cpus: float | None = 4.0) -> Job:
    return Job("j", 0.0, gpus, user=user, name=name, cpus=cpus)


def test_names_nearly_alike_share_a_history() -> None:
    book = TemplateBook()
    first = book.assign(a_job("imagenet_resnet_baseline"))
    assert book.assign(a_job("imagenet_resnet_baselin")) is first
    assert book.find(a_job("imagenet_resnet_baselines")) is first
    assert book.find(a_job("speech_conformer")) is None
    assert book.find(a_job("imagenet_resnet_baseline", user="bob")) is None


def test_without_a_name_the_request_is_the_template() -> None:
    book = TemplateBook()
    first = book.assign(a_job(gpus=2))
    assert book.find(a_job("1234", gpus=2)) is first
    assert book.find(a_job(gpus=4)) is None
    assert book.find(a_job(gpus=2, cpus=None)) is None


def test_a_user_keeps_the_templates_used_last() -> None:
    book = TemplateBook()
    kept = book.assign(a_job(gpus=1))
    histories: list[KeyHistory] = []
    for gpus in range(2, PER_USER + 20):
        histories.append(book.assign(a_job(gpus=gpus)))
        assert book.assign(a_job(gpus=1)) is kept
    found = [book.find(a_job(gpus=gpus)) for gpus in range(2, PER_USER + 20)]
    assert found[-(PER_USER - 1) :] == histories[-(PER_USER - 1) :]
    assert set(found[: -(PER_USER - 1)]) == {None}
