import pytest

from api.prefer import preferred_wait_s


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("wait=10", 10),
        ("respond-async, wait=10", 10),
        ("WAIT = 7", 7),
        ('wait="3"', 3),
        ("wait=5, wait=9", 5),
        ("wait=5;foo=bar", 5),
        ("", None),
        ("respond-async", None),
        ("wait", None),
        ("wait=-1", None),
        ("wait=1.5", None),
        ("wait=1e3", None),
        ("wait=99999999999999999999", None),
    ],
)
def test_the_first_wait_counts_and_what_makes_no_sense_does_not(header, wait_s):
    assert preferred_wait_s(header) == wait_s
