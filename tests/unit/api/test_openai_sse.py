import io
import json

import numpy as np
import soundfile

from api.openai_sse import encoded, frame, with_heartbeats
from api.spoken import Pcm

RATE_HZ = 24_000


def test_a_comment_comes_where_nothing_else_does_for_fifteen_seconds():
    now = [0.0]

    def frames():
        for at_s, data in (
            (0, b"a"),
            (2, None),
            (14, None),
            (16, None),
            (29, None),
            (31, None),
            (32, b"b"),
        ):
            now[0] = at_s
            yield data

    beat = b": still here\n\n"
    assert list(with_heartbeats(frames(), clock=lambda: now[0])) == [b"a", beat, beat, b"b"]


def test_an_event_is_one_line_whatever_is_in_it():
    data = {"delta": "one\ntwo\u2028three\u0085four"}
    line = frame(data)
    assert line.startswith(b"data: ") and line.endswith(b"\n\n") and line.isascii()
    assert len(line.decode().splitlines()) == 2
    assert json.loads(line[6:]) == data


def test_audio_is_encoded_as_it_comes_and_ends_with_what_the_codec_held_back():
    pcm = (np.sin(np.arange(RATE_HZ) / 20) * 8000).astype("<i2").tobytes()
    halves = [Pcm(RATE_HZ, pcm[:RATE_HZ]), None, Pcm(RATE_HZ, pcm[RATE_HZ:])]
    blocks = list(encoded(iter(halves), "wav"))
    assert blocks[1] is None and b"".join(block or b"" for block in blocks)[44:] == pcm
    flac = b"".join(block or b"" for block in encoded(iter(halves), "flac"))
    assert soundfile.info(io.BytesIO(flac)).samplerate == RATE_HZ


def test_no_audio_is_no_bytes():
    assert list(encoded(iter([None]), "mp3")) == [None, b""]
