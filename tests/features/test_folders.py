"""Folders that only their user can put anything into."""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from features.folders import LOCK, OpenFolder, private_folder, temporary_folder


def test_one_that_is_missing_is_made_for_its_user_alone(tmp_path: Path) -> None:
    made = private_folder(tmp_path / "a" / "b")
    assert made.stat().st_mode & 0o777 == 0o700
    assert private_folder(made) == made


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_one_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(OpenFolder, match="can be written by others: chmod go-w"):
        private_folder(folder)


def test_so_is_one_below_a_folder_where_everybody_renames(tmp_path: Path) -> None:
    above = tmp_path / "above"
    folder = above / "between" / "state"
    folder.mkdir(parents=True)
    above.chmod(0o777)
    with pytest.raises(OpenFolder, match="above can be written by everybody"):
        private_folder(folder)
    above.chmod(0o1777)  # as /tmp: nobody renames what is another's
    assert private_folder(folder) == folder


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_one_that_another_group_can_rename_is_refused(tmp_path: Path) -> None:
    above = tmp_path / "above"
    folder = above / "state"
    folder.mkdir(parents=True, mode=0o700)
    os.chown(above, 0, 65534)
    above.chmod(0o775)
    with pytest.raises(OpenFolder, match=r"above can be written by its group \(65534\)") as refused:
        private_folder(folder)
    assert str(refused.value).endswith(f"chmod g-w {above}, or keep the state elsewhere")
    os.chown(above, 0, 0)
    assert private_folder(folder) == folder


GID = 54_321


def account(name: str, uid: int, gid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, gid, "", "/", "/bin/sh"))


@pytest.mark.parametrize(
    ("named", "others", "said"),
    [
        ([], [], ""),  # as root:staff of /var/local, or a group of the service's own
        (["service", "root"], [], ""),
        (["service", "alice"], [], "of which alice is:"),
        ([], ["bob"], "of which bob is:"),
        (["alice"], ["bob", "carol"], "of which alice is and 2 more:"),
        (None, [], "whose members this host does not list:"),
        ([], None, "and this host does not list who else is of it:"),
    ],
)
def test_a_group_is_trusted_where_nobody_else_is_of_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: list[str] | None,
    others: list[str] | None,
    said: str,
) -> None:
    """The service's own was, though everybody was of it (`users`)."""
    above = tmp_path / "above"
    folder = above / "state"
    folder.mkdir(parents=True, mode=0o700)
    above.chmod(0o775)
    monkeypatch.setattr(os, "getegid", lambda: GID)
    stat = Path.stat

    def with_group(path: Path, **more: bool) -> os.stat_result:
        found = stat(path, **more)
        values = list(found)
        values[5] = GID if path == above else found.st_gid
        return os.stat_result(values)

    def by_gid(gid: int) -> grp.struct_group:
        if named is None:
            raise KeyError(gid)
        return grp.struct_group(("some", "x", gid, named))

    mine = [account("service", os.geteuid(), GID), account("root", 0, 0)]
    more = [account(name, 70_000 + i, GID) for i, name in enumerate(others or [])]
    monkeypatch.setattr(Path, "stat", with_group)
    monkeypatch.setattr(grp, "getgrgid", by_gid)
    monkeypatch.setattr(pwd, "getpwall", lambda: [] if others is None else [*mine, *more])
    if not said:
        assert private_folder(folder) == folder
        return
    with pytest.raises(
        OpenFolder, match=f"its group \\({GID}\\), {said} chmod g-w {above}, or keep"
    ):
        private_folder(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("whose", ["above", "above/state"])
def test_one_of_another_user_is_refused_whatever_its_mode(tmp_path: Path, whose: str) -> None:
    folder = tmp_path / "above" / "state"
    folder.mkdir(parents=True, mode=0o700)
    os.chown(tmp_path / whose, 65534, 65534)
    with pytest.raises(OpenFolder, match="belongs to nobody"):
        private_folder(folder)


def test_a_link_is_followed_to_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    with pytest.raises(OpenFolder):
        private_folder(tmp_path / "link")


KILLED = """
import os, signal, sys
from features.folders import temporary_folder
with temporary_folder("of-a-run-", sys.argv[1]) as made:
    (made / "key.pem").write_text("secret")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def left_by_one_that_was_killed(base: Path) -> Path:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(base)])
    assert killed.returncode == -signal.SIGKILL
    [left] = base.glob("of-a-run-*")
    assert (left / "key.pem").exists()
    return left


def test_what_a_killed_run_left_goes_with_the_next_and_what_is_in_use_stays(tmp_path: Path) -> None:
    left = left_by_one_that_was_killed(tmp_path)
    with temporary_folder("of-a-run-", tmp_path) as first:
        assert not left.exists()
        with temporary_folder("of-a-run-", tmp_path) as second:
            assert first.stat().st_mode & 0o777 == 0o700
            assert first.is_dir()
            assert second.is_dir()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_another_host_another_user_or_nobody_known_left_stays(tmp_path: Path) -> None:
    left = left_by_one_that_was_killed(tmp_path)
    (left / LOCK).write_text("another-host")
    unknown, theirs = tmp_path / "of-a-run-unknown", tmp_path / "of-a-run-theirs"
    unknown.mkdir()
    theirs.mkdir()
    (theirs / LOCK).touch()
    os.chown(theirs / LOCK, 65534, 65534)
    (tmp_path / "of-a-run-link").symlink_to(unknown)
    with temporary_folder("of-a-run-", tmp_path):
        pass
    assert len(list(tmp_path.iterdir())) == 4
    assert (left / "key.pem").exists()


def test_what_another_user_puts_in_its_place_meanwhile_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can rename in a folder had any other of its owner's removed."""
    left, results = left_by_one_that_was_killed(tmp_path), tmp_path / "results"
    results.mkdir()
    (results / "model").touch()
    flock = fcntl.flock

    def meanwhile(lock: int, how: int) -> None:
        flock(lock, how)
        if results.exists():
            left.rename(tmp_path / "gone")
            results.rename(left)

    monkeypatch.setattr(fcntl, "flock", meanwhile)
    with temporary_folder("of-a-run-", tmp_path):
        pass
    assert (left / "model").exists()
    assert list((tmp_path / "gone").iterdir()) == []
