"""Bundles on disk: the same models come back, and nothing else is believed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import models.bundle.store as store
from features.job import Profile
from models.bundle import Bundle, BundleError

TRAINING_LIBRARIES = ("interpret", "sklearn", "lightgbm", "mlflow", "torch", "pandas", "scipy")


@pytest.fixture
def saved(bundle, tmp_path) -> Path:
    return bundle.save(tmp_path / "bundle")


def test_what_was_saved_is_what_is_loaded(bundle, saved, make_frame):
    loaded = Bundle.load(saved)
    assert loaded.digest == bundle.digest
    assert loaded.parts == ("duration", "packing", "pair_speed")
    assert loaded.created_by == "pellucid tests"
    assert loaded.metadata["auc"] is None  # NaN has no place in JSON
    assert loaded.metadata["packing"]["origin"] == "simulated"
    X = make_frame(500, 7, novel=True)
    assert (loaded.duration.score_batch(X) == bundle.duration.score_batch(X)).all()
    assert loaded.duration.features == bundle.duration.features
    for ours, theirs in zip(bundle.duration.terms, loaded.duration.terms, strict=True):
        assert ours.origin == theirs.origin
        assert (ours.weights == theirs.weights).all()
        assert (ours.spread == theirs.spread).all()
    a, b = Profile(33.0, 8.0, 2500.0, True), Profile(71.0, 30.0, 9000.0)
    assert loaded.packing.classify(a) == bundle.packing.classify(a)
    assert loaded.pair_speed(a, b) == bundle.pair_speed(a, b)


def test_the_same_content_gives_the_same_bytes(bundle, saved, tmp_path):
    again = Bundle.load(saved).save(tmp_path / "again")
    assert sorted(p.name for p in again.iterdir()) == sorted(p.name for p in saved.iterdir())
    for path in saved.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes()


def test_other_content_has_another_digest(bundle):
    other = Bundle(duration=bundle.duration, metadata=bundle.metadata)
    assert other.digest != bundle.digest
    assert Bundle(metadata={"rows": 1}).digest != Bundle(metadata={"rows": 2}).digest


def test_a_part_that_is_not_there_is_named(tmp_path):
    empty = Bundle.load(Bundle().save(tmp_path / "empty"))
    assert empty.parts == ()
    for part in ("duration", "packing", "pair_speed"):
        with pytest.raises(BundleError, match=f"no {part} model"):
            getattr(empty, part)


def test_replacing_leaves_one_bundle_and_no_rubbish(bundle, saved):
    Bundle(duration=bundle.duration, metadata={"second": True}).save(saved)
    Bundle(metadata={"third": True}).save(saved)
    assert Bundle.load(saved).metadata == {"third": True}
    assert len(list(saved.iterdir())) == 2


@pytest.mark.parametrize("dies_at", [1, 2])
def test_an_interrupted_save_leaves_the_old_bundle(bundle, saved, monkeypatch, dies_at):
    calls = 0
    replace = os.replace

    def killed(source, target):
        nonlocal calls
        calls += 1
        if calls == dies_at:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        Bundle(metadata={"new": True}).save(saved)
    assert Bundle.load(saved).digest == bundle.digest
    assert not list(saved.glob(".*"))


def test_metadata_that_is_not_json_is_refused():
    with pytest.raises(BundleError, match="metadata holds"):
        Bundle(metadata={"when": object()})
    kept = Bundle(metadata={"n": np.int64(3), "x": np.array([1.0, np.inf])}).metadata
    assert kept == {"n": 3, "x": [1.0, None]}


def refused(path: Path) -> str:
    with pytest.raises(BundleError) as caught:
        Bundle.load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def test_what_is_not_a_bundle_is_refused(saved, tmp_path):
    assert "no bundle.json" in refused(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file")
    document = json.loads((saved / "bundle.json").read_text())
    for content, says in (
        (b"\xff\x00", "not JSON"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "not a pellucid-bundle"),
        ('{"format": "onnx"}', "not a pellucid-bundle"),
        (json.dumps({**document, "version": 99}), "version 99"),
        (json.dumps({**document, "created_by": "someone"}), "digest differs"),
        (json.dumps(document).replace("log1p", "identity"), "digest differs"),
    ):
        raw = content if isinstance(content, bytes) else content.encode()
        (saved / "bundle.json").write_bytes(raw)
        assert says in refused(saved)


def test_what_is_written_can_be_read_and_has_room(bundle, saved, tmp_path, monkeypatch):
    """A decider reads what anybody may have put there: no more than thirty times a real one."""
    size = (saved / "bundle.json").stat().st_size
    assert store.MOST_JSON == 1 << 20
    assert size < store.MOST_JSON / 30
    names = {"names": ["x" * 60] * 5000}  # of the users of a large site
    large = Bundle(duration=bundle.duration, metadata=names).save(tmp_path / "large")
    assert Bundle.load(large).metadata == names
    before = sorted((path.name, path.read_bytes()) for path in saved.iterdir())
    for limit in ("MOST_JSON", "MOST_ARRAYS"):
        with monkeypatch.context() as less:
            less.setattr(store, limit, 100)
            assert "holds more than 100 bytes" in refused(saved)
            with pytest.raises(BundleError, match="more than are read"):
                bundle.save(saved)
    with pytest.raises(BundleError, match=r"bundle.json would have 1,0\d\d,\d{3} bytes"):
        Bundle(duration=bundle.duration, metadata={"x": "y" * (1 << 20)}).save(saved)
    assert sorted((path.name, path.read_bytes()) for path in saved.iterdir()) == before


def test_missing_or_damaged_numbers_are_refused(saved):
    numbers = next(saved.glob("arrays-*.npy"))
    data = numbers.read_bytes()
    for damaged in (b"", data[: len(data) // 2], data[:-1] + bytes([data[-1] ^ 1])):
        numbers.write_bytes(damaged)
        assert "damaged" in refused(saved)
    numbers.unlink()
    assert f"no {numbers.name}" in refused(saved)


def leaves_of(document, path=()):
    items = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in items:
        yield (*path, key)
        yield from leaves_of(value, (*path, key))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    where=st.integers(0, 10**6),
    what=st.sampled_from(
        [None, -1, 0, 1, 3, 10**9, 1e308, -0.5, "", "x", [], [0], [9, 9], {}, True, "delete"]
    ),
)
def test_a_document_that_lies_with_a_right_digest_never_escapes(bundle, tmp_path, where, what):
    """Whatever it says, loading gives a bundle that scores, or a BundleError."""
    document, data = bundle._encode()
    paths = [path for path in leaves_of(document) if path != ("digest",)]
    *parents, key = paths[where % len(paths)]
    inner = document = json.loads(json.dumps(document))
    for parent in parents:
        inner = inner[parent]
    if what == "delete" and isinstance(inner, dict):
        del inner[key]
    else:
        inner[key] = what
    document["digest"] = store.digest_of(document)
    folder = tmp_path / "lying"
    folder.mkdir(exist_ok=True)
    (folder / "bundle.json").write_text(json.dumps(document))
    name = (document.get("arrays") or {}) if isinstance(document.get("arrays"), dict) else {}
    if isinstance(name.get("file"), str) and store._ARRAYS_NAME.fullmatch(name["file"]):
        (folder / name["file"]).write_bytes(data)
    with suppress(BundleError):
        loaded = Bundle.load(folder)
        assert np.isfinite(loaded.duration.explain([None] * len(loaded.duration.features)).score)
        assert loaded.packing.classify(Profile(1.0, 1.0, 1.0))[0] in (0, 1, 2)
        assert 0 < min(loaded.pair_speed(Profile(1.0, 1.0, 1.0), Profile(9.0, 9.0, 9.0))) <= 1


HEADERS = [
    "(",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (10**12,)}",
    "1 if",
    "{\x00",
    "f'",
]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(HEADERS) | st.text(max_size=80), st.booleans())
def test_an_array_file_that_lies_with_a_right_digest_is_refused(bundle, tmp_path, header, whole):
    """NumPy's reader may raise anything for a header it does not like."""
    document, data = bundle._encode()
    text = header.encode("latin-1", "replace")
    lying = data[:8] + len(text).to_bytes(2, "little") + text + (data[128:] if whole else b"")
    sha = hashlib.sha256(lying).hexdigest()
    document["arrays"] = {"file": f"arrays-{sha[:16]}.npy", "sha256": sha}
    document["digest"] = store.digest_of(document)
    folder = tmp_path / "lying"
    folder.mkdir(exist_ok=True)
    (folder / "bundle.json").write_text(json.dumps(document))
    (folder / document["arrays"]["file"]).write_bytes(lying)
    refused(folder)


def test_reading_and_scoring_load_no_training_library(saved):
    script = (
        "import sys; from models.bundle import Bundle;"
        f"b = Bundle.load({str(saved)!r}); b.duration.explain([None] * len(b.duration.features));"
        "b.duration.score_batch({s.name: [None if s.kind == 'nominal' else 1.0]"
        " for s in b.duration.features});"
        f"print([m for m in {TRAINING_LIBRARIES} if m in sys.modules])"
    )
    root = Path(__file__).resolve().parents[2]
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=True
    )
    assert output.stdout.strip() == "[]"
