import base64

import pytest

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.data_url import decode_data_url

SOUND = bytes(range(256)) * 3


@pytest.mark.parametrize(
    "url",
    [
        "data:audio/wav;base64," + base64.b64encode(SOUND).decode(),
        "data:;base64," + base64.b64encode(SOUND).decode(),
        "data:audio/wav;codecs=1;BASE64," + base64.b64encode(SOUND).decode().rstrip("="),
        "data:audio/wav;base64," + base64.b64encode(SOUND).decode().replace("+", "%2B").replace("/", "%2F"),
        "data:audio/wav;base64," + base64.encodebytes(SOUND).decode(),
        "data:audio/wav," + "".join(f"%{byte:02x}" for byte in SOUND),
    ],
)
def test_every_way_of_writing_a_data_url_gives_the_same_bytes(url):
    assert decode_data_url(url, 10_000) == SOUND


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("data:audio/wav;base64", ErrorCode.INVALID_REQUEST),
        ("data:" + "x" * 5_000 + ",abc", ErrorCode.INVALID_REQUEST),
        ("data:audio/wav;base64,!!!!", ErrorCode.INVALID_REQUEST),
        ("data:audio/wav;base64,ä===", ErrorCode.INVALID_REQUEST),
        ("data:audio/wav;base64,", ErrorCode.AUDIO_EMPTY),
        ("data:,", ErrorCode.AUDIO_EMPTY),
        ("data:audio/wav;base64," + "AAAA" * 10_000, ErrorCode.TOO_LARGE),
    ],
)
def test_what_cannot_be_used_is_refused_and_the_field_named(url, code):
    with pytest.raises(StagewaveError) as caught:
        decode_data_url(url, 10_000)
    assert caught.value.code is code
    assert caught.value.field == "audio_url"
