"""What may replace the values of a model's config.json."""

from __future__ import annotations

from typing import Any

import pytest

from tokenrouter.configuration.overrides import check
from tokenrouter.errors import ConfigError

SETTINGS: dict[str, Any] = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    "text",
    [
        None,
        "{}",
        '{"num_hidden_layers": 2, "rms_norm_eps": 1, "new": "x", "eos_token_id": [1, 2]}',
        '{"rope_scaling": {"rope_type": "yarn", "factor": 4}, "pad_token_id": -1}',
        '{"tie_word_embeddings": true, "hidden_size": null}',
    ],
)
def test_what_a_model_can_have(text: str | None) -> None:
    check("f", text, SETTINGS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "f: wants a JSON object"),
        ("{", "f: not JSON"),
        ("[" * 100_000, "f: not JSON"),
        ('{"num_hidden_layers": -1}', "f: num_hidden_layers: must be 1 at least"),
        ('{"num_hidden_layers": 1.5}', "f: num_hidden_layers: must be 1 at least"),
        ('{"hidden_size": "x"}', 'same kind; the model\'s own value is 64, got "x"'),
        ('{"tie_word_embeddings": 1}', "same kind; the model's own value is false, got 1"),
    ],
)
def test_what_no_model_can_have(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        check("f", text, SETTINGS)
    assert message in str(error.value)


def test_every_wrong_value_is_told() -> None:
    with pytest.raises(ConfigError) as error:
        check("f", '{"num_hidden_layers": -1, "hidden_size": "x"}', SETTINGS)
    assert len(error.value.problems) == 2
