import io

import pytest

from api.idempotency import idempotency_of
from stage_pipeline.errors import StagewaveError
from workers.input_audio import SentBytes
from workers.job_request import parse_request


def fingerprint(fields, audio=None, from_form=False) -> str:
    found = idempotency_of("k", parse_request(fields, from_form=from_form), audio)
    assert found is not None
    return found.fingerprint


def sent(data: bytes, field="file") -> SentBytes:
    return SentBytes(io.BytesIO(data), len(data), field)


def test_without_a_key_there_is_nothing_to_compare():
    assert idempotency_of(None, parse_request({"type": "tts", "text": "a"}, from_form=False), None) is None


def test_the_same_request_has_the_same_fingerprint_however_it_is_written():
    one = fingerprint({"type": "tts", "text": "a", "metadata": {"x": 1, "y": 2}})
    assert fingerprint({"metadata": {"y": 2, "x": 1}, "text": "a", "type": "tts", "seed": 42}) == one
    assert fingerprint({"type": "tts", "text": "b", "metadata": {"x": 1, "y": 2}}) != one


def test_the_bytes_of_the_audio_count_and_not_how_they_came():
    one = fingerprint({"type": "asr"}, sent(b"abc"), from_form=True)
    by_url = fingerprint({"type": "asr", "audio_url": "data:,abc"}, sent(b"abc", "audio_url"))
    assert by_url == one
    assert fingerprint({"type": "asr"}, sent(b"abd"), from_form=True) != one


@pytest.mark.parametrize("key", ["", "a b", "ä", "x" * 256, "a\tb"])
def test_a_key_that_is_no_plain_word_is_refused(key):
    with pytest.raises(StagewaveError) as caught:
        idempotency_of(key, parse_request({"type": "tts", "text": "a"}, from_form=False), None)
    assert caught.value.field == "Idempotency-Key"
