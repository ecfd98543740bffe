"""The addresses that SGLang's own classes are built with."""

from __future__ import annotations

from sglang.srt.server_args import PortArgs

NOWHERE = "inproc://nowhere-"
"""Where SGLang's own links end: messages travel in our frames, never as its pickles."""


def sglang_ports(nccl_port: int = 0) -> PortArgs:
    """SGLang's port argument for a tokenizer manager or a scheduler of ours."""
    return PortArgs(
        tokenizer_ipc_name=f"{NOWHERE}tokenizer",
        scheduler_input_ipc_name=f"{NOWHERE}scheduler",
        detokenizer_ipc_name=f"{NOWHERE}detokenizer",
        nccl_port=nccl_port,
        rpc_ipc_name=f"{NOWHERE}rpc",
        metrics_ipc_name=f"{NOWHERE}metrics",
    )
