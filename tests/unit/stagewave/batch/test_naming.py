"""Every file has an output of its own, and the same one in every run."""

from __future__ import annotations

from stagewave.batch.naming import Names, output_names


def test_an_output_has_the_name_of_its_file() -> None:
    assert output_names(["talk.mp3", "no ending", "会议.wav"], "srt") == [
        "talk.srt",
        "no ending.srt",
        "会议.srt",
    ]


def test_files_that_differ_in_their_ending_keep_it() -> None:
    assert output_names(["a.mp3", "a.wav", "b.wav"], "txt") == ["a.mp3.txt", "a.wav.txt", "b.txt"]


def test_names_that_some_file_systems_take_for_one_are_kept_apart() -> None:
    names = output_names(["A.wav", "a.mp3"], "txt")

    assert len({name.casefold() for name in names}) == 2


def test_a_name_that_is_another_files_whole_name_collides_with_nothing() -> None:
    assert output_names(["a.mp3", "a.mp3.wav", "a.wav"], "srt") == [
        "a.mp3.srt",
        "a.mp3.wav.srt",
        "a.wav.srt",
    ]


def test_a_name_given_twice_is_counted_on() -> None:
    names = Names()

    assert [names.take(name) for name in ("a", "a", "A", "a-2", "b")] == ["a", "a-2", "A-3", "a-2-2", "b"]
