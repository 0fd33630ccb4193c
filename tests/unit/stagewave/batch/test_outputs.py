"""An output is there whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from stagewave.batch.item import ItemFailed
from stagewave.batch.outputs import output
from stagewave.errors import DiskFull


def test_an_output_appears_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a/b.txt"

    with output(path) as file:
        file.write(b"one")
        assert not path.exists()

    assert path.read_bytes() == b"one"
    assert os.listdir(path.parent) == ["b.txt"]


def test_an_output_that_is_given_up_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"before")

    with pytest.raises(RuntimeError), output(path) as file:
        file.write(b"half")
        raise RuntimeError

    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_full_disk_concerns_all_outputs(tmp_path: Path) -> None:
    with pytest.raises(DiskFull), output(tmp_path / "a.txt"):
        raise OSError(errno.ENOSPC, "No space left on device")

    assert os.listdir(tmp_path) == []


def test_a_name_that_cannot_be_written_concerns_one(tmp_path: Path) -> None:
    for name in ("n" * 300, "a/b"):
        (tmp_path / "a").touch()
        with pytest.raises(ItemFailed) as failed, output(tmp_path / name):
            pass
        assert failed.value.code == "output_failed"
