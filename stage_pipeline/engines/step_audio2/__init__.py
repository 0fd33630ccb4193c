"""Step-Audio2: the Thinker on vLLM, Token2Wav in torch."""
