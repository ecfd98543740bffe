"""The tokenizer of the demo pair: one token per byte, plus five special tokens.

A token's id is its byte's value, so any UTF-8 text survives encoding and decoding unchanged, and a
test can compute the ids of a text without the tokenizer. There are no merges: each digit is a token
of its own, so that routing can hand over a single digit.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import (  # type: ignore[import-untyped]
    AddedToken,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
)
from transformers import PreTrainedTokenizerFast

END_OF_TEXT = "<|endoftext|>"
END = "<|end|>"
SPECIAL_TOKENS = (END_OF_TEXT, "<|system|>", "<|user|>", "<|assistant|>", END)
PAD_ID = 256
END_ID = 260
MAX_LENGTH = 2048

CHAT_TEMPLATE = """\
{%- macro text(content) -%}
    {%- if content is string -%}
        {{- content -}}
    {%- elif content is not none -%}
        {%- for part in content -%}
            {%- if part['type'] != 'text' -%}
                {{- raise_exception('Only text content is supported, not ' + part['type']) -}}
            {%- endif -%}
            {{- part['text'] -}}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
    {%- if message['role'] not in ['system', 'user', 'assistant'] -%}
        {{- raise_exception('Unknown role: ' + message['role']) -}}
    {%- endif -%}
    {{- '<|' + message['role'] + '|>' + text(message['content']) + '<|end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|assistant|>' -}}
{%- endif -%}
"""


def byte_symbols() -> list[str]:
    """The printable symbol by which byte-level BPE writes each byte, indexed by the byte's value.

    Printable bytes stand for themselves; the others take code points from 256 on, in order.
    """
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    stand_ins = iter(sorted(symbol for symbol in alphabet if ord(symbol) > 255))
    return [chr(byte) if chr(byte) in alphabet else next(stand_ins) for byte in range(256)]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE without merges, wrapped for transformers with the chat template inside."""
    vocabulary = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=END_OF_TEXT,
        eos_token=END,
        additional_special_tokens=["<|system|>", "<|user|>", "<|assistant|>"],
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_LENGTH,
        model_input_names=["input_ids", "attention_mask"],
        chat_template=CHAT_TEMPLATE,
    )


def save_tokenizer(folder: Path) -> None:
    """Write the tokenizer's files into a model folder, the chat template inside its config."""
    build_tokenizer().save_pretrained(folder, save_jinja_files=False)
