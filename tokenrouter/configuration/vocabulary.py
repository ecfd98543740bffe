"""Whether members share one vocabulary: a token id must mean the same text to all.

Read from the tokenizers' files, without loading a tokenizer. Embedding rows beyond the
vocabulary (padding) do not matter here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tokenrouter.configuration.model_folder import read_json, read_settings, unusable
from tokenrouter.errors import ConfigError

if TYPE_CHECKING:
    from tokenrouter.configuration.model import ModelConfig

Vocabulary = Mapping[str, int]
NO_DEFERRAL = (
    "was it trained for Co-LLM? If not, choose a model whose vocabulary was enlarged by one for "
    "deferring, or another algorithm"
)


class _AddedToken(msgspec.Struct):
    id: int
    content: str


class _Model(msgspec.Struct):
    vocab: dict[str, int] | list[tuple[str, float]]


class _TokenizerFile(msgspec.Struct):
    model: _Model
    added_tokens: list[_AddedToken] = []


def check(models: Sequence[ModelConfig], deferring: Collection[str] = ()) -> None:
    """Compare the tokenizer of every member that has one with the first one's.

    ``deferring``: members whose last id is no token (Co-LLM); their tokenizers may name it.

    Raises:
        ConfigError: two members differ, a folder holds no tokenizer, or the last id of a
            deferring member is a token of another.
    """
    found = [(model.name, model.tokenizer_path) for model in models]
    members = [(name, path) for name, path in found if path is not None]
    if not members:
        return
    ends = {model.name: _last_row(model) for model in models if model.name in deferring}
    first_name, first_path = members[0]
    first = _tokens(first_name, first_path, ends)
    for name, path in members[1:]:
        if path == first_path:
            continue
        tokens = _tokens(name, path, ends)
        _check_deferring(first_name, ends, name, tokens)
        _check_deferring(name, ends, first_name, first)
        found_difference = difference(first_name, first, name, tokens)
        if found_difference:
            raise ConfigError(
                f"models: {first_name} and {name} have different tokenizers: {found_difference}; "
                "route between models that share one vocabulary"
            )


def doubts(models: Sequence[ModelConfig], deferring: Collection[str]) -> list[str]:
    """Of ``deferring`` members, which seem to have no row more than others."""
    rows = {model.name: _last_row(model) for model in models}
    return [
        f"models.{name}: its last row (id {rows[name]}) is taken for deferring (co_llm), and "
        f"{other} has as many rows: {NO_DEFERRAL}"
        for name in deferring
        for other in rows
        if other not in deferring and rows[name] == rows[other] < math.inf
    ]


def _check_deferring(
    name: str, ends: Mapping[str, float], other_name: str, other: Vocabulary
) -> None:
    end = ends.get(name)
    token = next((token for token, index in other.items() if index == end), None)
    if token is not None:
        raise ConfigError(
            f"models.{name}.model_path: the last row (id {end}) is taken for deferring (co_llm), "
            f"and is the token {token!r} of {other_name}: {NO_DEFERRAL}"
        )


def _tokens(name: str, path: Path, ends: Mapping[str, float]) -> Vocabulary:
    end = ends.get(name, math.inf)
    return {token: index for token, index in read(name, path).items() if index < end}


def _last_row(model: ModelConfig) -> float:
    """The last id of a model's logits."""
    if model.model_path is None:
        return math.inf
    settings = read_settings(model.model_path)
    rows = settings.get("text_config", settings).get("vocab_size")
    return rows - 1 if isinstance(rows, int) else math.inf


def difference(name: str, one: Vocabulary, other_name: str, other: Vocabulary) -> str | None:
    """How two vocabularies differ, in words; None if they are the same."""
    moved = [token for token, index in one.items() if other.get(token, index) != index]
    if moved:
        token = min(moved, key=one.__getitem__)
        return (
            f"token {token!r} is id {one[token]} in {name} and {other[token]} in {other_name} "
            f"({len(moved)} tokens have different ids)"
        )
    for mine, first, theirs in ((name, one, other), (other_name, other, one)):
        only = [token for token in first if token not in theirs]
        if only:
            token = min(only, key=first.__getitem__)
            return (
                f"token {token!r} (id {first[token]}) is only in {mine} ({len(only)} such tokens)"
            )
    return None


def read(name: str, folder: Path) -> Vocabulary:
    """Token to id, for the tokenizer in ``folder``, special tokens included.

    Raises:
        ConfigError: no tokenizer there (``name`` is the member to blame), or a broken one.
    """
    vocabulary: dict[str, int]
    if complaint := unusable(folder):
        raise ConfigError(f"models.{name}.tokenizer_path: {complaint}; give the tokenizer's folder")
    try:
        if (path := folder / "tokenizer.json").is_file():
            vocabulary = _from_tokenizer_json(path)
        elif (path := folder / "vocab.json").is_file():
            vocabulary = msgspec.json.decode(path.read_bytes(), type=dict[str, int])
        elif (path := folder / "vocab.txt").is_file():
            lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
            vocabulary = {token: index for index, token in enumerate(lines)}
        elif (path := folder / "tokenizer.model").is_file():
            vocabulary = _from_sentencepiece(path)
        else:
            raise ConfigError(
                f"models.{name}.model_path: {folder} holds no tokenizer (tokenizer.json, "
                "vocab.json, vocab.txt or tokenizer.model); download it, or set tokenizer_path"
            )
        vocabulary.update(_added(folder))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ConfigError(f"{path}: not a tokenizer: {error}; download it again") from error
    return vocabulary


def _from_tokenizer_json(path: Path) -> dict[str, int]:
    content = msgspec.json.decode(path.read_bytes(), type=_TokenizerFile)
    table = content.model.vocab
    if isinstance(table, list):
        table = {piece: index for index, (piece, _) in enumerate(table)}
    return {**table, **{token.content: token.id for token in content.added_tokens}}


def _from_sentencepiece(path: Path) -> dict[str, int]:
    import sentencepiece

    model: Any = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return {model.id_to_piece(index): index for index in range(model.vocab_size())}


def _added(folder: Path) -> dict[str, int]:
    """Tokens added beside the vocabulary, from the files transformers reads them from."""
    added: dict[str, int] = {}
    if (path := folder / "added_tokens.json").is_file():
        added.update(read_json(path))
    if (path := folder / "tokenizer_config.json").is_file():
        decoder = read_json(path).get("added_tokens_decoder", {})
        added.update({entry["content"]: int(index) for index, entry in decoder.items()})
    return added
