"""The choices that SGLang's command line has, read from its source."""

from __future__ import annotations

import argparse
import inspect

from tokenrouter.configuration.sglang_choices import OURS, argument_choices


def test_they_are_those_of_its_parser() -> None:
    from tokenrouter.subserver.sglang_compat.serving import ServerArgs  # seconds: torch

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    fields = inspect.signature(ServerArgs).parameters
    told = {
        action.dest: tuple(action.choices)
        for action in parser._actions
        if action.choices is not None and action.dest in fields
    }
    del told["lora_target_modules"]  # a sum of lists, of what is not routed
    assert argument_choices() == told
    assert OURS.keys() <= told.keys()
