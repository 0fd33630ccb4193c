"""Folders as they are found: what is taken, what is told of, and where its transcript goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stagewave.batch.item import Failure, Found, Item, PassedOver, shown
from stagewave.batch.spoken_files import SpokenFiles
from stagewave.errors import WrongInput
from workers.settings import Settings

ODD = ("-dash.wav", "two words.wav", "new\nline.wav", "会议记录.wav", os.fsdecode(b"caf\xe9.wav"))


def found_in(*sources: Path | str, out: Path | None = None) -> list[Found]:
    return list(SpokenFiles([str(source) for source in sources], out, "srt", Settings()))


def outputs(found: list[Found]) -> list[Path]:
    return [item.output for item in found if isinstance(item, Item)]


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"sound")
    return folder


def test_transcripts_lie_beside_the_recordings_or_in_folders_like_theirs(tmp_path: Path) -> None:
    rec = fill(tmp_path / "rec", "a.wav", "b/c.MP3", "b/d/e.opus")

    assert outputs(found_in(rec)) == [rec / "a.srt", rec / "b/c.srt", rec / "b/d/e.srt"]
    out = tmp_path / "out"
    assert outputs(found_in(rec, out=out)) == [out / "a.srt", out / "b/c.srt", out / "b/d/e.srt"]


def test_several_sources_keep_apart_what_has_the_same_name(tmp_path: Path) -> None:
    fill(tmp_path, "x/rec/a.wav", "y/rec/a.wav", "y/b.wav")
    out = tmp_path / "out"

    found = outputs(found_in(tmp_path / "x/rec", tmp_path / "y/rec", tmp_path / "y/b.wav", out=out))

    assert found == [out / "x/rec/a.srt", out / "y/rec/a.srt", out / "y/b.srt"]


def test_a_file_that_is_named_needs_no_ending_that_is_known(tmp_path: Path) -> None:
    fill(tmp_path, "talk.bin", "a.wav")

    assert outputs(found_in(tmp_path / "talk.bin", tmp_path / "a.wav")) == [
        tmp_path / "talk.srt",
        tmp_path / "a.srt",
    ]


def test_odd_names_are_names(tmp_path: Path) -> None:
    rec = fill(tmp_path / "rec", *ODD)

    found = outputs(found_in(rec))

    assert {path.name for path in found} == {name.replace(".wav", ".srt") for name in ODD}
    for path in found:
        assert shown(str(path)).isprintable()


def test_what_is_no_recording_by_its_name_is_passed_over(tmp_path: Path) -> None:
    rec = fill(tmp_path / "rec", "notes.txt", "._a.wav", "wav", "a.srt")
    os.mkfifo(rec / "pipe.wav")

    found = found_in(rec)

    assert all(isinstance(item, PassedOver) for item in found) and len(found) == 4


def test_what_cannot_be_read_is_told_of(tmp_path: Path) -> None:
    rec = fill(tmp_path / "rec", "a.wav")
    (rec / "empty.wav").touch()
    (rec / "dangling.wav").symlink_to("nowhere")
    (rec / "itself.wav").symlink_to("itself.wav")
    (rec / "dangling.txt").symlink_to("nowhere")

    codes = {Path(f.source).name: f.code for f in found_in(rec) if isinstance(f, Failure)}

    assert codes == {"empty.wav": "audio_empty", "dangling.wav": "unreadable", "itself.wav": "unreadable"}


def test_links_that_lead_in_a_circle_are_followed_once(tmp_path: Path) -> None:
    rec = fill(tmp_path / "rec", "a.wav", "b/c.wav")
    (rec / "b/up").symlink_to("..")
    (rec / "z").symlink_to("b")
    (tmp_path / "elsewhere").mkdir()
    (rec / "other").symlink_to(fill(tmp_path / "elsewhere", "d.wav"))

    assert outputs(found_in(rec)) == [rec / "a.srt", rec / "b/c.srt", rec / "other/d.srt"]


def test_a_folder_that_vanished_is_one_failure(tmp_path: Path) -> None:
    rec = fill(tmp_path / "rec", "a/a.wav", "b.wav")
    walking = iter(SpokenFiles([str(rec)], None, "srt", Settings()))
    assert isinstance(next(walking), Item)
    (rec / "a/a.wav").unlink()
    (rec / "a").rmdir()

    (failure,) = walking

    assert isinstance(failure, Failure) and failure.code == "unreadable"


def test_sources_that_are_not_there_or_do_not_go_together_are_refused(tmp_path: Path) -> None:
    for sources in (["no-such-folder"], ["s3://bucket/a/"], ["s3://bucket/a/", str(tmp_path)]):
        with pytest.raises(WrongInput):
            SpokenFiles(sources, None if len(sources) == 1 else tmp_path, "srt", Settings())
