"""The layout of the embedded engine's audio tokens, the same in both stages.

A clause is ``PAUSE* BEGIN PAD (phoneme PAD)* END``; phoneme ids are the voice's own (below 256).
"""

from __future__ import annotations

from stage_pipeline.chunking import BoundaryWindows

PAD = 0
BEGIN = 1
END = 2
"""Ends each clause, and with it a window."""
PHONEMES = 256
"""Ids from here on are no phonemes."""
PAUSE = 256
"""A stretch of silence before a clause."""
PAUSE_S = 0.05

CHUNK_POLICY = BoundaryWindows(boundary=END)

TOKENS_PER_S = 35
"""About how many tokens a second of speech takes, measured on paragraphs of prose; for limits only."""
