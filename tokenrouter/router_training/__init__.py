"""Trains the router of a pair of models, offline: which of the small model's tokens change meaning.

`run` goes through the stages: the large model's `responses`, what the small model `features` over
them, the large one's `probabilities` of the small one's tokens, `labels` (with a `judge`, if there
is one), the `fitting` of the network, its `thresholds`, and the `report`. Every stage keeps what it
did in a `store`, so that a run that was interrupted goes on where it stopped.
"""
