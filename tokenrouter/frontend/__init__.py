"""HTTP in, text out: model names, checks, the hand-off to homes, and decoding."""
