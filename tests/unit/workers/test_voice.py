"""Names of voices are data: what may be one, and where its objects lie."""

import unicodedata

import pytest

from workers.object_store import _OWN_KEY
from workers.voice import (
    clean_name,
    features_key,
    is_voice_id,
    name_digest,
    new_voice_id,
    prompt_key,
    voice_of_key,
)


@pytest.mark.parametrize(
    "name",
    [
        "anna",
        "Anna 2",
        "a.b-c_d",
        "陈小姐",
        "Ænne",
        "अनीता",
        "7",
        "x" * 64,
        "Zoe\u0308",
    ],
)
def test_letters_and_digits_of_any_script_are_a_name(name):
    assert clean_name(name) == unicodedata.normalize("NFC", name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        " anna",
        "anna ",
        "anna.",
        ".",
        "..",
        ".anna",
        "-x",
        "../../etc/passwd",
        "..%2f..",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "nul\0",
        "a\r\nSet-Cookie: x=1",
        "a\tb",
        "a\u202eb",
        "a\u200bb",
        'quo"te',
        "😀",
        "x" * 65,
        "x" * 300,
    ],
)
def test_what_could_be_taken_for_a_path_or_a_header_is_no_name(name):
    assert clean_name(name) is None


def test_two_spellings_of_one_name_are_one_name():
    composed, decomposed = "Zo\u00eb", "Zoe\u0308"
    assert clean_name(composed) == clean_name(decomposed)
    assert name_digest("m", composed) == name_digest("m", decomposed)
    assert name_digest("m", "anna") != name_digest("m2", "anna")


def test_keys_hold_the_id_and_nothing_of_the_name():
    voice_id = new_voice_id()
    assert is_voice_id(voice_id) and not is_voice_id("voice_../../x") and not is_voice_id(voice_id.lower())
    for key in (prompt_key(voice_id), features_key(voice_id, "ab12")):
        assert _OWN_KEY.fullmatch(key)
        assert voice_of_key(key) == voice_id
    assert voice_of_key("results/job/1.wav") is None
