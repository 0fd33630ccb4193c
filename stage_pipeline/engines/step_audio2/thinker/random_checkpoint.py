"""The Thinker's part of a random model directory: config, tokenizer and weights under the official names.

Its weights are noise with a rule on top, so that what is said has the shape of the real thing. Four of the
residual stream's dimensions hold what kind of token comes next, are written by the token's embedding
alone, and are read by ``lm_head``:

- after ``<tts_start>`` a letter, and after each letter some four audio tokens, much as the real model
  interleaves them;
- after any other text, more text, in capitals and digits: a transcript;
- after a full stop, and after one audio token in 128, an end token.

Which letter or which code comes is noise, and depends on the whole prompt, heard audio included.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from stage_pipeline.engines.step_audio2.thinker.audio_tower import ADAPTER_HIDDEN

VOCABULARY = 158_720
FIRST_CODE = 151_696
CODES = 6562
"""The last is ``<audio_6561>``, which stands for no audio."""

SPECIAL_IDS = {
    "<|endoftext|>": 151_643,
    "<|im_start|>": 151_644,
    "<|im_end|>": 151_645,
    # Its real number is not known: read it from the tokenizer.
    "<|BOT|>": 151_646,
    "<|EOT|>": 151_665,
    "<audio_start>": 151_688,
    "<audio_end>": 151_689,
    "<audio_patch>": 151_690,
    "<tts_start>": 151_693,
    "<tts_end>": 151_694,
    "<tts_pad>": 151_695,
}

_LETTER, _AUDIO, _HEARD, _END = range(4)
# What may not come next has a logit some 40 below the rest, whose spread is 3. (Not the rest some 40 above:
# bfloat16 would hardly tell them apart.)
_MARK = 8.0
_MARK_WEIGHT = -6.0
_LOGIT_SPREAD = 3.0
_CONTEXT = 4.0
# Attention looks at a few tokens rather than at the mean of all.
_FOCUS = 2.0


@dataclass(frozen=True, slots=True)
class ThinkerSize:
    """``interleaved``: whether letters come between the audio tokens and an end comes by itself; without,
    audio goes on until it is stopped, which is what a benchmark wants."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int
    audio_hidden: int
    audio_heads: int
    audio_layers: int
    interleaved: bool


# vLLM's attention on a CPU takes heads of 64 and wider.
THINKER_SIZES = {
    "tiny": ThinkerSize(128, 2, 2, 1, 256, 64, 2, 2, interleaved=True),
    "full": ThinkerSize(3584, 28, 28, 4, 18944, 1280, 20, 32, interleaved=False),
}


def write_thinker(out: Path, name: str) -> None:
    """``config.json``, tokenizer and ``model-*.safetensors``. Drawn on a GPU where there is one, with other
    numbers than on a CPU."""
    size = THINKER_SIZES[name]
    out.mkdir(parents=True, exist_ok=True)
    _write_json(out / "config.json", _config(size))
    _write_json(out / "generation_config.json", {"eos_token_id": list(_end_ids()), "do_sample": True})
    _write_json(out / "tokenizer.json", tokenizer_json())
    _write_json(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|endoftext|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": 16_384,
            "clean_up_tokenization_spaces": False,
        },
    )
    shards = 1 + size.layers
    where, total = {}, 0
    for number, weights in enumerate(_shards(size), start=1):
        file = f"model-{number:05d}-of-{shards:05d}.safetensors"
        save_file(weights, out / file, metadata={"format": "pt"})
        where.update(dict.fromkeys(weights, file))
        total += sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    _write_json(
        out / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where}
    )


def _config(size: ThinkerSize) -> dict[str, object]:
    return {
        "architectures": ["StepAudio2ForCausalLM"],
        "model_type": "step_audio_2",
        "torch_dtype": "bfloat16",
        "text_config": {
            "model_type": "qwen2",
            "hidden_size": size.hidden,
            "intermediate_size": size.feed_forward,
            "num_hidden_layers": size.layers,
            "num_attention_heads": size.heads,
            "num_attention_groups": size.kv_heads,
            "num_key_value_heads": size.kv_heads,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": 16_384,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1_000_000.0,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "eos_token_id": SPECIAL_IDS["<|endoftext|>"],
            "pad_token_id": SPECIAL_IDS["<|endoftext|>"],
        },
        "audio_encoder_config": {
            "n_mels": 128,
            "n_audio_ctx": 1500,
            "n_audio_state": size.audio_hidden,
            "n_audio_head": size.audio_heads,
            "n_audio_layer": size.audio_layers,
            "n_codebook_size": 4096,
            "llm_dim": size.hidden,
            "kernel_size": 3,
            "adapter_stride": 2,
        },
    }


def _byte_ids() -> dict[str, int]:
    """The characters that stand for the 256 bytes in a byte-level vocabulary, in the order of GPT-2 and
    Qwen."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [chr(256 + at) for at in range(256 - len(printable))]
    return {character: at for at, character in enumerate([*map(chr, printable), *others])}


def tokenizer_json() -> dict[str, object]:
    """A token a byte, and the special and audio tokens under their real numbers; no merges."""
    audio = {f"<audio_{code}>": FIRST_CODE + code for code in range(CODES)}
    special = SPECIAL_IDS | audio
    added = [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token, number in special.items()
    ]
    bytes_as_text = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": bytes_as_text,
        "post_processor": None,
        "decoder": bytes_as_text,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": _byte_ids() | special,
            "merges": [],
        },
    }


def _end_ids() -> tuple[int, ...]:
    return SPECIAL_IDS["<|im_end|>"], SPECIAL_IDS["<|EOT|>"]


def _kinds(size: ThinkerSize) -> tuple[Tensor, Tensor]:
    """For every id, int ``[vocabulary]``: which kind of token it is (-1: never said), and which comes
    after it."""
    byte_ids = _byte_ids()
    kind = torch.full((VOCABULARY,), -1)
    after = torch.full((VOCABULARY,), _HEARD)
    codes = slice(FIRST_CODE, FIRST_CODE + CODES)
    kind[codes] = _AUDIO
    after[codes] = _AUDIO
    after[SPECIAL_IDS["<tts_start>"]] = _LETTER if size.interleaved else _AUDIO
    for character in "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.":
        kind[byte_ids[character]] = _HEARD
    after[byte_ids["."]] = _END
    for number in _end_ids():
        kind[number] = after[number] = _END
    if size.interleaved:
        # Which code a letter follows is chance: one in four.
        after[FIRST_CODE : FIRST_CODE + CODES : 4] = _LETTER
        after[FIRST_CODE + 1 : FIRST_CODE + CODES : 128] = _END
        letters = [byte_ids[character] for character in "abcdefghijklmnopqrstuvwxyz"]
        for number in (*letters, SPECIAL_IDS["<tts_pad>"]):
            kind[number] = _LETTER
            after[number] = _AUDIO
    return kind, after


def _shards(size: ThinkerSize) -> Iterator[dict[str, Tensor]]:
    draw = _Draw()
    hidden = size.hidden
    kind, after = _kinds(size)
    embedding = draw(VOCABULARY, hidden, spread=1.0)
    head = draw(VOCABULARY, hidden, spread=_LOGIT_SPREAD / math.sqrt(hidden))
    head[kind < 0] = 0
    # Taken more often than its share, or a transcript would hardly ever end.
    head[_byte_ids()["."]] *= 1.5
    for mark in (_LETTER, _AUDIO, _HEARD, _END):
        embedding[:, mark] = torch.where(after == mark, _MARK, 0.0)
        head[:, mark] = torch.where(kind == mark, 0.0, _MARK_WEIGHT)
    yield {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": _one(hidden),
        "lm_head.weight": head,
        **_audio_weights(size, draw),
    }
    head_width = hidden // size.heads
    # As in GPT-2, what all layers add up to does not grow with their number; it outweighs the embedding, so
    # that what comes next depends on all that came before.
    output_gain = _CONTEXT / math.sqrt(2 * size.layers)
    for layer in range(size.layers):
        weights = {}
        for part, rows in (("q", size.heads), ("k", size.kv_heads), ("v", size.kv_heads)):
            gain = 1.0 if part == "v" else _FOCUS
            weights[f"self_attn.{part}_proj.weight"] = draw(rows * head_width, hidden, gain=gain)
            weights[f"self_attn.{part}_proj.bias"] = draw(rows * head_width, spread=0.02)
        weights["self_attn.o_proj.weight"] = draw(hidden, hidden, gain=output_gain)
        weights["mlp.gate_proj.weight"] = draw(size.feed_forward, hidden)
        weights["mlp.up_proj.weight"] = draw(size.feed_forward, hidden)
        weights["mlp.down_proj.weight"] = draw(hidden, size.feed_forward, gain=output_gain)
        # The layers neither write nor read the marks.
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            weights[f"{name}.weight"][: _END + 1] = 0
        for name in (*(f"self_attn.{part}_proj" for part in "qkv"), "mlp.gate_proj", "mlp.up_proj"):
            weights[f"{name}.weight"][:, : _END + 1] = 0
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{norm}.weight"] = _one(hidden)
        yield {f"model.layers.{layer}.{name}": weight for name, weight in weights.items()}


def _audio_weights(size: ThinkerSize, draw: _Draw) -> dict[str, Tensor]:
    """``encoder.*`` and ``adapter.*``."""
    wide = size.audio_hidden
    weights = {
        "encoder.conv1.weight": draw(wide, 128, 3),
        "encoder.conv2.weight": draw(wide, wide, 3),
        "encoder.positional_embedding.weight": draw(1500, wide, spread=0.1),
        "adapter.conv.weight": draw(wide, wide, 3),
        "adapter.linear1.weight": draw(ADAPTER_HIDDEN, wide),
        "adapter.linear2.weight": draw(size.hidden, ADAPTER_HIDDEN),
    }
    for layer in range(size.audio_layers):
        block = f"encoder.blocks.{layer}"
        for part in ("query", "key", "value", "out"):
            weights[f"{block}.attn.{part}.weight"] = draw(wide, wide)
        weights[f"{block}.mlp.0.weight"] = draw(4 * wide, wide)
        weights[f"{block}.mlp.2.weight"] = draw(wide, 4 * wide)
    for name in [name for name in weights if "positional" not in name and ".key." not in name]:
        weights[name.removesuffix("weight") + "bias"] = draw(weights[name].shape[0], spread=0.02)
    for layer in range(size.audio_layers):
        for norm in ("attn_ln", "mlp_ln"):
            weights |= _norm(f"encoder.blocks.{layer}.{norm}", wide, draw)
    return weights | _norm("encoder.after_norm", wide, draw)


class _Draw:
    """Seeded noise in bfloat16; by default of unit size after a product with unit noise."""

    def __init__(self) -> None:
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._generator = torch.Generator(self._device).manual_seed(6)

    def __call__(self, *shape: int, spread: float | None = None, gain: float = 1.0) -> Tensor:
        if spread is None:
            spread = gain / math.sqrt(math.prod(shape[1:]))
        noise = torch.randn(*shape, generator=self._generator, device=self._device, dtype=torch.bfloat16)
        return noise.mul_(spread).cpu()


def _norm(name: str, width: int, draw: _Draw) -> dict[str, Tensor]:
    return {f"{name}.weight": _one(width), f"{name}.bias": draw(width, spread=0.02)}


def _one(width: int) -> Tensor:
    return torch.ones(width, dtype=torch.bfloat16)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
