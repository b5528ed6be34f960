"""Another champion is taken while jobs wait and run; one that is no good is not."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from features import aside
from models.bundle import Bundle, BundleError
from models.bundle.store import JSON_NAME, digest_of
from scheduler.backends.events import Kind
from scheduler.core.estimates import COLD_START
from scheduler.service.log.audit import audit
from scheduler.service.log.bundles import BundleStore, check
from scheduler.service.log.store.reads import Reads
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer
from tests import hung
from tests.scheduler.service.desk import Desk


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    return Desk(store, tmp_path, policy="pellucid", champion=tmp_path / "champion")


def promote(desk: Desk, bundle: Path) -> str:
    """Put a bundle where the champion is, as the pipeline does; its digest."""
    assert desk.champion is not None
    Bundle.load(bundle).save(desk.champion)
    return Bundle.load(bundle).digest


def scored_by(desk: Desk, job_id: str) -> str:
    score = desk.decider.state.core.jobs[job_id].score
    assert score is not None
    return score.bundle


def test_decisions_come_from_the_bundle_in_use(desk: Desk, bundles: list[Path]) -> None:
    desk.submit("cold", gpus=8)
    desk.turn()
    assert scored_by(desk, "cold") == COLD_START
    first = promote(desk, bundles[0])
    desk.turn()
    desk.submit("first", gpus=8)
    desk.turn()
    assert scored_by(desk, "first") == first
    second = promote(desk, bundles[1])
    desk.turn()
    desk.submit("second", gpus=8)
    desk.turn()
    assert [scored_by(desk, j) for j in ("cold", "first", "second")] == [COLD_START, first, second]
    found = [e.body["digest"] for e in desk.store.read(kinds=[Kind.BUNDLE])]
    assert found == [first, second]
    assert desk.decider.state.bundle == second


def test_models_are_shown_from_the_copy_that_is_decided_with(
    desk: Desk, bundles: list[Path], tmp_path: Path
) -> None:
    digest = promote(desk, bundles[0])
    desk.turn()
    operator = Viewer("olga", Role.OPERATOR)
    for copies, path in ((tmp_path, str(tmp_path / digest)), (None, str(desk.champion))):
        assert Reads(desk.store.engine, copies).seen_by(operator).bundle()["path"] == path


def test_one_that_cannot_be_used_is_refused_once(desk: Desk, bundles: list[Path]) -> None:
    first = promote(desk, bundles[0])
    desk.turn()
    promote(desk, bundles[2])
    for _ in range(3):
        desk.turn()
    [refused] = desk.store.read(kinds=[Kind.BUNDLE_REFUSED])
    assert "no duration model" in refused.body["why"]
    assert desk.champion is not None
    (desk.champion / "bundle.json").write_text("{")
    desk.turn()
    assert len(desk.store.read(kinds=[Kind.BUNDLE_REFUSED])) == 2
    desk.submit("a", gpus=8)
    desk.turn()
    assert scored_by(desk, "a") == first


def test_the_log_can_be_replayed_after_the_champion_is_gone(
    desk: Desk, bundles: list[Path]
) -> None:
    assert desk.champion is not None
    for bundle in bundles[:2]:
        promote(desk, bundle)
        desk.submit(bundle.name, gpus=8)
        desk.turn()
    shutil.rmtree(desk.champion)
    desk.restart()
    desk.until_idle()
    assert audit(desk.store, desk.bundle_store.find, decide_again=True).clean
    shutil.rmtree(desk.bundle_store.folder)
    with pytest.raises(BundleError):
        audit(desk.store, type(desk.bundle_store)(desk.bundle_store.folder).find, decide_again=True)


@pytest.mark.skipif(not hung.can_mount(), reason="nothing can be mounted here")
@pytest.mark.parametrize("silent", [hung.GETATTR, hung.READ])
def test_where_nothing_answers_in_the_champions_folder_deciding_goes_on(
    desk: Desk, bundles: list[Path], monkeypatch: pytest.MonkeyPatch, silent: int
) -> None:
    """Who may write to it may mount something on it, which no signal frees who looks from."""
    monkeypatch.setattr(aside, "PATIENCE_S", 2.0)
    looks = aside.Aside()
    desk.decider.bundle_store = BundleStore(desk.bundle_store.folder, looks)
    first = promote(desk, bundles[0])
    desk.turn()
    assert desk.champion is not None
    with hung.mounted(desk.champion, silent):
        for job_id in ("a", "b"):
            desk.submit(job_id, gpus=8)
            desk.turn()
            assert scored_by(desk, job_id) == first
        [refused] = desk.store.read(kinds=[Kind.BUNDLE_REFUSED])
        assert "lies where nothing answers" in refused.body["why"]
    for one in looks._hung.values():
        one.until = 0.0
        one.left.wait()
    second = promote(desk, bundles[1])
    desk.turn()
    assert desk.decider.state.bundle == second
    looks.close()


# --- bundles that are not what they say ----------------------------------------------------------

ODD = (None, True, -1, 0, 2**70, 1e308, -1e-300, "", "x", "duration", [], [[]], {}, [None], [0, -1])


def mutated(folder: Path, document: dict[str, Any], data: bytes, draw: random.Random) -> None:
    """Write a bundle with something odd in it, its digests right: as by somebody who may."""
    document = json.loads(json.dumps(document))
    if draw.random() < 0.3:
        head = bytearray(data)
        for _ in range(draw.randint(1, 4)):
            head[draw.randrange(128)] = draw.choice(b"(){}[],:'\"<>|fiOV90\0\xff ")
        data = bytes(head[: draw.choice([len(head), len(head), 64, len(head) - 8])])
    else:
        for _ in range(draw.randint(1, 3)):
            place: Any = document
            while True:
                keys = list(place) if isinstance(place, dict) else list(range(len(place)))
                key = draw.choice(keys)
                if not isinstance(place[key], dict | list) or not place[key] or draw.random() < 0.1:
                    break
                place = place[key]
            place[key] = copy.deepcopy(draw.choice(ODD))
    if isinstance(document.get("arrays"), dict):
        sha = hashlib.sha256(data).hexdigest()
        document["arrays"] = {"file": f"arrays-{sha[:16]}.npy", "sha256": sha}
        (folder / document["arrays"]["file"]).write_bytes(data)
    document["digest"] = digest_of(document)
    (folder / JSON_NAME).write_text(json.dumps(document))


@pytest.mark.filterwarnings("ignore")
def test_a_bundle_is_taken_or_refused_whatever_it_holds(
    bundles: list[Path], tmp_path: Path
) -> None:
    """The header of an array file made NumPy raise what stopped the decider, over and over."""
    draw, refused, taken = random.Random(11), 0, 0
    document = json.loads((bundles[0] / JSON_NAME).read_text())
    data = (bundles[0] / document["arrays"]["file"]).read_bytes()
    for i in range(200):
        folder = tmp_path / str(i)
        folder.mkdir()
        mutated(folder, document, data, draw)
        store = BundleStore(tmp_path / "bundles")
        try:
            check(store.take(folder))
        except BundleError:
            refused += 1
        else:
            taken += 1
        shutil.rmtree(folder)
    assert refused > 50
    assert taken > 10


def test_a_model_that_fails_where_it_is_tried_is_refused(
    desk: Desk, bundles: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise IndexError("index 9 is out of bounds")

    promote(desk, bundles[0])
    monkeypatch.setattr("models.bundle.packing.PackingModel.classify", fails)
    desk.turn()
    [refused] = desk.store.read(kinds=[Kind.BUNDLE_REFUSED])
    assert "cannot be decided with (IndexError: index 9 is out of bounds)" in refused.body["why"]
    desk.submit("a")
    desk.until_idle()


@pytest.mark.parametrize("step", ["_read", "take"])  # in the bundle's own words, or in none
def test_one_that_could_not_be_read_for_a_moment_is_read_at_the_next_look(
    desk: Desk, bundles: list[Path], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    first = promote(desk, bundles[0])
    with monkeypatch.context() as while_it_hangs:
        while_it_hangs.setattr(desk.decider.bundle_store, step, _not_now)
        desk.turn()
    desk.submit("a", gpus=8)
    desk.turn()
    assert desk.decider.state.bundle == first
    assert scored_by(desk, "a") == first


def _not_now(*_: object, **__: object) -> None:
    raise BlockingIOError("Resource temporarily unavailable")


# --- what lies there is no bundle ----------------------------------------------------------------


OTHERS = ("pipe", "socket", "device", "directory", "huge", "link")


@pytest.mark.parametrize(
    ("name", "what"),
    [*((name, what) for name in ("bundle.json", "arrays") for what in OTHERS), ("arrays", "loop")],
)
def test_whatever_lies_where_the_champion_is_deciding_goes_on(
    desk: Desk, bundles: list[Path], what: str, name: str
) -> None:
    first = promote(desk, bundles[0])
    desk.turn()
    promote(desk, bundles[1])
    champion = desk.champion
    assert champion is not None
    [file] = champion.glob(f"{name}*")
    secret = champion.parent / "elsewhere"
    secret.write_bytes(file.read_bytes())
    file.unlink()
    said = put(what, file, secret)
    if name == "arrays":  # what is watched is the other
        os.utime(champion / JSON_NAME)
    for _ in range(3):
        desk.turn()
    [refused] = desk.store.read(kinds=[Kind.BUNDLE_REFUSED])
    assert said in refused.body["why"]
    assert file.name in refused.body["why"]
    desk.submit("a", gpus=8)
    desk.turn()
    assert scored_by(desk, "a") == first
    desk.restart()
    desk.submit("b", gpus=8)
    desk.turn()
    assert scored_by(desk, "b") == first


def put(what: str, file: Path, other: Path) -> str:
    """Put something there that is no file of a bundle; what is to be said of it."""
    if what == "pipe":
        os.mkfifo(file)
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as there:
            folder = os.open(file.parent, os.O_PATH)
            there.bind(f"/proc/self/fd/{folder}/{file.name}")  # a name is short
            os.close(folder)
    elif what == "device":
        file.symlink_to("/dev/zero")
    elif what == "directory":
        file.mkdir()
    elif what == "huge":
        with file.open("wb") as into:
            into.truncate(1 << 40)
        return "holds more than"
    elif what == "link":
        file.symlink_to(other)
        return "is a link out of its folder"
    else:
        file.symlink_to(file.name)
        return "Too many levels of symbolic links"
    return f"is a {what}, not a regular file"


def test_one_that_grows_is_told_of_once(desk: Desk, bundles: list[Path]) -> None:
    promote(desk, bundles[0])
    desk.turn()
    assert desk.champion is not None
    for _ in range(5):
        with (desk.champion / JSON_NAME).open("ab") as file:
            file.write(b" x" * 1000)
        desk.turn()
    assert len(desk.store.read(kinds=[Kind.BUNDLE_REFUSED])) == 1
