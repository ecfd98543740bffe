"""Answers end where the reference ends: end of sequence, stop strings, stop ids, length."""

from __future__ import annotations

from typing import Any

from tests.integration.deployments import TAU, serve_all
from tests.integration.models import TRIO_EOS
from tests.integration.reference import Model, routed_loop
from tests.integration.server import Server

EOS = 260


def test_end_of_sequence_and_length(
    demo_server: Server, demo_models: list[Model], problems: list[list[int]], tokenizer: Any
) -> None:
    for count in (1, 400):
        served = serve_all(demo_server, problems[:8], count, ignore_eos=False)
        for prompt, answer in zip(problems, served, strict=False):
            expected = routed_loop(
                demo_models, prompt, count, "entropy", TAU, finished=lambda out: out[-1] == EOS
            )
            assert expected.honest
            assert answer["output_ids"] == expected.tokens
            reason = answer["meta_info"]["finish_reason"]
            if count == 1:
                assert reason == {"type": "length", "length": 1}
            else:
                assert reason == {"type": "stop", "matched": EOS}
                assert answer["text"] == tokenizer.decode(expected.tokens[:-1])
                assert answer["meta_info"]["completion_tokens"] == len(expected.tokens)
    demo_server.assert_clean()


def test_end_of_sequence_of_any_member(
    trio_server: Server, trio_models: list[Model], texts: list[list[int]]
) -> None:
    count = 120
    ends = {*TRIO_EOS, EOS}
    expected = [
        routed_loop(
            trio_models, prompt, count, "cascade", 0.3, finished=lambda out: out[-1] in ends
        )
        for prompt in texts
    ]
    served = serve_all(trio_server, texts, count, ignore_eos=False)
    trio_server.assert_clean()
    matched = set()
    for answer, reference in zip(served, expected, strict=True):
        if reference.honest:
            assert answer["output_ids"] == reference.tokens
            matched.add(answer["meta_info"]["finish_reason"].get("matched"))
    assert len(matched & set(TRIO_EOS)) >= 2, matched


def test_stop_strings_across_two_members(
    demo_server: Server, demo_models: list[Model], problems: list[list[int]], tokenizer: Any
) -> None:
    tried = 0
    for prompt in problems[:12]:
        free = routed_loop(demo_models, prompt, 80, "entropy", TAU)
        borders = [i for i in range(20, 79) if free.writers[i] != free.writers[i + 1]]
        if not (borders and free.honest):
            continue
        border = borders[0]
        stop = tokenizer.decode(free.tokens[border - 1 : border + 2])
        expected = routed_loop(
            demo_models, prompt, 80, "entropy", TAU,
            finished=lambda out, stop=stop: stop in tokenizer.decode(out),
        )  # fmt: skip
        (answer,) = serve_all(demo_server, [prompt], 80, ignore_eos=False, stop=["@@", stop])
        assert answer["output_ids"] == expected.tokens
        assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
        assert answer["text"] == tokenizer.decode(expected.tokens).removesuffix(stop)
        tried += len(expected.tokens) == border + 2
    assert tried >= 3, "no stop string ended at a border between members"
    demo_server.assert_clean()


def test_stop_token_ids(
    demo_server: Server, demo_models: list[Model], problems: list[list[int]]
) -> None:
    free = routed_loop(demo_models, problems[0], 60, "entropy", TAU)
    stop = free.tokens[40]
    (answer,) = serve_all(demo_server, problems[:1], 60, ignore_eos=False, stop_token_ids=[stop])
    first = free.tokens.index(stop)
    assert answer["output_ids"] == free.tokens[: first + 1]
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    demo_server.assert_clean()
