"""How the Thinker draws its tokens: the defaults, what a deploy config and a request say over them, and how
long an answer may get."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from pydantic import JsonValue

from stage_pipeline.deploy import DeployError
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.stages import THINKER_RATE_HZ, GenerateRequest, Task

CODES_PER_S = 25
"""Audio tokens of a second of speech."""
DEFAULT_SEED = 42
"""A request has this one when it asks for none."""
_TEXT_REPETITION_PENALTY = 1.05
_AUDIO_REPETITION_PENALTY = 1.1
# The model says a letter's token for each four of audio.
_IDS_PER_CODE = 1.25
_SLACK_IDS = 16

# What slow speech takes of time; longer than that is the model going on without end.
_LETTER_S = 0.2
_OTHER_S = 0.7  # a digit may be a word, an ideograph a syllable
_PAUSES_S = 3.0
_TRANSLATION_S_PER_S = 3.0
_TRANSLATION_PAUSES_S = 5.0

_BOUNDS: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 10),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "top_k": (-1, 1_000_000),
    "repetition_penalty": (0, 10),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "max_tokens": (1, 1_000_000),
    "min_tokens": (0, 1_000_000),
    "seed": (0, 2**63 - 1),
}
_POSITIVE = frozenset({"top_p", "repetition_penalty"})
_MEANINGLESS = frozenset({"detokenize", "skip_special_tokens", "spaces_between_special_tokens"})
"""Keys of vLLM-Omni's deploy files about text, which is spelled here in any case."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """vLLM's sampling parameters by their names. ``repetition_penalty`` None: the task's own."""

    temperature: float = 0.7
    top_p: float = 0.9
    top_k: int = -1
    min_p: float = 0.0
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    max_tokens: int = 1024
    min_tokens: int = 0
    seed: int = DEFAULT_SEED
    stop_token_ids: tuple[int, ...] = ()


_WHOLE = frozenset({field.name for field in fields(Sampling) if field.type == "int"})


def deploy_sampling(stated: Mapping[str, JsonValue]) -> Sampling:
    """The Thinker's ``default_sampling_params``. Raises ``DeployError`` naming the key at fault."""
    values: dict[str, object] = {}
    for name, value in stated.items():
        if name in _MEANINGLESS:
            continue
        if name == "stop_token_ids":
            values[name] = _stop_ids(value)
            continue
        fault = _fault(name, value)
        if fault:
            raise DeployError(f"stages.0.default_sampling_params.{name}: {fault}")
        values[name] = value
    return Sampling(**values)  # type: ignore[arg-type]  # each was checked by its name


def request_sampling(request: GenerateRequest, deploy: Sampling) -> Sampling:
    """The deploy's, with what the request says over it. Raises ``StagewaveError`` naming the field."""
    asked = dict(request.sampling)
    for name, value in asked.items():
        fault = _fault(name, value)
        if fault:
            raise _refused(name, fault)
    if request.seed != DEFAULT_SEED:
        asked.setdefault("seed", request.seed)
    merged = replace(deploy, **asked)  # type: ignore[arg-type]  # each was checked by its name
    if merged.repetition_penalty is None:
        penalty = _TEXT_REPETITION_PENALTY if request.task is Task.ASR else _AUDIO_REPETITION_PENALTY
        merged = replace(merged, repetition_penalty=penalty)
    return merged


def longest_codes(request: GenerateRequest, audio_out_s: float) -> int:
    """How many audio tokens an answer may have: what very slow speech would need for the text, or for the
    translation of what is heard."""
    if request.task is Task.TTS:
        limit_s = _PAUSES_S + sum(_slowest_s(character) for character in request.text)
    else:
        heard_s = 0.0 if request.audio is None else len(request.audio) / THINKER_RATE_HZ
        limit_s = _TRANSLATION_PAUSES_S + _TRANSLATION_S_PER_S * heard_s
    return math.ceil(min(limit_s, audio_out_s) * CODES_PER_S)


def ids_for(codes: int) -> int:
    """Tokens of any kind that an answer with so many audio tokens may take."""
    return math.ceil(codes * _IDS_PER_CODE) + _SLACK_IDS


def _slowest_s(character: str) -> float:
    if character.isspace():
        return 0.0
    if character.isalpha() and not unicodedata.category(character).startswith("Lo"):
        return _LETTER_S
    return _OTHER_S


def _fault(name: str, value: object) -> str | None:
    """What is wrong with a value, if anything."""
    bounds = _BOUNDS.get(name)
    if bounds is None:
        return "there is no such sampling parameter"
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "has to be a number"
    if name in _WHOLE and value != int(value):
        return "has to be a whole number"
    low, high = bounds
    if not low <= value <= high or (name in _POSITIVE and value == 0):
        return f"has to be {'above' if name in _POSITIVE else 'at least'} {low:g} and at most {high:g}"
    return None


def _stop_ids(value: JsonValue) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(number) is int and number >= 0 for number in value):
        raise DeployError("stages.0.default_sampling_params.stop_token_ids: has to be a list of token ids")
    return tuple(number for number in value if isinstance(number, int))


def _refused(name: str, fault: str) -> StagewaveError:
    return StagewaveError(ErrorCode.INVALID_REQUEST, fault, field=f"sampling_params_list.0.{name}")
