from __future__ import annotations

import json
import math

import numpy as np

from stage_pipeline.audio.transcript import segments_from_json, to_json, to_srt, to_text, to_vtt
from stage_pipeline.stages import Segment, Word

TALE = (
    Segment("It was the best of times,", 0.0, 1.5),
    Segment(" it was the worst of times.", 1.5, 3.0625),
)


def test_text_has_a_line_for_each_segment() -> None:
    assert to_text(TALE) == "It was the best of times,\nit was the worst of times.\n"


def test_srt_numbers_its_cues_and_has_commas_in_its_times() -> None:
    assert to_srt(TALE) == (
        "1\n00:00:00,000 --> 00:00:01,500\nIt was the best of times,\n\n"
        "2\n00:00:01,500 --> 00:00:03,062\nit was the worst of times.\n\n"
    )


def test_vtt_has_a_head_and_points_in_its_times() -> None:
    assert to_vtt(TALE) == (
        "WEBVTT\n\n"
        "00:00:00.000 --> 00:00:01.500\nIt was the best of times,\n\n"
        "00:00:01.500 --> 00:00:03.062\nit was the worst of times.\n\n"
    )


def test_no_segments_make_valid_files_with_nothing_in_them() -> None:
    assert to_text(()) == ""
    assert to_srt(()) == ""
    assert to_vtt(()) == "WEBVTT\n\n"
    assert to_json((), text="", language=None, duration_s=10.0)["segments"] == []


def test_times_go_on_after_an_hour_and_after_a_hundred() -> None:
    late = (Segment("late", 3599.9996, 3661.5), Segment("later", 100 * 3600 + 59.999, 100 * 3600 + 60))
    assert "01:00:00,000 --> 01:01:01,500" in to_srt(late)
    assert "100:00:59.999 --> 100:01:00.000" in to_vtt(late)


def test_an_arrow_in_the_text_does_not_make_a_cue() -> None:
    for text in ("a --> b", "a ---> b", "a ----> b", "00:00:01.000 --> 00:00:02.000"):
        segments = (Segment(text, 0, 1),)
        assert to_srt(segments).count("-->") == 1
        assert to_vtt(segments).count("-->") == 1


def test_markup_in_the_text_is_text_in_vtt() -> None:
    assert "a &lt;b&gt; &amp;lt; c" in to_vtt((Segment("a <b> &lt; c", 0, 1),))


def test_line_breaks_and_control_characters_do_not_end_a_cue() -> None:
    segments = (Segment("one\n\n2\r\n00:00:01,000\x00\u2028\x0btwo", 0, 1),)
    assert to_srt(segments).splitlines()[2:] == ["one 2 00:00:01,000 two", ""]
    assert to_vtt(segments).count("\n\n") == 2
    assert to_text(segments).count("\n") == 1


def test_a_segment_without_text_is_no_cue() -> None:
    segments = (Segment("  ", 0, 1), Segment("words", 1, 2))
    assert to_srt(segments).startswith("1\n00:00:01,000")
    assert to_text(segments) == "words\n"


def test_a_cue_ends_after_it_starts_whatever_the_engine_says() -> None:
    segments = (
        Segment("a", 2, 2),
        Segment("b", 2, 1),
        Segment("c", -1, math.nan),
        Segment("d", math.inf, 1),
    )
    assert to_vtt(segments).splitlines()[2::3] == [
        "00:00:02.000 --> 00:00:02.001",
        "00:00:02.000 --> 00:00:02.001",
        "00:00:00.000 --> 00:00:00.001",
        "00:00:00.000 --> 00:00:01.000",
    ]


def test_the_json_object_gives_the_segments_back() -> None:
    segments = (Segment("Köln 会议", 0.5, 1.25, (Word("Köln", 0.5, 0.75, 0.875),)), *TALE)
    transcript = to_json(segments, text="Köln 会议", source_text="", language="de", duration_s=3.0)
    assert list(transcript) == ["text", "source_text", "language", "duration_s", "segments"]
    assert transcript["segments"][0] == {
        "text": "Köln 会议",
        "start_s": 0.5,
        "end_s": 1.25,
        "words": [{"text": "Köln", "start_s": 0.5, "end_s": 0.75, "probability": 0.875}],
    }
    assert segments_from_json(json.loads(json.dumps(transcript))) == segments


def test_numbers_of_numpy_and_no_numbers_become_json_numbers() -> None:
    word = Word("a", np.float32(0.5), np.float64(1), np.float32(np.nan))  # type: ignore[arg-type]  # as engines do
    segment = Segment("a", np.float32(0.5), np.int64(1), (word,))  # type: ignore[arg-type]  # as engines do
    transcript = to_json((segment,), text="a", language="en", duration_s=np.float32(1.5))  # type: ignore[arg-type]
    assert json.loads(json.dumps(transcript, allow_nan=False))["segments"] == [
        {
            "text": "a",
            "start_s": 0.5,
            "end_s": 1.0,
            "words": [{"text": "a", "start_s": 0.5, "end_s": 1.0, "probability": 0.0}],
        }
    ]
