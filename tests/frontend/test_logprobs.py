"""Log probabilities in SGLang's shape."""

from __future__ import annotations

from tests.frontend.fakes import TOKENIZER
from tokenrouter.frontend.logprobs import Logprobs
from tokenrouter.ipc.messages import Logprob

FIRST = Logprob(-0.5, [(97, -0.5), (98, -1.5)])
SECOND = Logprob(-2.0, [(99, -0.25), (100, -1.75)])


def test_texts_ids_and_alternatives_of_every_token() -> None:
    logprobs = Logprobs(2, TOKENIZER, with_text=True)
    logprobs.add([97], [FIRST])
    before = logprobs.meta_info()
    logprobs.add([101], [SECOND])
    meta = logprobs.meta_info()
    assert meta["output_token_logprobs"] == [(-0.5, 97, "a"), (-2.0, 101, "e")]
    assert meta["output_top_logprobs"] == [
        [(-0.5, 97, "a"), (-1.5, 98, "b")],
        [(-0.25, 99, "c"), (-1.75, 100, "d")],
    ]
    assert len(before["output_token_logprobs"]) == 1, "an answer does not change once given"


def test_without_texts() -> None:
    logprobs = Logprobs(1, TOKENIZER, with_text=False)
    logprobs.add([97], [FIRST])
    meta = logprobs.meta_info()
    assert meta["output_token_logprobs"] == [(-0.5, 97, None)]
    assert meta["output_top_logprobs"] == [[(-0.5, 97, None)]]


def test_no_alternatives_asked() -> None:
    logprobs = Logprobs(0, TOKENIZER, with_text=True)
    logprobs.add([97], [FIRST])
    logprobs.add([], [])
    meta = logprobs.meta_info()
    assert meta["output_token_logprobs"] == [(-0.5, 97, "a")]
    assert meta["output_top_logprobs"] == []
