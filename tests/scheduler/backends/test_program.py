"""A program that is not there is found out when the job is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.backends.local import program
from scheduler.backends.local.program import missing


def test_programs_of_this_host(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")
    assert missing(["sh"], "", {}, "") == ""
    assert missing(["/bin/sh"], "", {}, "") == ""
    assert "no program 'nosuchprogram' on the PATH" in missing(["nosuchprogram"], "", {}, "")
    assert "./run.sh is no executable file" in missing(["./run.sh"], str(tmp_path), {}, "")
    script.chmod(0o755)
    assert missing(["./run.sh"], str(tmp_path), {}, "") == ""
    assert "working directory" in missing(["sh"], str(tmp_path / "none"), {}, "")


def test_a_path_that_only_the_job_has(tmp_path: Path) -> None:
    tool = tmp_path / "own-tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert "with --env PATH=" in missing(["own-tool"], "", {}, "")
    assert missing(["own-tool"], "", {"PATH": f"/bin:{tmp_path}"}, "") == ""
    assert missing(["own-tool"], str(tmp_path), {"PATH": "bin:/bin"}, "") == ""  # not known here


def test_files_of_other_accounts_are_not_explored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.os.path, "isdir", lambda _: pytest.fail("it looked"))
    monkeypatch.setattr(program, "_runs", lambda _: pytest.fail("it looked"))
    assert missing(["/root/.ssh/id"], "/root", {}, "somebody-else") == ""
    assert missing(["id_rsa"], "", {"PATH": "/root/.ssh"}, "somebody-else") == ""
    assert "no program" in missing(["nosuchprogram"], "", {}, "somebody-else")
