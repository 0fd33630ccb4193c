"""From written English to words that can be looked up: what the embedded voice reads aloud."""

from stage_pipeline.engines.embedded.text.normaliser import spoken_text

__all__ = ["spoken_text"]
