"""A program that is not there is found out when the job is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from features import aside
from scheduler.backends.local import program
from scheduler.backends.local.host import own_user
from scheduler.backends.local.program import Missing, missing
from tests import hung


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


def test_files_of_other_accounts_are_not_explored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an account that is not the service's, what it could see itself is refused, no more."""
    user = own_user()
    monkeypatch.setattr(program, "own_user", lambda: "service")
    private, script = tmp_path / "private", tmp_path / "run.sh"
    private.mkdir()
    (tmp_path / "there").symlink_to("private")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "link0").symlink_to("run.sh")
    for number in range(1, 30):  # of forty that are followed
        (tmp_path / f"link{number}").symlink_to(f"link{number - 1}")
    script.write_text("#!/bin/sh\n")
    script.chmod(0o644)
    for words, workdir, why in (
        ("/no/such/prog", "", "no executable file"),
        ("sleep", "/nonexistent/dir", "working directory"),
        ("./nosuch.sh", str(tmp_path), "no executable file"),
        ("./run.sh", str(tmp_path), "no executable file"),
        ("./link29", str(tmp_path), "no executable file"),
        ("./there/x", str(tmp_path), "no executable file"),
        ("./there", str(tmp_path), "no executable file"),
        ("sleep", str(script), "working directory"),
    ):
        assert why in missing([words], workdir, {}, user), words
    script.chmod(0o700)
    private.chmod(0o600)
    for words in ("./run.sh", "./private/x", "./there/x", "./there/../../x", "./loop", "/bin/sh"):
        assert missing([words], str(tmp_path), {}, user) == "", words
    assert missing(["sh"], str(tmp_path / "there" / "x"), {}, user) == ""
    assert missing(["id_rsa"], "", {"PATH": "/root/.ssh"}, user) == ""
    assert "no program" in missing(["nosuchprogram"], "", {}, user)


@pytest.mark.skipif(not hung.can_mount(), reason="nothing can be mounted here")
def test_a_folder_where_nothing_answers_keeps_only_who_named_it_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aside, "PATIENCE_S", 2.0)
    there, looked = tmp_path / "there", Missing()
    there.mkdir()
    assert looked(["sh"], "", {}, "") == ""
    assert "no program" in looked(["nosuchprogram"], "", {}, "")
    with hung.mounted(there, hung.GETATTR):
        for command, workdir in ((["sh"], str(there / "x")), ([str(there / "sh")], "")):
            assert "nothing answers there" in looked(command, workdir, {}, "")
        assert looked(["sh"], str(tmp_path), {}, own_user()) == ""
    looked.close()
