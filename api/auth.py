"""Bearer keys on everything under /v1, when the server has any.

Health, metrics and the description of the API stay open: probes and scrapers carry no key, and what they
show is numbers.
"""

from __future__ import annotations

import hashlib
import hmac

from flask import Flask, request

from stage_pipeline.errors import ErrorCode, StagewaveError


def register(app: Flask, api_keys: tuple[str, ...]) -> None:
    if not api_keys:
        return
    digests = tuple(_digest(key) for key in api_keys)

    def check() -> None:
        if request.path != "/v1" and not request.path.startswith("/v1/"):
            return
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        offered = _digest(given.strip())
        # Digests of equal length, and every one compared: time tells neither length nor which key.
        matches = [hmac.compare_digest(offered, digest) for digest in digests]
        if scheme.lower() != "bearer" or not any(matches):
            raise StagewaveError(
                ErrorCode.UNAUTHORIZED, "a valid key is needed: Authorization: Bearer <key>"
            )

    app.before_request(check)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
