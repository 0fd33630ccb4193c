import pytest

from api.openai_chat_request import ChatRequest, job_fields, turn_of
from stage_pipeline.errors import StagewaveError
from stage_pipeline.stages import Task
from workers.openai_body import parse_body

URL = {"type": "audio_url", "audio_url": {"url": "https://example.com/a.wav"}}
BEGIN = {"role": "assistant", "content": "<tts_start>"}


def chat(*messages, **fields) -> ChatRequest:
    return parse_body(ChatRequest, {"messages": list(messages), **fields})


def user(*content) -> dict:
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    return {"role": "user", "content": parts}


@pytest.mark.parametrize(
    ("wanted", "task"),
    [
        (chat(user(URL)), Task.ASR),
        (chat(user(URL), modalities=["text"]), Task.ASR),
        (chat(user(URL), modalities=["text", "audio"]), Task.S2ST),
        (chat(user(URL, "Repeat.<tts_start>")), Task.S2ST),
        (chat(user(URL, "Repeat."), BEGIN, continue_final_message=True), Task.S2ST),
        (chat(user("Hello."), modalities=["audio"]), Task.TTS),
        (chat(user("Hello.<tts_start> ")), Task.TTS),
        (chat(user("Hello."), BEGIN), Task.TTS),
    ],
)
def test_what_is_heard_and_whether_it_speaks_make_the_job(wanted, task):
    assert turn_of(wanted).task is task


def test_text_is_spoken_without_the_token_and_the_systems_text_instructs():
    turn = turn_of(
        chat(
            {"role": "system", "content": "Read aloud."},
            user("An earlier question."),
            {"role": "assistant", "content": "An earlier answer."},
            user("Say", "this.<tts_start>"),
        )
    )
    assert (turn.text, turn.instructions) == ("Say\nthis.", "Read aloud.")


def test_text_beside_audio_is_an_instruction():
    turn = turn_of(chat({"role": "system", "content": "Listen."}, user(URL, "Repeat it.")))
    assert (turn.text, turn.instructions) == ("", "Listen.\nRepeat it.")


def test_a_token_in_the_middle_asks_for_nothing():
    with pytest.raises(StagewaveError):
        turn_of(chat(user("What is <tts_start> for?")))


def test_parameters_for_a_stage_go_before_those_beside_and_vllms_own_are_left_out():
    wanted = chat(
        user(URL),
        temperature=0.2,
        max_tokens=5,
        max_completion_tokens=7,
        seed=1,
        sampling_params_list=[
            {"temperature": 0.7, "seed": 3, "detokenize": True, "stop_token_ids": [1]},
            {"max_tokens": 1},
        ],
    )
    assert wanted.sampling() == [{"temperature": 0.7, "max_tokens": 7}, {"max_tokens": 1}]
    assert wanted.job_seed() == 3
    assert chat(user(URL), top_p=0.5, seed=1).sampling() == [{"top_p": 0.5}]
    assert chat(user(URL), seed=1).job_seed() == 1
    assert chat(user(URL)).sampling() == []


def test_only_a_job_that_speaks_has_a_voice():
    heard = chat(user(URL), audio={"voice": "joe", "format": "mp3"})
    assert "voice" not in job_fields(heard, turn_of(heard))
    spoken = chat(user("Hi."), modalities=["audio"], audio={"voice": {"id": "joe"}, "format": "pcm16"})
    fields = job_fields(spoken, turn_of(spoken))
    assert (fields["voice"], fields["response_format"], fields["live"]) == ("joe", "pcm", False)
