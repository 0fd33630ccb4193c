"""Lines out of a file in a real object store, however it was written."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.batch_lines import MAX_LINE_BYTES, Line, LineReader
from workers.object_store import ObjectStore

KEY = "test/lines"
MEGABYTE = 1024 * 1024


def read(objects: ObjectStore, data: bytes, line: int = 0, offset: int = 0) -> list[Line]:
    objects.put_bytes(KEY, data, "application/jsonl")
    return list(walk(LineReader(objects, KEY, len(data), line=line, offset=offset)))


def walk(reader: LineReader) -> Iterator[Line]:
    while (line := reader.peek()) is not None:
        yield line
        reader.go_on()


@pytest.mark.parametrize(
    "data",
    [
        b"a\nb\n\nc\n",
        b"a\nb\n\nc",
        b"a\r\nb\r\n\r\nc\r\n",
        b"\xef\xbb\xbfa\nb\n \t\nc\n",
        b"\xef\xbb\xbfa\r\nb\r\n\r\nc",
    ],
)
def test_marks_and_line_ends_of_any_editor_are_no_part_of_a_line(objects: ObjectStore, data: bytes) -> None:
    lines = read(objects, data)
    assert [line.data.strip() for line in lines] == [b"a", b"b", b"", b"c"]
    assert [line.number for line in lines] == [1, 2, 3, 4]
    assert [line.blank for line in lines] == [False, False, True, False]
    assert lines[-1].end == len(data)


def test_reading_goes_on_at_any_line_as_if_it_had_never_stopped(objects: ObjectStore) -> None:
    data = b"\xef\xbb\xbf" + b"".join(b"%d" % n * (n % 7) + b"\r\n" for n in range(40)) + b"half"
    whole = read(objects, data)
    assert len(whole) == 41
    for line in whole[:-1]:
        assert read(objects, data, line.number, line.end) == whole[line.number :]


def test_a_file_of_nothing_has_no_lines(objects: ObjectStore) -> None:
    assert read(objects, b"") == []
    assert [line.blank for line in read(objects, b"\xef\xbb\xbf\n\n")] == [True, True]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_another_encoding_is_refused_as_such(objects: ObjectStore, encoding: str) -> None:
    with pytest.raises(StagewaveError) as caught:
        read(objects, '{"type": "tts"}\n'.encode(encoding))
    assert caught.value.code is ErrorCode.UNSUPPORTED_MEDIA_TYPE


def test_a_huge_line_is_passed_over_and_never_held(objects: ObjectStore) -> None:
    size = 5 * MAX_LINE_BYTES
    objects.put_bytes(KEY, b"before\n" + b"x" * size + b"\nafter", "application/jsonl")
    reader = LineReader(objects, KEY, size + 13)
    reader.peek()
    tracemalloc.start()
    lines = list(walk(reader))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(line.number, line.data) for line in lines] == [(1, b"before"), (2, None), (3, b"after")]
    assert lines[1].end == size + 8
    assert peak < 3 * MAX_LINE_BYTES


def test_a_line_may_be_as_long_as_the_limit(objects: ObjectStore) -> None:
    lines = read(objects, b"x" * MAX_LINE_BYTES + b"\r\n" + b"y" * (MAX_LINE_BYTES + 1) + b"\n")
    assert len(lines[0].data or b"") == MAX_LINE_BYTES
    assert lines[1].data is None


def test_a_file_that_was_changed_while_it_was_read_is_noticed(objects: ObjectStore) -> None:
    objects.put_bytes(KEY, b"x\n" * MEGABYTE, "application/jsonl")
    reader = LineReader(objects, KEY, 2 * MEGABYTE)
    reader.peek()
    objects.put_bytes(KEY, b"x\n" * (MEGABYTE + 1), "application/jsonl")
    with pytest.raises(StagewaveError) as caught:
        list(walk(reader))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    objects.delete(KEY)
    with pytest.raises(StagewaveError) as caught:
        list(walk(LineReader(objects, KEY, 2 * MEGABYTE)))
    assert caught.value.code is ErrorCode.NOT_FOUND
