"""Nodes drained and opened from the pages, and the settings in force."""

from __future__ import annotations

import re
from html import unescape

import pytest
from fastapi.testclient import TestClient

from scheduler.backends.events import Event, Kind
from scheduler.explain.words import clock_time
from scheduler.service.metrics import Metrics
from tests.scheduler.service.pages.conftest import Lived, scraped

PREVIEW = "/nodes/change?node=node001&reason=fan+%3Cb%3Ebroken%3C%2Fb%3E"


def fields(page: str) -> dict[str, str]:
    """What the form that confirms a change sends."""
    form = page[page.index('<form class="filter" method="post"') :]
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form)
    return {name: unescape(value) for name, value in found}


def does(lived: Lived, kind: Kind, **body: object) -> None:
    """What an operator does."""
    lived.store.append([Event(kind, lived.world.now(), actor="olga", body=body)])
    lived.settle(1)


def fewer(lived: Lived) -> dict[str, object]:
    """The settings in force, but for jobs of two GPUs at most that share."""
    plain = lived.decider.state.present.spec.settings.plain()
    return {**plain, "sharing": {**plain["sharing"], "max_gpus": 2}}


def test_an_operator_drains_a_node_after_a_preview_and_opens_it_again(lived: Lived) -> None:
    lived.settle(1)
    olga = lived.browser("olga")
    assert "Drain the selected" in olga.get("/nodes").text
    seq = lived.store.last_seq()
    preview = olga.get(PREVIEW)
    assert preview.status_code == 200
    assert "No preview: no analyst is running." in preview.text
    assert "Nothing runs there." in preview.text
    assert "fan &lt;b&gt;broken&lt;/b&gt;" in preview.text
    assert lived.store.last_seq() == seq, "a preview changes nothing"
    sent = fields(preview.text)
    assert sent.pop("csrf")
    assert sent == {"node": "node001", "open": "", "reason": "fan <b>broken</b>"}
    done = olga.post("/nodes/change", data=fields(preview.text))
    assert (done.status_code, done.headers["location"]) == (303, "/nodes")
    lived.settle(1)
    for path in ("/nodes", "/"):
        page = olga.get(path).text
        assert "drained by olga: fan &lt;b&gt;broken&lt;/b&gt;" in page
        assert "since <time" in page
        others = lived.browser("ada.byron").get(path).text
        assert "drained by an operator: fan &lt;b&gt;broken" in others
        assert "olga" not in others
    assert "nothing to do" in olga.get(PREVIEW).text
    opened = olga.post("/nodes/change", data=fields(olga.get("/nodes/change?node=1&open=1").text))
    assert opened.status_code == 303
    lived.settle(1)
    assert "drained by" not in olga.get("/nodes").text
    [drained, open_again] = lived.store.read(kinds=[Kind.NODE_SET])
    assert (drained.actor, drained.body["reason"]) == ("olga", "fan <b>broken</b>")
    assert (open_again.actor, open_again.body["open"]) == ("olga", True)


def test_several_nodes_are_drained_at_once_or_none(lived: Lived) -> None:
    lived.settle(1)
    olga = lived.browser("olga")
    preview = olga.get("/nodes/change?node=node000&node=node001&reason=fans")
    assert "Drain node000, node001" in preview.text
    assert olga.get("/nodes/change?node=node000&node=none").status_code == 404
    assert olga.post("/nodes/change", data=fields(preview.text)).status_code == 303
    lived.settle(1)
    drained = lived.store.read(kinds=[Kind.NODE_SET])
    assert [(one.body["node"], one.body["reason"]) for one in drained] == [(0, "fans"), (1, "fans")]
    with_none = fields(preview.text) | {"node": "node002,none", "open": ""}
    assert olga.post("/nodes/change", data=with_none).status_code == 404
    assert len(lived.store.read(kinds=[Kind.NODE_SET])) == 2
    twice = fields(preview.text) | {"node": "node002,2, node002"}
    assert olga.post("/nodes/change", data=twice).status_code == 303
    assert len(lived.store.read(kinds=[Kind.NODE_SET])) == 3, "each once"


def test_nodes_are_found_by_name_type_and_state(lived: Lived) -> None:
    olga = lived.browser("olga")
    does(lived, Kind.NODE_SET, node=1, open=False, reason="fan")

    def shown(query: str) -> list[str]:
        return re.findall(r'name="node" value="(\w+)"', olga.get(f"/nodes?{query}").text)

    assert shown("state=drained") == ["node001"]
    assert shown("state=open") == ["node000", "node002"]
    assert shown("find=SPEECH") == ["node002"]
    assert shown("find=a100&state=all") == ["node000", "node001", "node002"]
    assert "No node matches" in olga.get("/nodes?find=none").text


def test_only_our_own_form_of_an_operator_changes_a_node(lived: Lived) -> None:
    lived.settle(1)
    olga, ada = lived.browser("olga"), lived.browser("ada.byron")
    word = {"csrf": fields(olga.get(PREVIEW).text)["csrf"]}
    for browser, sent, headers in (
        (olga, {}, {}),
        (olga, {"csrf": "0" * 64}, {}),
        (ada, word, {}),
        (olga, word, {"Origin": "https://evil.example"}),
    ):
        asked = {"node": "node001", "open": "", **sent}
        assert browser.post("/nodes/change", data=asked, headers=headers).status_code == 403
    assert ada.get(PREVIEW).status_code == 403
    page = ada.get("/nodes").text
    assert "node001" in page
    assert "Drain" not in page
    assert lived.store.read(kinds=[Kind.NODE_SET]) == []


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("node=none", 404, "There is no node &#39;none&#39;."),
        ("reason=fan", 422, "Select at least one node first."),
        ("node=node001&reason=" + "x" * 257, 422, "at most 256 characters"),
        ("node=node001&reason=a%0Ab", 422, "one line"),
    ],
)
def test_what_cannot_be_is_said_on_the_page(
    busy: Lived, query: str, status: int, said: str
) -> None:
    answer = busy.browser("olga").get(f"/nodes/change?{query}")
    assert (answer.status_code, said in answer.text) == (status, True), answer.text
    assert '<form class="filter" method="post"' not in answer.text


def test_settings_in_force_say_since_when_and_by_whom(lived: Lived) -> None:
    lived.settle(1)
    olga = lived.browser("olga")
    assert 'href="/settings"' in olga.get("/").text
    assert 'href="/settings"' not in lived.browser("ada.byron").get("/").text
    assert lived.browser("ada.byron").get("/settings").status_code == 403
    name = "sharing.max_gpus"
    row = re.compile(rf"<tr[^>]*>\s*<th scope=\"row\"><code>{re.escape(name)}</code>.*?</tr>", re.S)
    before = row.search(olga.get("/settings").text)
    assert before is not None
    assert "the log began" in before[0]
    does(lived, Kind.SETTINGS_SET, settings=fewer(lived), reason="large jobs <slow>")
    after = row.search(olga.get("/settings").text)
    assert after is not None
    assert ">2 GPUs</td>" in after[0]
    assert " by olga<small" in after[0]
    assert "large jobs &lt;slow&gt;" in after[0]


def test_drained_nodes_and_settings_that_were_taken_are_counted(lived: Lived) -> None:
    lived.settle(1)
    does(lived, Kind.NODE_SET, node=1, open=False, reason="fan")
    does(lived, Kind.SETTINGS_SET, settings=fewer(lived), reason="")
    does(lived, Kind.SETTINGS_SET, settings={"nonsense": 1}, reason="")
    read = scraped(Metrics(lived.store))
    assert read["pellucid_nodes", (("state", "drained"), ("vc", "vision"))] == 1
    assert read["pellucid_nodes", (("state", "open"), ("vc", "vision"))] == 1
    assert read["pellucid_settings_changes_total", ()] == 1, "the other was not taken"


def test_gpus_that_do_not_answer_are_named_on_the_pages_and_counted(lived: Lived) -> None:
    lived.settle(1)
    name, gpus = lived.decider.state.ledger.nodes.records[1].name, 4
    at = lived.world.now()
    does(lived, Kind.GPUS_CLOSED, node=1, closed={"2": "the GPU is lost"})
    said = f"{gpus - 1} of {gpus} GPUs answer; GPU 2 does not since {clock_time(at, at)}"
    olga = lived.browser("olga")
    for path in ("/nodes", "/"):
        assert f"{said}: the GPU is lost" in olga.get(path).text
    assert "GPU 2: closed, it does not answer" in olga.get("/").text
    read = scraped(Metrics(lived.store))
    assert read["pellucid_gpus", (("use", "silent"), ("vc", "vision"))] == 1
    asked = {"Authorization": f"Bearer {lived.secrets['olga']}"}
    api = TestClient(lived.app).get("/api/v1/nodes", headers=asked).json()[1]
    assert (api["name"], api["gpus"][2]["closed"]) == (name, "the GPU is lost")
    assert api["gpus"][1]["closed"] == ""


def test_a_preview_of_a_drain_names_who_runs_there(lived: Lived) -> None:
    job = lived.submit("ada.byron", gpus=4, vc="vision")
    lived.settle(1)
    view = lived.see("olga")
    [name] = [n.name for n in view.cluster() if any(job in gpu.jobs for gpu in n.gpus)]
    page = lived.browser("olga").get(f"/nodes/change?node={name}").text
    assert "Runs there:" in page
    assert re.search(rf">{job}</a> of ada.byron, until", page)
