"""Training batches: what the loss counts, and that a stream can be taken up anywhere."""

from __future__ import annotations

from itertools import islice

import torch

from tokenrouter.demo.batches import POOL_BATCHES, collate, encode, training_batches
from tokenrouter.demo.task import problems
from tokenrouter.demo.tokenizer import END_ID, PAD_ID, build_tokenizer

FIRST, SECOND = islice(problems("train", 3), 2)


def test_ids_are_those_of_the_chat_template() -> None:
    messages = [{"role": "system", "content": "Be kind."}]
    for problem in (FIRST, SECOND):
        messages.append({"role": "user", "content": problem.question})
        messages.append({"role": "assistant", "content": problem.answer})
    expected = build_tokenizer().apply_chat_template(messages)
    assert encode([FIRST, SECOND], "Be kind.").ids == expected


def test_the_loss_counts_answers_and_their_ends_only() -> None:
    batch = collate([encode([FIRST]), encode([FIRST, SECOND])])
    for row, turns in enumerate([[FIRST], [FIRST, SECOND]]):
        counted = batch.targets[row][batch.counted[row]].tolist()
        expected = [i for turn in turns for i in [*turn.answer.encode(), END_ID]]
        assert counted == expected


def test_targets_are_inputs_one_place_on_and_padding_is_at_the_right() -> None:
    batch = collate([encode([FIRST]), encode([FIRST, SECOND])])
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    length = len(encode([FIRST]).ids)
    assert (batch.inputs[0, length:] == PAD_ID).all()
    assert PAD_ID not in batch.inputs[0, :length]


def test_a_stream_taken_up_later_gives_the_same_batches() -> None:
    unbroken = list(islice(training_batches(7, 2), POOL_BATCHES + 3))
    for first_step in (0, 5, POOL_BATCHES, POOL_BATCHES + 2):
        resumed = next(training_batches(7, 2, first_step))
        assert torch.equal(resumed.inputs, unbroken[first_step].inputs)
        assert torch.equal(resumed.counted, unbroken[first_step].counted)
    assert not torch.equal(unbroken[0].inputs, unbroken[1].inputs)
