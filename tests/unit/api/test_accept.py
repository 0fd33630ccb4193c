"""The audio format that a client accepts."""

import pytest
from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header

from api.accept import accepted_format


@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("", "wav"),
        ("*/*", "wav"),
        ("application/octet-stream", "wav"),
        ("audio/*;q=0.1", "wav"),
        ("audio/mpeg", "mp3"),
        ("AUDIO/MPEG", "mp3"),
        ("audio/ogg; codecs=opus", "opus"),
        ("audio/x-wav", "wav"),
        ("audio/flac, audio/wav;q=0.5", "wav"),
        ("audio/flac;q=0.5, audio/ogg", "opus"),
        ("audio/wav;q=0, audio/*", None),
        ("audio/wav;q=0, audio/mpeg, */*", "mp3"),
        ("text/html", None),
        ("text/html, */*;q=0.8", "wav"),
        ("audio/mpeg;q=0", None),
        ("image/webp", None),
        (
            "audio/webm,audio/ogg,audio/wav,audio/*;q=0.9,application/ogg;q=0.7,video/*;q=0.6,*/*;q=0.5",
            "wav",
        ),
    ],
)
def test_what_is_there_goes_first_then_what_the_client_likes_best(header, form):
    assert accepted_format(parse_accept_header(header, MIMEAccept), "wav") == form
