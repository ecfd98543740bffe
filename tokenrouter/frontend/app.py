"""The HTTP application: an allow-list of routes, and OpenAI's errors for everything else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response

import tokenrouter
from tokenrouter.config import Config
from tokenrouter.frontend import answers, http_errors
from tokenrouter.frontend.access import Access
from tokenrouter.frontend.documentation import ACTS, GENERATES, READS, document, responses
from tokenrouter.frontend.generate import Generate
from tokenrouter.frontend.guard import ApiKey, BodyLimit
from tokenrouter.frontend.information import Information
from tokenrouter.frontend.metrics import Metrics
from tokenrouter.frontend.openai_endpoints import RoutedChat, RoutedCompletion
from tokenrouter.frontend.operations import Operations
from tokenrouter.frontend.protocol import ChatRequest, GenerateBody, TextRequest
from tokenrouter.frontend.text_tools import TextTools
from tokenrouter.frontend.tokenizer_manager import RoutedTokenizerManager
from tokenrouter.frontend.weight import bounded_route
from tokenrouter.subserver.sglang_compat.serving import TemplateManager

Endpoint = Callable[..., Awaitable[Response]]


def build_app(
    config: Config, manager: RoutedTokenizerManager, templates: TemplateManager
) -> FastAPI:
    """The application of a deployment whose members are up."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        manager.auto_create_handle_loop()
        yield

    app = FastAPI(title="TokenRouter", version=tokenrouter.__version__, lifespan=lifespan)
    app.router.route_class = bounded_route(config.max_body_values)
    http_errors.install(app)
    # The last one is around all others.
    app.add_middleware(BodyLimit, limit=config.max_body_bytes)
    if config.api_key is not None:
        app.add_middleware(ApiKey, key=config.api_key)
    app.add_middleware(Access, manager.traffic, config)
    chat = RoutedChat(manager, templates, config)
    completion = RoutedCompletion(manager, templates, config)
    generate = Generate(manager, config)
    information = Information(config, manager)
    operations = Operations(config, manager)
    tools = TextTools(manager)

    async def chat_completions(body: ChatRequest, client: Request) -> Response:
        """OpenAI's chat completions, routed."""
        return await chat.respond(body, client)

    async def completions(body: TextRequest, client: Request) -> Response:
        """OpenAI's completions, routed."""
        return await completion.respond(body, client)

    async def native_generate(body: GenerateBody, client: Request) -> Response:
        """SGLang's native endpoint, routed."""
        return await generate.respond(body, client)

    routes: tuple[tuple[str, str, Endpoint, Any, tuple[int, ...]], ...] = (
        ("POST", "/v1/chat/completions", chat_completions, answers.ChatAnswer, GENERATES),
        ("POST", "/invocations", chat_completions, answers.ChatAnswer, GENERATES),
        ("POST", "/v1/completions", completions, answers.TextAnswer, GENERATES),
        ("POST PUT", "/generate", native_generate, answers.GenerateAnswer, GENERATES),
        ("GET", "/v1/models", information.models, answers.Cards, READS),
        ("GET", "/v1/models/{model:path}", information.model, answers.Card, (400, 404, *READS)),
        ("GET", "/health", information.health, answers.Status, READS),
        ("GET", "/ping", information.health, answers.Status, READS),
        ("GET", "/health_generate", information.health_generate, answers.Status, READS),
        ("GET", "/get_server_info", information.server_info, answers.Info, READS),
        ("GET", "/get_model_info", information.model_info, answers.ModelInfo, READS),
        ("GET", "/get_weight_version", information.weight_version, answers.WeightVersion, READS),
        ("GET", "/get_load", information.load, answers.Loads, READS),
        ("GET", "/metrics", Metrics(config, manager).respond, None, READS),
        ("GET POST", "/flush_cache", operations.flush_cache, answers.Outcome, ACTS),
        ("GET POST", "/start_profile", operations.start_profile, answers.Outcome, ACTS),
        ("GET POST", "/stop_profile", operations.stop_profile, answers.Outcome, ACTS),
        ("POST", "/abort_request", operations.abort, answers.Aborted, ACTS),
        ("POST", "/update_weights_from_disk", operations.update_weights, answers.Outcome, ACTS),
        ("POST", "/update_weight_version", operations.update_version, answers.Version, ACTS),
        ("POST", "/pause_generation", operations.pause, answers.Status, ACTS),
        ("POST", "/continue_generation", operations.resume, answers.Status, ACTS),
        ("POST", "/parse_function_call", tools.parse_function_call, answers.Parsed, ACTS),
        ("POST", "/separate_reasoning", tools.separate_reasoning, answers.Separated, ACTS),
    )
    for methods, path, endpoint, answer, errors in routes:
        for method in methods.split():
            app.add_api_route(
                path,
                endpoint,
                methods=[method],
                operation_id=f"{method} {path}",
                response_class=Response,
                responses=responses(answer, errors, stream=errors is GENERATES),
            )
    document(app, config)
    return app
