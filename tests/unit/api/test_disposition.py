import pytest

from api.disposition import content_disposition, safe_name

HOSTILE = [
    "a\r\nSet-Cookie: x=1.wav",
    "../../etc/passwd",
    "..\\..\\windows\\system32",
    "/absolute",
    'quote".wav',
    "nul\0byte",
    "会议记录.wav",
    "x" * 300,
    "会" * 300,
    "....",
    "",
    "  ",
    "\u202egpj.exe",
    "half \ud800 pair",
    "%0d%0aX: y",
    "semi;colon=a",
]


@pytest.mark.parametrize("wanted", HOSTILE)
def test_a_hostile_name_gives_one_plain_header_and_one_plain_file_name(wanted):
    name = safe_name(wanted, "job_1", "wav")
    header = content_disposition(name, download=True)
    assert name.endswith(".wav")
    assert not set(name) & set('/\\:"\0\r\n\u202e')
    assert len(name) <= 120 and not name.startswith(".")
    assert header.isascii() and header.isprintable()
    assert header.count('"') == 2


def test_a_name_of_another_script_stays_readable():
    assert safe_name("会议记录.wav", "job_1", "wav") == "会议记录.wav"
    header = content_disposition("会议记录.wav", download=False)
    assert header.startswith("inline; ")
    assert "filename*=UTF-8''%E4%BC%9A%E8%AE%AE%E8%AE%B0%E5%BD%95.wav" in header


def test_the_extension_is_that_of_the_audio():
    assert safe_name("talk", "job_1", "mp3") == "talk.mp3"
    assert safe_name("talk.wav", "job_1", "mp3") == "talk.wav.mp3"
    assert safe_name("...", "job_1", "mp3") == "job_1.mp3"
