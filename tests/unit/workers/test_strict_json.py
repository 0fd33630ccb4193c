"""What Python's JSON reader lets through, and a server must not."""

import time

import pytest

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.strict_json import parse_json


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 20_000 + b"]" * 20_000,
        b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
        b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"a": ' + b"9" * 5_000 + b"}",
        b'{"a": 9223372036854775808}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 1}}',
        b'{"a": "\\ud800"}',
        b'{"\\udc00": 1}',
        b'{"type": "tts", "text": "cut of',
        b"",
        b"   ",
        b"\xff\xfe{\x00}\x00",
        b'{"a": "\xe9"}',
        b'{"a": 1} {"b": 2}',
        b"{'a': 1}",
        b'{"a": 1,}',
    ],
)
def test_what_is_no_json_is_refused_with_a_typed_error(body):
    with pytest.raises(StagewaveError) as caught:
        parse_json(body)
    assert caught.value.code is ErrorCode.INVALID_JSON


def test_fifty_megabytes_of_spaces_are_refused_within_a_second():
    body = b" " * 50_000_000
    began = time.monotonic()
    with pytest.raises(StagewaveError):
        parse_json(body)
    assert time.monotonic() - began < 1


def test_a_body_of_millions_of_empty_objects_is_refused_before_it_takes_memory():
    with pytest.raises(StagewaveError) as caught:
        parse_json(b"[" + b"{}," * 1_000_000 + b"{}]")
    assert "too many parts" in caught.value.message


def test_ordinary_json_is_read_as_it_is():
    body = '{"text": "会议 🎧 \\ud83d\\ude00", "n":[1,-2.5,true, null], "b":9223372036854775807}'.encode()
    assert parse_json(body) == {"text": "会议 🎧 😀", "n": [1, -2.5, True, None], "b": 2**63 - 1}


def test_a_byte_order_mark_is_passed_over():
    assert parse_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


def test_the_error_names_the_field_it_is_about_and_shows_none_of_the_body():
    with pytest.raises(StagewaveError) as caught:
        parse_json(b'{"secret-words": }', field="metadata")
    assert caught.value.field == "metadata"
    assert "secret" not in caught.value.message
