"""Token2Wav of Step-Audio2 in torch: flow matching, then a HiFT vocoder; many streams in a batch."""
