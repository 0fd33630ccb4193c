"""An engine that computes nothing: to measure the queue itself, and to see any token that it loses."""
