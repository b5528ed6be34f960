"""What stands beside the models in use is on their page, in the API and on the command line."""

from __future__ import annotations

from features.codec import decode
from models.bundle import AdditiveModel, Bundle
from pipeline.commands.beside import lines
from scheduler.backends.events import Event, Kind
from scheduler.service.log.beside import Standing
from tests.scheduler.service.pages.bundle import small_bundle
from tests.scheduler.service.pages.conftest import Lived


def test_a_shadow_and_a_return_are_shown(lived: Lived) -> None:
    lived.settle(1)
    small = small_bundle()
    shadow = Bundle(
        duration=AdditiveModel(small.duration.axes, small.duration.terms, 2.0),
        packing=small.packing,
    )
    page = lived.browser("olga").get("/models").text
    assert "Models beside those in use" not in page
    lived.settings.shadow = shadow.save(lived.settings.state_dir / "shadow")
    notice = {"from": "f" * 64, "to": small.digest, "why": "worse beyond chance", "jobs": 100}
    lived.store.append([Event(Kind.BUNDLE_RETURNED, lived.world.now(), body=notice)])
    page = lived.browser("ada.byron").get("/models").text
    assert "Models beside those in use" in page
    assert f"shadow <code>{shadow.digest[:12]}</code>" in page
    assert "fewer than 50 jobs of 5 users have ended" in page
    assert "The models ffffffffffff were left for the former ones" in page
    answer = lived.browser("ada.byron").get("/api/v1/models/beside").json()
    found = decode(Standing, answer)
    assert found.beside[0].digest == shadow.digest
    said = lines(found)
    assert said[0] == "ffffffffffff was left for the former models: worse beyond chance."
    assert said[2].split()[:3] == ["shadow", shadow.digest[:12], "0"]
    assert lines(Standing()) == ["No models are in use."]
