"""The checkpoint's tokenizer: text to ids and back, and the ids of its special tokens by their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from stage_pipeline.chunking import STEP_AUDIO_2_FIRST_CONTROL_ID
from stage_pipeline.deploy import DeployError

AUDIO_START = "<audio_start>"
AUDIO_PATCH = "<audio_patch>"
AUDIO_END = "<audio_end>"
TTS_START = "<tts_start>"
TTS_END = "<tts_end>"
FIRST_CODE = "<audio_0>"
LAST_CODE = f"<audio_{STEP_AUDIO_2_FIRST_CONTROL_ID - 1}>"
END_TOKENS = ("<|EOT|>", "<|im_end|>", "<|endoftext|>")
"""Any of them ends an answer: the official form's, the other dialect's, and the language model's."""

_TOKEN_LIKE = re.compile(r"<(?=[|/]?\w+\|?>)")
"""Where the name of a special or an audio token could begin."""


class Vocabulary:
    """Safe to use from many threads. Raises ``DeployError`` for a tokenizer of another model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.first_special = self.id_of(AUDIO_START)
        """Every id below it is text."""
        self.first_code = self.id_of(FIRST_CODE)
        if self.id_of(LAST_CODE) - self.first_code != STEP_AUDIO_2_FIRST_CONTROL_ID - 1:
            raise DeployError("tokenizer.json: the audio tokens do not follow each other")
        if self.first_code <= self.first_special:
            raise DeployError("tokenizer.json: the audio tokens do not come after the text tokens")
        self.ends = tuple(self.id_of(name) for name in END_TOKENS)
        self.tts_end = self.id_of(TTS_END)

    @classmethod
    def load(cls, model_dir: Path) -> Vocabulary:
        """From ``tokenizer.json``; where there is only ``vocab.json`` it is converted."""
        try:
            if (model_dir / "tokenizer.json").is_file():
                return cls(Tokenizer.from_file(str(model_dir / "tokenizer.json")))
            from transformers import AutoTokenizer

            return cls(
                AutoTokenizer.from_pretrained(str(model_dir), local_files_only=True).backend_tokenizer
            )
        except DeployError:
            raise
        except Exception as error:  # what a broken file makes either library raise is not documented
            raise DeployError("model_dir: the tokenizer's files are missing or cannot be read") from error

    def id_of(self, token: str) -> int:
        number = self._tokenizer.token_to_id(token)
        if number is None:
            raise DeployError(f"the tokenizer has no token {token}: this is no Step-Audio2 checkpoint")
        return int(number)

    def ids(self, text: str) -> list[int]:
        """The ids of text that is only text: a special token's name in it is spelled, and means nothing."""
        ids: list[int] = []
        began = 0
        for found in _TOKEN_LIKE.finditer(text):
            ids += self._encode(text[began : found.end()])
            began = found.end()
        return ids + self._encode(text[began:])

    def text(self, ids: Sequence[int]) -> str:
        """What ids spell; special tokens are left out, half a character is U+FFFD."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids) if text else []
