"""Step-Audio2's Thinker: an audio encoder and a Qwen2 language model, on vLLM."""
