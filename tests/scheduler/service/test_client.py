from __future__ import annotations

from typing import Any

from scheduler.service.client import Client


class Answer:
    status_code, headers = 200, {"content-type": "application/json"}

    def json(self) -> Any:
        return {"id": "1", "name": "train\x1b]0;owned\x07", "tail": "a\n\x9b2Jb"}


class Wire:
    def request(self, *_: Any, **__: Any) -> Answer:
        return Answer()

    def close(self) -> None: ...


def test_nothing_of_an_answer_is_obeyed_by_a_terminal() -> None:
    with Client("http://127.0.0.1:1", http=Wire()) as client:  # type: ignore[arg-type]
        job = client.job("1")
    assert job == {"id": "1", "name": "train\\x1b]0;owned\\x07", "tail": "a\n\\x9b2Jb"}
