"""``Content-Disposition`` for names that users choose (RFC 6266, RFC 5987)."""

from __future__ import annotations

import unicodedata
from urllib.parse import quote

_LONGEST = 120
"""Characters of a name that are kept: with three-byte characters still below a file system's 255."""
_RESERVED = frozenset('/\\:*?"<>|')


def safe_name(wanted: str, fallback: str, extension: str) -> str:
    """``wanted`` as one plain file name that ends in ``extension``: no path, no control characters."""
    last = wanted.replace("\\", "/").rsplit("/", 1)[-1]
    kept = "".join(c for c in last if c == " " or not (c in _RESERVED or _is_invisible(c)))
    stem = kept.removesuffix(f".{extension}").strip(" .")[: _LONGEST - len(extension) - 1].strip(" .")
    return f"{stem or fallback}.{extension}"


def _is_invisible(character: str) -> bool:
    """Control and format characters, halves of pairs, and every space but the plain one."""
    return unicodedata.category(character)[0] in "CZ"


def content_disposition(name: str, *, download: bool) -> str:
    """The header for a ``safe_name``: an ASCII form for old clients, and the true one."""
    kind = "attachment" if download else "inline"
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._- ()") else "_" for c in name)
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
