"""The embedded demo pair: a small and a large model that solve arithmetic word problems.

The pair makes token-level routing visible on any laptop. Both models write the same template of a
worked answer; the small one errs in a few hard digits, the large one does not, so a router that
hands over just those digits keeps the large model's accuracy at a small share of its work.

`task` makes the problems, `tokenizer` and `batches` turn them into token ids, `train` writes the
two folders under `models/`, and `evaluate` measures them on problems no training ever saw.
"""
