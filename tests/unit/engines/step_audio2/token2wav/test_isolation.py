"""A stream gives what it gives alone, whatever else runs and in whatever order."""

import threading
import time
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import soundfile
import torch

from stage_pipeline.chunking import FixedWindows
from stage_pipeline.engines.step_audio2 import urgency
from stage_pipeline.engines.step_audio2.token2wav.flow import VoiceFeatures
from stage_pipeline.engines.step_audio2.token2wav.noise import Noise
from stage_pipeline.engines.step_audio2.token2wav.stream_decoder import StreamDecoder, StreamWindow
from stage_pipeline.engines.step_audio2.token2wav.whole_decoder import Utterance, WholeDecoder

# What end to end may differ by: sums are taken in another order in another batch.
TOLERANCE = 5e-5
POLICY = FixedWindows()


def tokens_of(seed, count):
    return tuple(np.random.RandomState(seed).randint(0, 6561, count).tolist())


def cut(tokens):
    consumed, final = 0, False
    while not final:
        window = POLICY.next_window(tokens, consumed, True)
        consumed, final = window.consumed, window.final
        yield tokens[window.start : window.stop], final


@pytest.fixture(scope="module")
def voices(flow, voice):
    """Four, of different lengths and speakers."""
    made = []
    for tokens, shift in ((76, 0), (50, 3), (63, 11), (70, 29)):
        mel = voice.mel.roll(shift, 0)[: 2 * tokens]
        made.append(VoiceFeatures(voice.tokens.roll(shift)[:tokens], mel, voice.embedding.roll(shift)))
    return [flow.prompt_caches(one) for one in made]


JOBS = [(voice, seed, count) for seed, (voice, count) in enumerate(
    [(0, 53), (1, 61), (2, 28), (3, 130), (0, 20), (1, 53), (2, 33), (3, 26)]
)]  # fmt: skip


@pytest.fixture(scope="module")
def alone(flow, vocoder, voices):
    decoder = StreamDecoder(flow, vocoder, Noise(), 1, 152, graphs=False)
    waves = []
    for voice, seed, count in JOBS:
        stream = decoder.begin(voices[voice])
        pieces = [
            decoder.step([StreamWindow(stream, seed, fed, last)])[0]
            for fed, last in cut(tokens_of(seed, count))
        ]
        decoder.end(stream)
        waves.append(np.concatenate(pieces))
        assert len(waves[-1]) == 960 * count
    return waves


def test_eight_interleaved_streams_of_different_voices_each_give_what_they_give_alone(
    flow, vocoder, voices, alone
):
    decoder = StreamDecoder(flow, vocoder, Noise(), len(JOBS), 152, graphs=False)
    draw = np.random.RandomState(1)
    streams = [decoder.begin(voices[voice]) for voice, _, _ in JOBS]
    left = {index: list(cut(tokens_of(seed, count))) for index, (_, seed, count) in enumerate(JOBS)}
    pieces = {index: [] for index in left}
    while left:
        # Any number of them, in any order.
        together = draw.permutation(sorted(left))[: draw.randint(1, len(left) + 1)].tolist()
        fed = [StreamWindow(streams[index], JOBS[index][1], *left[index].pop(0)) for index in together]
        for index, wave in zip(together, decoder.step(fed), strict=True):
            pieces[index].append(wave)
        left = {index: windows for index, windows in left.items() if windows}
    for index, wave in enumerate(alone):
        assert np.abs(np.concatenate(pieces[index]) - wave).max() < TOLERANCE


def test_whole_utterances_of_different_voices_each_give_what_they_give_alone(flow, vocoder, voices):
    decoder = WholeDecoder(flow, vocoder, Noise())
    jobs = [
        Utterance(voices[voice].features, seed, tokens_of(seed, count)) for voice, seed, count in JOBS[:3]
    ]
    for job, wave in zip(jobs, decoder.voice(jobs), strict=True):
        assert len(wave) == 960 * len(job.tokens)
        assert np.abs(wave - decoder.voice([job])[0]).max() < TOLERANCE


def test_a_slot_keeps_nothing_of_the_stream_before(flow, vocoder, voices, alone):
    decoder = StreamDecoder(flow, vocoder, Noise(), 1, 152, graphs=False)
    for index in (3, 1):  # a longer prompt first
        voice, seed, count = JOBS[index]
        stream = decoder.begin(voices[voice])
        pieces = [
            decoder.step([StreamWindow(stream, seed, fed, last)])[0]
            for fed, last in cut(tokens_of(seed, count))
        ]
        decoder.end(stream)
        assert np.abs(np.concatenate(pieces) - alone[index]).max() < TOLERANCE


def test_threads_that_share_an_engine_get_what_they_get_alone(engine, goldens, tmp_path):
    samples, rate_hz = soundfile.read(goldens / "prompt_22k_stereo.wav")
    soundfile.write(tmp_path / "other.wav", samples[: round(2.4 * rate_hz), ::-1], rate_hz)
    voices = {"default": str(goldens / "prompt_22k_stereo.wav"), "other": str(tmp_path / "other.wav")}
    # Fewer slots than streams: some wait for one.
    shared = engine(voices, streams=3)
    jobs = [("default", 5, 60, True), ("other", 6, 85, True), ("other", 5, 60, True),
            ("default", 7, 40, False), ("other", 8, 50, False), ("default", 9, 33, True),
            ("other", 10, 30, True)]  # fmt: skip

    def run(voice, seed, count, live):
        stream = shared.open(voice, seed)
        windows = cut(tokens_of(seed, count)) if live else [(tokens_of(seed, count), True)]
        pieces = [piece for fed, last in windows for piece in stream.feed(fed, last)]
        stream.close()
        return np.concatenate(pieces)

    expected = [run(*job) for job in jobs]
    got = {}
    threads = [
        threading.Thread(target=lambda at=at: got.update({at: run(*jobs[at])})) for at in range(len(jobs))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for at, wave in enumerate(expected):
        assert np.abs(got[at] - wave).max() < TOLERANCE
    assert np.abs(expected[0] - expected[2]).max() > 0.001  # another voice sounds different


def test_a_window_does_not_wait_for_whole_utterances(engine, goldens):
    shared = engine({"default": str(goldens / "prompt_22k_stereo.wav")})
    whole = threading.Thread(
        target=lambda: list(shared.open("default", 1).feed(tokens_of(1, 2000), True)), daemon=True
    )
    whole.start()
    time.sleep(0.1)  # it has begun
    stream = shared.open("default", 2)
    pieces = list(stream.feed(tokens_of(2, POLICY.size + POLICY.lookahead), False))
    assert sum(map(len, pieces)) > 0 and whole.is_alive()
    stream.close()
    whole.join(120)


@pytest.fixture
def stops_for_long(monkeypatch):
    """What goes on has been let go on."""
    monkeypatch.setattr(urgency, "LONGEST_S", 60.0)
    monkeypatch.setattr(urgency, "_STALE_S", 60.0)


@pytest.mark.parametrize(
    ("beside_thinker", "background", "stops"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_what_nobody_waits_for_stops_while_the_thinker_makes_tokens_on_the_same_gpu(
    engine, stops_for_long, beside_thinker, background, stops
):
    shared = engine(beside_thinker=beside_thinker)
    with ThreadPoolExecutor(1) as threads:
        live = shared.open("default", 2)
        whole = threads.submit(
            lambda: list(shared.open("default", 1, background=background).feed(tokens_of(1, 5), True))
        )
        if stops:
            done, _ = futures.wait([whole], timeout=0.5)
            assert not done
            assert sum(map(len, live.feed(tokens_of(2, POLICY.size + POLICY.lookahead), False))) > 0
        # Its first sound is there, and what comes next has time.
        assert sum(map(len, whole.result(30)))
        live.close()


def test_what_nobody_waits_for_goes_on_when_somebody_waits_behind_it(engine, stops_for_long):
    shared = engine(beside_thinker=True)
    with ThreadPoolExecutor(2) as threads:
        live = shared.open("default", 2)
        wholes = [
            threads.submit(
                lambda background=background: list(
                    shared.open("default", 1, background=background).feed(tokens_of(1, 5), True)
                )
            )
            for background in (True, False)
        ]
        assert all(sum(map(len, whole.result(30))) for whole in wholes)
        live.close()


def test_the_seed_and_the_place_alone_decide_the_noise():
    def drawn(seed, window, samples=100):
        out = torch.empty(samples, 9)
        Noise().harmonics(seed, window, out)
        return out

    assert torch.equal(drawn(42, 3), drawn(42, 3))
    assert not torch.equal(drawn(42, 3), drawn(42, 4))
    assert not torch.equal(drawn(42, 3), drawn(43, 3))
    assert torch.isfinite(drawn(-(2**70), 0)).all()
    assert torch.equal(Noise().flow(80)[:10], Noise().flow(80)[:10])
