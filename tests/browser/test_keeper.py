"""Who keeps models in production, with the browser only: compare two months of models, find what
moved a user's estimates, make a shape monotone and see which starts change, promote, go back.

The models are registered in MLflow, and `pellucid promote` judges and promotes, as ever.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import uvicorn
import yaml
from playwright.sync_api import Page, expect

from models.bundle import AdditiveModel, Bundle
from models.training.tracking import Registry, TrainedOn, log_training, promote
from pipeline.demo.run import Running
from scheduler.assembly import CoreSpec
from scheduler.service.api import tokens
from scheduler.service.api.auth import service_user
from scheduler.service.log.judging import Desk, step, track
from scheduler.service.log.proposals import Proposals
from scheduler.service.log.served import WEEK_S, count
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role
from scheduler.service.pages import lastweek
from tests.browser.conftest import Enter, _port, shoot
from tests.browser.test_walk import accessible, fits
from tests.scheduler.service.pages.bundle import small_bundle
from tests.scheduler.service.pages.conftest import SPEC, START, Lived, begin
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
USERS = tuple(f"user{i}" for i in range(9))
LEARNED = "2023-11-01T00:00:00+00:00"  # before all of it
FIRST = int(START // WEEK_S) + 1
WEEKS = 9
PATIENCE_S = 600.0


@dataclass
class Kept:
    """A service that has lived two months, with two models, and a registry that holds both.

    Attributes:
        former, present: digests of the models.
    """

    lived: Lived
    running: Running
    desk: Desk
    former: str
    present: str

    def work(self) -> None:
        """Do what the maintenance process does with what was asked for."""
        lived = self.lived
        proposals = Proposals(lived.settings.state_dir)
        assert step(lived.store, proposals, self.desk, clock=lived.world.now, stopping=_never)

    def decides_with(self) -> str:
        """Digest of the models that are decided with, after a look at the champion's folder."""
        self.lived.settle(90)
        return self.lived.decider.state.bundle


def looked_at(page: Page, name: str) -> None:
    """Keep a screenshot; nothing sticks out, on a phone either, and axe finds nothing."""
    accessible(page, name)
    shoot(page, f"keeper-{name}")
    wide = page.viewport_size
    page.set_viewport_size({"width": 390, "height": 844})
    fits(page, name)
    assert wide is not None
    page.set_viewport_size(wide)
    fits(page, name)


def _never(_: float) -> bool:
    return False


def _models(intercept: float, burst: list[float]) -> Bundle:
    small = small_bundle()
    model, told = small.duration, {"rows": 100, "window_to": LEARNED}
    size, hour, kind = model.axes
    terms = [
        model.terms[0],
        replace(model.terms[2], features=(1,)),
        replace(model.terms[1], scores=np.array(burst), features=(2,)),
    ]
    about = {**small.metadata, "duration": told}
    made = AdditiveModel([size, kind, hour], terms, intercept, model.link)  # as features come
    return Bundle(duration=made, packing=small.packing, pair_speed=small.pair_speed, metadata=about)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Two months of a service; its replays may take as long as a busy host makes them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lastweek, "LIMIT_S", PATIENCE_S)
        yield from _lived_two_months(tmp_path_factory)


def _lived_two_months(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    folder = tmp_path_factory.mktemp("kept")
    store = Store(f"sqlite:///{folder}/pellucid.db")
    prepare(store)
    lived = begin(store, folder, CoreSpec.of(SPEC, "pellucid"), trained=False)
    champion = folder / "champion"
    former = _models(3.0, [0.0, 2.0, 0.0, -2.0, -2.0])
    present = _models(6.5, [0.0, 2.0, 0.0, -2.0, -2.0])
    registry = Registry(
        tracking_uri=f"sqlite:///{folder}/mlflow.db", artifact_root=folder / "mlartifacts"
    )
    for bundle in (former, present):
        path = bundle.save(folder / bundle.digest)
        version = log_training(
            path, params={}, metrics={}, data=TrainedOn(digest="x"), registry=registry
        )
        promote(version, "for a test", {}, registry)
    lived.settings.params = _params(folder)
    random = Random(0)
    for user in USERS:
        role, account = Role.SUBMITTER, service_user()
        _, lived.secrets[user] = tokens.create(
            store, user, role, vcs=("vision",), os_user=account, now=time.time()
        )
    for week in range(WEEKS):
        at = (FIRST + week) * WEEK_S
        lived.decider.turn(at - lived.world.now() + 60.0)
        (former if week < 4 else present).save(champion)
        lived.settle(90)
        for _ in range(2 if week < 5 else 6):
            user = random.choice(USERS)
            gpus = 4 if week == WEEKS - 1 else 1
            for name in (user, *random.sample(USERS, 2), "user3"):
                for _ in range(3):
                    lived.submit(name, gpus=gpus if name == "user3" else 1, vc="vision")
                lived.settle(30)
            lived.settle(2 * 3600, turns=500)
        lived.settle(3600, turns=500)
        count(store, lived.settings.state_dir, lived.world.now())
    server = uvicorn.Server(uvicorn.Config(lived.app, port=_port(), log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started, "the server to start")
    address = f"http://127.0.0.1:{server.config.port}"
    running = Running(address, lived.secrets, None, folder / "none")  # type: ignore[arg-type]
    desk = Desk(params=lived.settings.params, out=champion)
    yield Kept(lived, running, desk, former.digest, present.digest)
    server.should_exit = server.force_exit = True
    thread.join(120)
    store.close()


def _params(folder: Path) -> Path:
    """Parameters of the pipeline, that name a registry of our own and the cluster of the test."""
    cluster = {
        "name": "kept",
        "gpus_per_node": SPEC.gpus_per_node,
        "gpu_type": "A100",
        "gpu_memory_mib": 32768,
        "vcs": {"vision": 2, "speech": 1},
    }
    (folder / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    given = yaml.safe_load((ROOT / "params.yaml").read_text())
    given["cluster"] = str(folder / "cluster.yaml")
    given["mlflow"] |= {
        "uri": f"sqlite:///{folder}/mlflow.db",
        "artifacts": str(folder / "mlartifacts"),
    }
    (folder / "params.yaml").write_text(yaml.safe_dump(given))
    return folder / "params.yaml"


def test_a_keeper_compares_finds_changes_promotes_and_goes_back(kept: Kept, enter: Enter) -> None:
    page = enter("olga", at=kept.running)
    page.set_default_timeout(1000 * PATIENCE_S)
    former, present = kept.former[:12], kept.present[:12]
    models = page.get_by_role("navigation", name="Pages").get_by_role("link", name="Models")

    # compare two months of models
    models.click()
    page.get_by_role("link", name="Compare models").click()
    weeks = page.get_by_role("table", name="Week by week").locator("tbody tr")
    assert weeks.count() >= WEEKS
    expect(weeks.filter(has_text=former).first).to_be_visible()
    expect(weeks.filter(has_text=present).first).to_be_visible()
    same = page.get_by_role("heading", name=f"{present} and {former} on the same jobs")
    expect(same).to_be_visible()
    expect(page.locator("section", has=same)).to_contain_text("worse beyond chance")
    looked_at(page, "compared")

    # find what moved a user's estimates
    page.get_by_role("link", name="What moved a user's estimates").click()
    page.get_by_label("User").fill("user3")
    page.get_by_role("button", name="Show").click()
    moved = page.get_by_role("table", name="By what").locator("tbody tr")
    expect(moved.filter(has_text="GPUs").first).to_contain_text(re.compile(r"×1\.\d+\s*1\s*4$"))
    looked_at(page, "moved")

    # make one shape monotone, and see which starts change
    models.click()
    page.get_by_role("link", name="Change a shape").click()
    page.locator("select[name=feature]").select_option("user_submitted_1h")
    page.locator("select[name=kind]").select_option("rise")
    page.get_by_label("Why").fill("more jobs at once are not shorter ones")
    page.get_by_role("button", name="Try, and replay last week").click()
    expect(page.get_by_role("heading", name="Starts that change")).to_be_visible(
        timeout=1000 * PATIENCE_S
    )
    expect(page.locator("section", has=page.locator("#starts"))).to_contain_text("Mean wait")
    looked_at(page, "tried")

    # promote with evidence
    page.get_by_role("button", name="Propose the models with it").click()
    expect(page.get_by_text("It is being judged")).to_be_visible()
    kept.work()
    page.get_by_role("link", name="Look again").click()
    shoot(page, "keeper-judged")
    expect(page.locator(".chip").first).to_have_text("better")
    expect(page.locator("main")).to_contain_text("RMSE of log10")
    page.get_by_role("button", name="Promote").click()
    expect(page.get_by_text("It is under way.")).to_be_visible()
    kept.work()
    page.get_by_role("link", name="Look again").click()
    expect(page.locator("main")).to_contain_text("It is champion since")
    promoted = kept.decides_with()
    assert promoted not in (kept.former, kept.present)
    models.click()
    expect(page.locator("footer")).to_contain_text(promoted[:12])

    # go back
    page.get_by_role("link", name="promote what was proposed, or go back").click()
    returns = page.get_by_role("button", name="Return to the former champion")
    page.locator("form", has=returns).get_by_label("Why").fill("a test")
    returns.click()
    kept.work()
    page.get_by_role("link", name="Look again").first.click()
    expect(page.locator("section", has_text="Back to the former champion").first).to_contain_text(
        "It is champion since"
    )
    assert kept.decides_with() == kept.present
    shoot(page, "keeper-is-back")

    # what the weeks were like is logged with the versions that decided
    lived = kept.lived
    assert track(lived.settings.state_dir, kept.desk, lived.world.now(), _never)
