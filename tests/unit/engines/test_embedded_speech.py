# ruff: noqa: E501 - the tables have one case a line
"""Text to speech with the embedded engine: what is said, and that it is always the same."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import jiwer
import numpy as np
import pytest

from stage_pipeline.deploy import DeployError
from stage_pipeline.engines.embedded.text import spoken_text
from stage_pipeline.engines.embedded.thinker import EmbeddedThinker
from stage_pipeline.engines.embedded.token2wav import EmbeddedToken2Wav
from stage_pipeline.engines.embedded.tokens import CHUNK_POLICY, END
from stage_pipeline.engines.load import load_token2wav
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import Float32Wave, GenerateRequest, Task, ThinkerDelta
from tests.unit.engines.conftest import deploy_config, heard_at_16k

Clauses = Callable[[str], list[tuple[int, ...]]]

# What is written, and what a person who reads it aloud says.
SENTENCES = [
    ("The meeting starts at 3:45 pm and ends at 5:00 pm.", "the meeting starts at three forty five p m and ends at five p m"),
    ("Dr. Smith paid $42.50 for lunch on Main St.", "doctor smith paid forty two dollars and fifty cents for lunch on main street"),
    ("On 2024-05-06 we received 12,345 boxes.", "on may sixth twenty twenty four we received twelve thousand three hundred forty five boxes"),
    ("She was born on May 6th, 1987, in Boston.", "she was born on may sixth nineteen eighty seven in boston"),
    ("Prices rose by 3.5% to $1.2 million last year.", "prices rose by three point five percent to one point two million dollars last year"),
    ("My number is 555-123-4567.", "my number is five five five one two three four five six seven"),
    ("The train travels 300 km at a speed of 150 km/h.", "the train travels three hundred kilometers at a speed of one hundred fifty kilometers per hour"),
    ("Water boils at 100°C, which is 212°F.", "water boils at one hundred degrees celsius which is two hundred twelve degrees fahrenheit"),
    ("Mr. Jones and Mrs. Brown live at 221 Baker Street.", "mister jones and missus brown live at two hundred twenty one baker street"),
    ("NASA and the BBC reported it in the U.S. on Monday.", "nasa and the bbc reported it in the u s on monday"),
    ("World War II ended in 1945.", "world war two ended in nineteen forty five"),
    ("Add 1/2 cup of sugar and 3/4 cup of milk.", "add one half cup of sugar and three quarters cup of milk"),
    ("He finished 1st, she finished 22nd, and I finished 103rd.", "he finished first she finished twenty second and i finished one hundred third"),
    ("In 1999 the company had 1,250 employees, and in 2010 it had 48.", "in nineteen ninety nine the company had one thousand two hundred fifty employees and in twenty ten it had forty eight"),
    ("This costs £3.20, and that costs €400.", "this costs three pounds and twenty pence and that costs four hundred euros"),
    ("Please open pages 10-12 of chapter 7.", "please open pages ten to twelve of chapter seven"),
    ("The temperature fell to -5 degrees at 6:30 in the morning.", "the temperature fell to minus five degrees at six thirty in the morning"),
    ("Visit www.example.com for details, e.g. prices.", "visit w w w dot example dot com for details for example prices"),
    ("Elizabeth bought 15 apples, 8 plums and 0.75 kg of cherries.", "elizabeth bought fifteen apples eight plums and zero point seven five kilograms of cherries"),
    ("About 70 to 80 people, i.e. 12 percent, voted at 7 o'clock.", "about seventy to eighty people that is twelve percent voted at seven o clock"),
]  # fmt: skip
NUMERALS = frozenset(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen"
    " eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand"
    " million point half"
    " quarters first second third sixth minus".split()
)
LONG = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness. "
    "A second sentence follows. And a third one, which is the last."
)


def words(text: str) -> str:
    """Recognised text as the words that were said, to compare with what should have been."""
    # Whisper writes some times of day with a dot.
    text = re.sub(r"(\d{1,2})\.(\d{2})(?= ?(?:[ap]\.?m|in the morning))", r"\1:\2", text)
    said = spoken_text(text).lower().replace("o'clock", "o clock").replace("'", "")
    return " ".join(re.findall(r"[a-z]+", said))


def say(token2wav: EmbeddedToken2Wav, clauses: list[tuple[int, ...]], seed: int = 42) -> Float32Wave:
    stream = token2wav.open("default", seed)
    waves = [wave for tokens in clauses for wave in stream.feed(tokens, final=False)]
    return np.concatenate([*waves, *stream.feed((), final=True)])


def hear(thinker: EmbeddedThinker, wave: Float32Wave, rate_hz: int) -> str:
    request = GenerateRequest("hear", Task.ASR, audio=heard_at_16k(wave, rate_hz), language="en")
    return "".join(delta.text for delta in thinker.generate(request))


def digest(wave: Float32Wave) -> str:
    return hashlib.sha256(wave.tobytes()).hexdigest()


def test_what_is_said_is_heard_and_each_numeral_is_right(
    thinker: EmbeddedThinker, token2wav: EmbeddedToken2Wav, clauses_of: Clauses
) -> None:
    # A few sentences in each recording: Whisper works on half a minute, however little is said in it.
    groups = [SENTENCES[first : first + 4] for first in range(0, len(SENTENCES), 4)]
    heard = [""] * len(groups)

    def round_trips(first: int) -> None:
        for index in range(first, len(groups), 2):
            gap = np.zeros(token2wav.sample_rate // 2, np.float32)
            waves = [part for text, _ in groups[index] for part in (say(token2wav, clauses_of(text)), gap)]
            heard[index] = words(hear(thinker, np.concatenate(waves), token2wav.sample_rate))

    both = [threading.Thread(target=round_trips, args=(first,)) for first in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()

    expected = [" ".join(said for _, said in group) for group in groups]
    assert jiwer.wer(expected, heard) <= 0.05
    for said, understood in zip(expected, heard, strict=True):
        numerals = [word for word in said.split() if word in NUMERALS]
        assert [word for word in understood.split() if word in NUMERALS] == numerals, understood


def test_mixed_scripts_keep_their_digits(
    thinker: EmbeddedThinker, token2wav: EmbeddedToken2Wav, clauses_of: Clauses
) -> None:
    wave = say(token2wav, clauses_of("订单 12345 于 2024-05-06 ship to Köln"))

    understood = words(hear(thinker, wave, token2wav.sample_rate))

    assert "twelve thousand three hundred forty five" in understood
    assert "twenty twenty four" in understood
    assert "six" in understood


def test_the_first_sound_comes_in_a_small_piece_and_no_sample_clips(
    token2wav: EmbeddedToken2Wav, clauses_of: Clauses
) -> None:
    stream = token2wav.open("default", seed=42)

    pieces = list(stream.feed(clauses_of(LONG)[0], final=False))

    assert 0 < len(pieces[0]) <= 0.3 * token2wav.sample_rate
    assert len(pieces) > 2
    wave = np.concatenate(pieces)
    assert wave.dtype == np.float32
    assert 0.1 < np.abs(wave).max() < 1


def test_clauses_join_without_a_click(token2wav: EmbeddedToken2Wav, clauses_of: Clauses) -> None:
    stream = token2wav.open("default", seed=42)
    clauses = [np.concatenate(list(stream.feed(tokens, final=False))) for tokens in clauses_of(LONG)]

    for before, after in zip(clauses, clauses[1:], strict=False):
        assert np.abs(before[-50:]).max() < 0.01
        assert np.abs(after[:50]).max() < 0.01


def test_the_same_seed_says_the_same_in_another_process(
    engine_cache: Path, token2wav: EmbeddedToken2Wav, clauses_of: Clauses
) -> None:
    clauses = clauses_of("Twice the same, please, and once more. This is the end of it.")
    program = (
        "import sys, hashlib, json, numpy\n"
        "from pathlib import Path\n"
        "from stage_pipeline.engines.embedded.token2wav import EmbeddedToken2Wav\n"
        "stream = EmbeddedToken2Wav(Path(sys.argv[1]), {'default': 'joe'}).open('default', 42)\n"
        "waves = [w for c in json.loads(sys.argv[2]) for w in stream.feed(tuple(c), False)]\n"
        "print(hashlib.sha256(numpy.concatenate(waves).tobytes()).hexdigest())\n"
    )

    other = subprocess.run(
        [sys.executable, "-c", program, str(engine_cache), str([list(clause) for clause in clauses])],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert other.stdout.strip() == digest(say(token2wav, clauses))
    assert digest(say(token2wav, clauses, seed=43)) != digest(say(token2wav, clauses))


def test_eight_streams_at_once_sound_as_each_does_alone(
    token2wav: EmbeddedToken2Wav, clauses_of: Clauses
) -> None:
    texts = [f"This is number {index}." for index in range(8)]
    clauses = [clauses_of(text) for text in texts]
    alone = [digest(say(token2wav, each, seed)) for seed, each in enumerate(clauses)]
    together = [""] * 8

    def one(index: int) -> None:
        together[index] = digest(say(token2wav, clauses[index], seed=index))

    threads = [threading.Thread(target=one, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert together == alone


def test_windows_may_come_in_any_cut(token2wav: EmbeddedToken2Wav, clauses_of: Clauses) -> None:
    clauses = clauses_of(LONG)
    tokens = tuple(token for clause in clauses for token in clause)
    stream = token2wav.open("default", seed=42)

    pieces = [*stream.feed(tokens[:100], final=False), *stream.feed(tokens[100:], final=True)]

    assert digest(np.concatenate(pieces)) == digest(say(token2wav, clauses))


def test_interleaved_streams_of_one_thread_do_not_mix(
    token2wav: EmbeddedToken2Wav, clauses_of: Clauses
) -> None:
    clauses = clauses_of("Here is a sentence that is said twice, at the same time.")
    streams = [token2wav.open("default", seed=42) for _ in range(2)]
    pieces: list[list[Float32Wave]] = [[], []]

    for pair in zip(*(stream.feed(clauses[0], final=True) for stream in streams), strict=True):
        for index, piece in enumerate(pair):
            pieces[index].append(piece)

    assert digest(np.concatenate(pieces[0])) == digest(np.concatenate(pieces[1]))
    assert digest(np.concatenate(pieces[0])) == digest(say(token2wav, clauses))


def test_a_closed_stream_gives_no_more(token2wav: EmbeddedToken2Wav, clauses_of: Clauses) -> None:
    stream = token2wav.open("default", seed=42)
    pieces = stream.feed(clauses_of(LONG)[0], final=True)
    next(pieces)

    stream.close()
    stream.close()

    assert list(pieces) == []


def test_an_empty_final_window_is_silent(token2wav: EmbeddedToken2Wav) -> None:
    assert list(token2wav.open("default", seed=42).feed((), final=True)) == []


def test_tokens_of_another_engine_are_refused(token2wav: EmbeddedToken2Wav) -> None:
    with pytest.raises(StagewaveError) as raised:
        list(token2wav.open("default", seed=42).feed((6000,), final=True))

    assert raised.value.code is ErrorCode.ENGINE_FAILED


@pytest.mark.parametrize("voice", ["nobody", "", "../../etc/passwd", "joe\0"])
def test_an_unknown_voice_is_refused(token2wav: EmbeddedToken2Wav, voice: str) -> None:
    with pytest.raises(StagewaveError) as raised:
        token2wav.open(voice, seed=42)

    assert raised.value.code is ErrorCode.VOICE_UNKNOWN


def test_a_config_with_an_unknown_built_in_voice_does_not_load(engine_cache: Path) -> None:
    with pytest.raises(DeployError, match="voices.narrator"):
        load_token2wav(deploy_config("embedded", voices={"narrator": "jane"}), engine_cache)


# The Thinker's side


def deltas_of(thinker: EmbeddedThinker, text: str, **more: object) -> list[ThinkerDelta]:
    request = GenerateRequest("tts", Task.TTS, text=text, **more)  # type: ignore[arg-type]  # fields by name
    return list(thinker.generate(request))


def tokens_of(deltas: list[ThinkerDelta]) -> tuple[int, ...]:
    return tuple(token for delta in deltas for token in delta.tokens)


def test_each_clause_is_one_window(thinker: EmbeddedThinker) -> None:
    deltas = deltas_of(thinker, LONG)
    tokens = tokens_of(deltas)

    windows = []
    consumed = 0
    while not (windows and windows[-1].final):
        window = CHUNK_POLICY.next_window(tokens, consumed, finished=True)
        assert window is not None
        windows.append(window)
        consumed = window.consumed

    spoken = [delta.tokens for delta in deltas if delta.tokens]
    assert [tokens[window.start : window.stop] for window in windows[:-1]] == spoken
    assert all(clause[-1] == END for clause in spoken)
    assert deltas[-1].finish_reason == "stop"
    assert deltas[-1].usage is not None
    assert deltas[-1].usage.audio_tokens == len(tokens)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.99, 1.0])
def test_a_new_attempt_goes_on_after_the_tokens_that_are_there(
    thinker: EmbeddedThinker, share: float
) -> None:
    whole = tokens_of(deltas_of(thinker, LONG))
    prior = whole[: int(len(whole) * share)]

    deltas = deltas_of(thinker, LONG, prior_tokens=prior)

    assert prior + tokens_of(deltas) == whole
    assert deltas[-1].finish_reason == "stop"


def test_tokens_that_are_not_this_texts_are_no_start(thinker: EmbeddedThinker) -> None:
    with pytest.raises(StagewaveError) as raised:
        deltas_of(thinker, LONG, prior_tokens=(1, 0, 99, 0, 2))

    assert raised.value.code is ErrorCode.ENGINE_FAILED


@pytest.mark.parametrize("text", ["😀🎉", "...!?", "— « » —", "   ", "", "()", "\u200b\ufeff", "♪♫"])
def test_text_without_anything_to_say_is_refused(thinker: EmbeddedThinker, text: str) -> None:
    with pytest.raises(StagewaveError) as raised:
        deltas_of(thinker, text)

    assert raised.value.code is ErrorCode.TEXT_EMPTY
    assert raised.value.field == "text"


def test_text_in_another_script_is_refused_and_another_language_too(thinker: EmbeddedThinker) -> None:
    with pytest.raises(StagewaveError) as script:
        deltas_of(thinker, "你好，世界")
    with pytest.raises(StagewaveError) as language:
        deltas_of(thinker, "Guten Tag", language="de")

    assert script.value.code is language.value.code is ErrorCode.LANGUAGE_UNSUPPORTED
    assert (script.value.field, language.value.field) == ("text", "language")


@pytest.mark.parametrize(
    "text",
    [
        "a" * 3000,
        "qwxz" * 50,
        "x",
        "Zzyzx Krzysztof",
        "NASA " * 50,
        "1" * 500,
        "naïve café",
        "don't",
        "ﬁne ﬂow",
        "A\u0301b",
        "\x00\x07hi",
    ],
)
def test_unusual_text_makes_tokens(thinker: EmbeddedThinker, text: str) -> None:
    tokens = tokens_of(deltas_of(thinker, text))

    assert tokens[-1] == END
    assert max(tokens) <= 256


def test_speech_ends_at_the_limit_and_says_so(thinker: EmbeddedThinker) -> None:
    deltas = deltas_of(thinker, LONG * 3, sampling={"max_tokens": 500})
    tokens = tokens_of(deltas)

    assert deltas[-1].finish_reason == "length"
    assert 400 < len(tokens) <= 500
    assert tokens[-1] == END
    assert tokens == tokens_of(deltas_of(thinker, LONG * 3))[: len(tokens) - 1] + (END,)


def test_an_abort_ends_speech_after_the_clause(thinker: EmbeddedThinker) -> None:
    deltas = thinker.generate(GenerateRequest("to-abort", Task.TTS, text=LONG * 20))
    next(deltas)

    thinker.abort("to-abort")
    thinker.abort("unknown")

    assert list(deltas) == []
