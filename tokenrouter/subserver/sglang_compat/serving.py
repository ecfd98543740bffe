"""SGLang's front end, as the rest of the system may import it.

Its request and response models, OpenAI handlers, chat templates, tokenizer manager and
detokenizer; and the arguments to build them with, which never touch a GPU.
"""

from __future__ import annotations

from typing import Any

from tokenrouter.config import Config
from tokenrouter.configuration.sources import DEMO_MODELS
from tokenrouter.subserver.sglang_compat.cpu_imports import prepare_sglang_import

prepare_sglang_import()

from sglang.srt.entrypoints.openai.protocol import (  # noqa: E402
    ChatCompletionMessageGenericParam,
    ChatCompletionMessageUserParam,
    ChatCompletionRequest,
    ChatCompletionResponse,
    ChoiceLogprobs,
    CompletionRequest,
    CompletionResponse,
    FunctionResponse,
    ModelCard,
    ModelList,
    Tool,
    ToolCall,
    ToolChoice,
)
from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat  # noqa: E402
from sglang.srt.entrypoints.openai.serving_completions import (  # noqa: E402
    OpenAIServingCompletion,
)
from sglang.srt.function_call.function_call_parser import FunctionCallParser  # noqa: E402
from sglang.srt.hf_transformers_utils import get_tokenizer  # noqa: E402
from sglang.srt.managers.detokenizer_manager import DetokenizerManager  # noqa: E402
from sglang.srt.managers.io_struct import (  # noqa: E402
    BatchTokenIDOut,
    GenerateReqInput,
    TokenizedGenerateReqInput,
)
from sglang.srt.managers.template_manager import TemplateManager  # noqa: E402
from sglang.srt.managers.tokenizer_manager import TokenizerManager  # noqa: E402
from sglang.srt.reasoning_parser import ReasoningParser  # noqa: E402
from sglang.srt.sampling.sampling_params import TOP_K_ALL, SamplingParams  # noqa: E402
from sglang.srt.server_args import PortArgs, ServerArgs  # noqa: E402

from tokenrouter.subserver.sglang_compat.sglang_ports import sglang_ports  # noqa: E402

__all__ = [
    "TOP_K_ALL",
    "BatchTokenIDOut",
    "ChatCompletionMessageGenericParam",
    "ChatCompletionMessageUserParam",
    "ChatCompletionRequest",
    "ChatCompletionResponse",
    "ChoiceLogprobs",
    "CompletionRequest",
    "CompletionResponse",
    "DetokenizerManager",
    "FunctionCallParser",
    "FunctionResponse",
    "GenerateReqInput",
    "ModelCard",
    "ModelList",
    "OpenAIServingChat",
    "OpenAIServingCompletion",
    "PortArgs",
    "ReasoningParser",
    "SamplingParams",
    "ServerArgs",
    "TemplateManager",
    "TokenizedGenerateReqInput",
    "TokenizerManager",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "front_end_args",
    "load_templates",
    "load_tokenizer",
    "sglang_ports",
]

# Pydantic warns whenever a deprecated field is read, and SGLang's own handlers read this one.
del ChatCompletionRequest.max_tokens

FRONT_END_ARGUMENTS = (
    "tokenizer_mode",
    "trust_remote_code",
    "revision",
    "chat_template",
    "completion_template",
    "reasoning_parser",
    "tool_call_parser",
    "enable_cache_report",
    "weight_version",
)
"""SGLang arguments of a model that concern how its prompts and answers are written."""


def front_end_args(config: Config) -> ServerArgs:
    """SGLang's arguments for the tokenizer manager and the detokenizer.

    Those of the first member with a tokenizer; without any, the demo's.
    """
    first = next((model for model in config.models if model.tokenizer_path is not None), None)
    model_path = first.model_path if first else None
    given = first.sglang if first else {}
    return ServerArgs(
        model_path=str(model_path or DEMO_MODELS / "small"),
        tokenizer_path=str(config.tokenizer_path),
        served_model_name=config.served_name,
        host=config.host,
        port=config.port,
        log_level=config.log_level,
        dtype=(first.dtype if first else None) or "auto",
        # The rest keeps SGLang from looking for a GPU, or for defaults that depend on one.
        device="cpu",
        mem_fraction_static=0.5,
        chunked_prefill_size=-1,
        **{name: given[name] for name in FRONT_END_ARGUMENTS if name in given},
    )


def load_tokenizer(args: ServerArgs) -> Any:
    """The Hugging Face tokenizer that ``args`` name."""
    return get_tokenizer(
        args.tokenizer_path,
        tokenizer_mode=args.tokenizer_mode,
        trust_remote_code=args.trust_remote_code,
        revision=args.revision,
    )


def load_templates(manager: TokenizerManager) -> TemplateManager:
    """The chat and completion templates of the manager's tokenizer and arguments."""
    args = manager.server_args
    templates = TemplateManager()
    templates.initialize_templates(
        tokenizer_manager=manager,
        model_path=args.model_path,
        chat_template=args.chat_template,
        completion_template=args.completion_template,
    )
    return templates
