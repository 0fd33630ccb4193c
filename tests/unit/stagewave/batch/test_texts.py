"""Tables of texts, as editors and spreadsheets write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stagewave.batch.item import Failure, Item
from stagewave.batch.texts import Texts, failed_line
from stagewave.errors import WrongInput


def read(path: Path, content: bytes) -> list[tuple[str, object]]:
    """Each line's output name and fields, or its code and source."""
    path.write_bytes(content)
    told: list[tuple[str, object]] = []
    for found in Texts(path, path.parent / "out", "wav"):
        if isinstance(found, Item):
            told.append((found.output.name, found.fields))
        elif isinstance(found, Failure):
            told.append((found.code, found.source))
    return told


def test_each_line_of_text_is_numbered_as_an_editor_numbers_it(tmp_path: Path) -> None:
    for ends in (b"\n", b"\r\n"):
        content = b"\xef\xbb\xbf" + ends.join((b"one", b"", b"  two ", b"three"))

        assert read(tmp_path / "l.txt", content) == [
            ("000001.wav", {"text": "one"}),
            ("000003.wav", {"text": "two"}),
            ("000004.wav", {"text": "three"}),
        ]


def test_a_table_of_a_spreadsheet_is_read(tmp_path: Path) -> None:
    content = '\ufeffId,Text,voice,seed\r\nhello,"a ""quoted"", one",,7\r\n\r\n,"two\r\nlines",slow,\r\n'

    assert read(tmp_path / "l.csv", content.encode()) == [
        ("hello.wav", {"text": 'a "quoted", one', "seed": 7}),
        ("000004.wav", {"text": "two\r\nlines", "voice": "slow"}),
    ]


def test_a_line_that_is_none_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    content = b'id,text\na,one\nb,caf\xe9\nc,"x"y\nd,two,three\n../e,four\nf,five\ng,"never ended\n'

    assert read(tmp_path / "l.csv", content) == [
        ("a.wav", {"text": "one"}),
        ("line_unreadable", "l.csv:3"),
        ("line_unreadable", "l.csv:4"),
        ("line_unreadable", "l.csv:5"),
        ("name_not_allowed", "l.csv:6"),
        ("f.wav", {"text": "five"}),
        ("line_unreadable", "l.csv:8"),
    ]


def test_lines_of_json_set_any_field_of_a_job(tmp_path: Path) -> None:
    lines = [
        b'{"id": 7, "text": "one", "metadata": {"a": 1}}',
        b'{"text": "half',
        b"[]",
        b'{"text": "\\ud800"}',
        b'{"text": NaN}',
        b"\xff\xfe",
        b'{"type": "asr", "audio_url": "https://example.com/a.wav"}',
        b"[" * 100_000,
        b'{"id": "..", "text": "x"}',
        b'{"id": "' + b"n" * 300 + b'", "text": "x"}',
    ]

    told = read(tmp_path / "l.jsonl", b"\n".join(lines))

    assert told[0] == ("7.wav", {"text": "one", "metadata": {"a": 1}})
    assert [code for code, _ in told[1:8]] == ["line_unreadable"] * 7
    assert [code for code, _ in told[8:]] == ["name_not_allowed"] * 2


def test_ids_that_are_there_twice_have_an_output_each(tmp_path: Path) -> None:
    told = read(tmp_path / "l.csv", b"id,text\na,one\na,one\n")

    assert [name for name, _ in told] == ["a.wav", "a-2.wav"]


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("l.txt", "one".encode("utf-16"), "UTF-16"),
        ("l.csv", b"name,text\na,b\n", "name"),
        ("l.csv", b"id,words\na,b\n", "text"),
        ("l.csv", b"text,text\na,b\n", "text"),
        ("l.csv", b"", "text"),
        ("l.csv", b"text,\xff\n", "UTF-8"),
    ],
)
def test_a_file_that_is_no_table_is_refused_before_anything_is_made(
    tmp_path: Path, name: str, content: bytes, word: str
) -> None:
    with pytest.raises(WrongInput, match=f"line 1.*{word}"):
        read(tmp_path / name, content)


def test_what_failed_can_be_fed_back(tmp_path: Path) -> None:
    texts = Texts(_written(tmp_path / "l.csv", b"id,text,voice\na,one,slow\nb,\xff\n"), tmp_path, "wav")
    item, unreadable = texts
    assert isinstance(item, Item) and isinstance(unreadable, Failure)
    failures = [Failure(item.source, "engine_failed", "no", item), unreadable]
    lines = [
        json.dumps(failed_line(f) | {"error": {"code": f.code, "message": f.message}}) for f in failures
    ]

    again = list(Texts(_written(tmp_path / "failures.jsonl", "\n".join(lines).encode()), tmp_path, "wav"))

    assert isinstance(again[0], Item) and isinstance(again[1], Failure)
    assert (again[0].output, again[0].fields) == (item.output, item.fields)
    assert (again[1].source, again[1].code) == ("l.csv:3", "line_unreadable")


def test_what_failed_of_another_command_is_refused_and_not_half_read(tmp_path: Path) -> None:
    line = b'{"source": "/rec/a.wav", "output": "/out/a.srt", "tag": "", "error": {"code": "not_audio"}}'

    with pytest.raises(WrongInput, match=r"line 1 of failures\.jsonl is a failure of batch asr"):
        read(tmp_path / "failures.jsonl", line)


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
