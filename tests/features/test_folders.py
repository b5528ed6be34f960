"""Folders that only their user can put anything into."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from features.folders import OpenFolder, private_folder


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
    with pytest.raises(OpenFolder, match=r"above can be written by its group \(65534\)"):
        private_folder(folder)
    os.chown(above, 0, 0)
    assert private_folder(folder) == folder


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
