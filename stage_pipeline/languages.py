"""Names of languages, as requests give them."""

from __future__ import annotations


def base_language(code: str | None) -> str | None:
    """``en`` of ``en-US`` and of ``en_US``; None where no language was named."""
    return None if code is None else code.replace("_", "-").split("-")[0].strip().lower()
