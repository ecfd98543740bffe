"""The HTTP application: an allow-list of routes, and OpenAI's errors for everything else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response

import tokenrouter
from tokenrouter.config import Config
from tokenrouter.frontend import http_errors
from tokenrouter.frontend.access import Access
from tokenrouter.frontend.generate import Generate
from tokenrouter.frontend.information import Information
from tokenrouter.frontend.metrics import Metrics
from tokenrouter.frontend.openai_endpoints import RoutedChat, RoutedCompletion
from tokenrouter.frontend.protocol import ChatRequest, GenerateBody, TextRequest
from tokenrouter.frontend.tokenizer_manager import RoutedTokenizerManager
from tokenrouter.subserver.sglang_compat.serving import TemplateManager


def build_app(
    config: Config, manager: RoutedTokenizerManager, templates: TemplateManager
) -> FastAPI:
    """The application of a deployment whose members are up."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        manager.auto_create_handle_loop()
        yield

    app = FastAPI(title="TokenRouter", version=tokenrouter.__version__, lifespan=lifespan)
    http_errors.install(app)
    chat = RoutedChat(manager, templates, config)
    completion = RoutedCompletion(manager, templates, config)
    generate = Generate(manager, config)
    information = Information(config, manager)

    @app.post("/v1/chat/completions")
    async def chat_completions(body: ChatRequest, client: Request) -> Response:
        """OpenAI's chat completions, routed."""
        return await chat.respond(body, client)

    @app.post("/v1/completions")
    async def completions(body: TextRequest, client: Request) -> Response:
        """OpenAI's completions, routed."""
        return await completion.respond(body, client)

    @app.post("/generate")
    async def native_generate(body: GenerateBody, client: Request) -> Response:
        """SGLang's native endpoint, routed."""
        return await generate.respond(body, client)

    app.add_api_route("/v1/models", information.models)
    app.add_api_route("/health", information.health)
    app.add_api_route("/get_server_info", information.server_info)
    app.add_api_route("/get_model_info", information.model_info)
    app.add_api_route("/metrics", Metrics(config, manager).respond)
    app.add_middleware(Access, manager.traffic, config)  # last, and so around all others
    return app
