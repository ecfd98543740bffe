"""`tokenrouter train-router`: from prompts and a pair of models to the router of that pair."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenrouter.configuration.sources import DEMO_MODELS, DEMO_PREFIX
from tokenrouter.errors import ConfigError

if TYPE_CHECKING:
    from tokenrouter.router_training.judge import Judge

Small = Annotated[str, typer.Option(help="Folder of the small model.", metavar="FOLDER")]
Large = Annotated[str, typer.Option(help="Folder of the large one.", metavar="FOLDER")]
PromptFile = Annotated[
    Path,
    typer.Option(
        "--prompts",
        help="What is asked: lines of text, or of JSON with messages, prompt or text.",
        metavar="FILE",
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        help="What is written; the same command goes on with what is there.", metavar="FOLDER"
    ),
]
MaxTokens = Annotated[int, typer.Option(help="Longest answer.", metavar="N")]
BatchSize = Annotated[int, typer.Option(help="Prompts that are answered at once.", metavar="N")]
Device = Annotated[str, typer.Option(help="Where models compute, such as cuda:0.")]
Dtype = Annotated[str, typer.Option(help="Their precision; auto: as their weights say.")]
Template = Annotated[
    str,
    typer.Option(help='For the chat template, e.g. {"enable_thinking": false}.', metavar="JSON"),
]
Epsilon = Annotated[
    float,
    typer.Option(
        help="A token diverges where the large model gives it less probability.", metavar="X"
    ),
]
JudgeUrl = Annotated[
    str | None,
    typer.Option(
        help="Ask this OpenAI-compatible server (.../v1) which of them change the meaning.",
        metavar="URL",
    ),
]
JudgeModel = Annotated[str | None, typer.Option(help="Its model.", metavar="NAME")]
JudgeKey = Annotated[
    str | None,
    typer.Option(help="Its key.", metavar="KEY", envvar="TOKENROUTER_JUDGE_API_KEY"),
]
Width = Annotated[int, typer.Option(help="Of the network.", metavar="N")]
Blocks = Annotated[int, typer.Option(help="Of the network.", metavar="N")]
Expansion = Annotated[int, typer.Option(help="Widening inside of a block.", metavar="N")]
Normalize = Annotated[
    bool, typer.Option("--normalize-input", help="Layer norms and a softmax on what it reads.")
]
Rate = Annotated[float, typer.Option(help="Of AdamW.", metavar="X")]
Decay = Annotated[
    bool, typer.Option("--decay", help="Let the learning rate fall to zero over the epochs.")
]
WeightDecay = Annotated[float, typer.Option(help="Of AdamW.", metavar="X")]
Dropout = Annotated[float, typer.Option(help="Of the network.", metavar="X")]
Positions = Annotated[int, typer.Option(help="Tokens in a step of AdamW.", metavar="N")]
Epochs = Annotated[int, typer.Option(help="At most.", metavar="N")]
Patience = Annotated[
    int, typer.Option(help="Epochs without a lower validation loss that end it.", metavar="N")
]
Recall = Annotated[
    float, typer.Option(help="The threshold finds this share of divergent tokens.", metavar="X")
]
Share = Annotated[
    float | None,
    typer.Option(help="Or it sends this share of all tokens to the large model.", metavar="X"),
]
Seed = Annotated[int, typer.Option(help="Of the network and its training.", metavar="N")]
Json = Annotated[bool, typer.Option("--json", help="Tell programs instead of people.")]


def train_router(
    small: Small,
    large: Large,
    prompts: PromptFile,
    out: Out,
    max_tokens: MaxTokens = 1024,
    batch_size: BatchSize = 32,
    device: Device = "cpu",
    dtype: Dtype = "auto",
    chat_template_args: Template = "{}",
    epsilon: Epsilon = 0.1,
    judge_url: JudgeUrl = None,
    judge_model: JudgeModel = None,
    judge_api_key: JudgeKey = None,
    width: Width = 1024,
    blocks: Blocks = 6,
    expansion: Expansion = 4,
    normalize_input: Normalize = False,
    dropout: Dropout = 0.1,
    learning_rate: Rate = 5e-5,
    decay: Decay = False,
    weight_decay: WeightDecay = 5e-4,
    train_batch: Positions = 1024,
    epochs: Epochs = 50,
    patience: Patience = 5,
    recall: Recall = 0.95,
    share: Share = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train the router of a pair of models (algorithm r2r), offline, and report on it."""
    _check(
        {
            "--max-tokens": max_tokens,
            "--batch-size": batch_size,
            "--width": width,
            "--blocks": blocks,
            "--expansion": expansion,
            "--train-batch": train_batch,
            "--epochs": epochs,
            "--patience": patience,
        },
        {"--epsilon": epsilon, "--recall": recall, "--share": share},
        {"--learning-rate": learning_rate},
        {"--dropout": dropout, "--weight-decay": weight_decay},
    )
    template = _json_object(chat_template_args)
    judge = _judge(judge_url, judge_model, judge_api_key)

    from tokenrouter.calibration import prompts as sources
    from tokenrouter.cli_progress import progress_bars
    from tokenrouter.router_training import report
    from tokenrouter.router_training.fitting import Recipe
    from tokenrouter.router_training.pair import Placement
    from tokenrouter.router_training.run import Wanted, train

    recipe = Recipe(
        width=width,
        blocks=blocks,
        expansion=expansion,
        dropout=dropout,
        normalize_input=normalize_input,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        batch_size=train_batch,
        epochs=epochs,
        patience=patience,
        decay=decay,
        seed=seed,
    )
    wanted = Wanted(
        small=_folder(small),
        large=_folder(large),
        prompts=sources.read(prompts),
        out=out,
        max_tokens=max_tokens,
        batch_size=batch_size,
        epsilon=epsilon,
        recall=recall,
        share=share,
        recipe=recipe,
        placement=Placement(device, dtype),
        template=template,
        judge=judge,
        small_name=small,
    )
    with progress_bars(shown=not json, lines=True) as bars:
        found = train(wanted, bars)
    if json:
        typer.echo(report.as_json(found))
    else:
        report.show(found)


def _folder(model: str) -> Path:
    if model.startswith(DEMO_PREFIX):
        return DEMO_MODELS / model.removeprefix(DEMO_PREFIX)
    return Path(model).expanduser()


def _check(
    counts: dict[str, int],
    shares: dict[str, float | None],
    rates: dict[str, float],
    others: dict[str, float],
) -> None:
    """Refuse numbers out of range, all at once."""
    problems = [f"{flag}: must be from 1 on, got {n}" for flag, n in counts.items() if n < 1]
    problems += [
        f"{flag}: must be above 0 and at most 1, such as 0.1, got {value:g}"
        for flag, value in shares.items()
        if value is not None and not 0 < value <= 1
    ]
    problems += [
        f"{flag}: must be above 0 and at most 1, such as 5e-5, got {value:g}"
        for flag, value in rates.items()
        if not 0 < value <= 1
    ]
    problems += [
        f"{flag}: must be from 0 to below 1, got {value:g}"
        for flag, value in others.items()
        if not 0 <= value < 1
    ]
    if problems:
        raise ConfigError(*problems)


def _json_object(text: str) -> dict[str, Any]:
    try:
        content = json_format.loads(text)
    except json_format.JSONDecodeError as error:
        raise ConfigError(f"--chat-template-args: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(
            f'--chat-template-args: wants a JSON object such as {{"enable_thinking": false}}, '
            f"got {text}"
        )
    return content


def _judge(url: str | None, model: str | None, api_key: str | None) -> Judge | None:
    if (url is None) != (model is None):
        raise ConfigError("--judge-url, --judge-model: a judge needs both")
    if url is None or model is None:
        return None
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--judge-url: must begin with http:// or https://, got {url}")
    from tokenrouter.router_training.judge import Judge

    return Judge(url, model, api_key)
