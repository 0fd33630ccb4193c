import pytest
from flask import Request
from werkzeug.test import EnvironBuilder

from api.byte_range import ByteRange, Unsatisfiable, wanted_range


def asked(header: str | None, condition: str | None = None) -> Request:
    headers = {}
    if header is not None:
        headers["Range"] = header
    if condition is not None:
        headers["If-Range"] = condition
    return Request(EnvironBuilder(headers=headers).get_environ())


@pytest.mark.parametrize(
    ("header", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=90-", 90, 100),
        ("bytes=90-500", 90, 100),
        ("bytes=-10", 90, 100),
        ("bytes=-500", 0, 100),
        ("bytes=99-99", 99, 100),
    ],
)
def test_one_range_is_taken(header, start, stop):
    assert wanted_range(asked(header), 100, "tag") == ByteRange(start, stop, 100)


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_a_range_outside_the_object_cannot_be_satisfied(header):
    with pytest.raises(Unsatisfiable):
        wanted_range(asked(header), 100, "tag")


@pytest.mark.parametrize(
    "header",
    [None, "", "bytes=", "bytes=5-2", "bytes=a-b", "lines=1-2", "bytes=0-1,5-6", "0-5", "bytes=--5"],
)
def test_no_range_or_one_that_makes_no_sense_gives_the_whole(header):
    assert wanted_range(asked(header), 100, "tag") is None


def test_if_range_holds_only_for_the_same_version():
    assert wanted_range(asked("bytes=0-9", '"tag"'), 100, "tag") == ByteRange(0, 10, 100)
    assert wanted_range(asked("bytes=0-9", '"other"'), 100, "tag") is None
    assert wanted_range(asked("bytes=0-9", 'W/"tag"'), 100, "tag") is None
