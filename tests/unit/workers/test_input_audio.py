import io

import pytest

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.input_audio import SentBytes, named_audio, sent_file
from workers.job import AudioSource
from workers.settings import Settings

SETTINGS = Settings(s3_bucket="speech", s3_input_prefixes=("uploads/", "shared/"), max_upload_bytes=1000)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_x",
        "ftp://example.com/a.wav",
        "/etc/passwd",
        "http://",
        "http:///a.wav",
        "http://user@127.0.0.1/",
        "http://user:pw@example.com/a.wav",
        "https://exa mple.com/",
        "https://example.com/\r\nHost: x",
        "https://example.com\\@127.0.0.1/",
        "http://[::1/",
        "http://example.com:99999/",
        "javascript:alert(1)",
        "concat:a|b",
        "http://127.0.0.1:6379/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://redis:6379/",
        "https://example.com/" + "x" * 9_000,
        "-i",
    ],
)
def test_a_url_that_is_no_public_http_is_refused(url):
    with pytest.raises(StagewaveError) as caught:
        named_audio(url, SETTINGS)
    assert (caught.value.code, caught.value.field) == (ErrorCode.URL_NOT_ALLOWED, "audio_url")


@pytest.mark.parametrize(
    "url",
    [
        "s3://other/uploads/a.wav",
        "s3://speech/inputs/job_1",
        "s3://speech/results/x",
        "s3://speech/uploads/../inputs/job_1",
        "s3://speech/../other-tenant/x",
        "s3://speech/uploads/./a",
        "s3://speech/uploads//a",
        "s3://speech/uploads/",
        "s3://speech/uploads",
        "s3://speech/",
        "s3://speech",
        "s3:speech/uploads/a",
        "s3:/speech/uploads/a",
        "s3://speech/uploads/a\0b",
        "s3://speech/uploads/a\\b",
        "s3://speech/uploads/" + "x" * 1100,
    ],
)
def test_an_object_that_jobs_may_not_name_is_refused_in_the_same_words(url):
    with pytest.raises(StagewaveError) as caught:
        named_audio(url, SETTINGS)
    assert caught.value.message == "this object may not be named"
    assert caught.value.code is ErrorCode.URL_NOT_ALLOWED


def test_what_may_be_named_is_a_source():
    assert named_audio("https://example.com/a.wav?x=1", SETTINGS) == AudioSource(
        "url", url="https://example.com/a.wav?x=1"
    )
    assert named_audio("s3://speech/shared/b.wav", SETTINGS) == AudioSource("s3", key="shared/b.wav")
    key = "shared/two words/会议.wav"
    assert named_audio(f"s3://speech/{key}", SETTINGS) == AudioSource("s3", key=key)
    sent = named_audio("data:,abc", SETTINGS)
    assert isinstance(sent, SentBytes) and sent.size_bytes == 3


def test_an_upload_of_no_bytes_or_of_too_many_is_refused():
    for size, code in ((0, ErrorCode.AUDIO_EMPTY), (1001, ErrorCode.TOO_LARGE)):
        with pytest.raises(StagewaveError) as caught:
            sent_file(io.BytesIO(b"x" * size), "a.wav", SETTINGS)
        assert (caught.value.code, caught.value.field) == (code, "file")


def test_the_digest_of_an_upload_leaves_it_ready_to_be_read():
    sent = sent_file(io.BytesIO(b"abc"), "a.wav", SETTINGS)
    assert sent.sha256().startswith("ba7816bf")
    assert sent.stream.read() == b"abc"
