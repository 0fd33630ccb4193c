"""``data:`` URLs (RFC 2397): audio inside the request itself."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import unquote_to_bytes

from stage_pipeline.errors import ErrorCode, StagewaveError

_FIELD = "audio_url"
_LONGEST_HEADER = 1024


def decode_data_url(url: str, limit_bytes: int) -> bytes:
    """The bytes of ``data:[<type>][;base64],<data>``; raises ``StagewaveError`` naming ``audio_url``."""
    header, comma, payload = url[5 : 5 + _LONGEST_HEADER].partition(",")
    if not comma:
        raise _malformed("it has no comma between its type and its data")
    payload = url[5 + len(header) + 1 :]
    if header.lower().split(";")[-1].strip() == "base64":
        data = _from_base64(payload)
    else:
        data = unquote_to_bytes(payload)
    if len(data) > limit_bytes:
        raise StagewaveError(
            ErrorCode.TOO_LARGE, f"audio may have {limit_bytes} bytes at most", field=_FIELD
        )
    if not data:
        raise StagewaveError(ErrorCode.AUDIO_EMPTY, "the data: URL holds no bytes", field=_FIELD)
    return data


def _from_base64(payload: str) -> bytes:
    if "%" in payload:  # a form or a browser may have escaped + / =
        payload = unquote_to_bytes(payload).decode("latin-1")
    if any(space in payload for space in " \r\n\t"):
        payload = "".join(payload.split())
    try:
        return base64.b64decode(payload + "=" * (-len(payload) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise _malformed("its data is not base64") from None


def _malformed(why: str) -> StagewaveError:
    return StagewaveError(ErrorCode.INVALID_REQUEST, f"the data: URL cannot be read: {why}", field=_FIELD)
