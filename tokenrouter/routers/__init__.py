"""Trained routers: their networks and their files. Torch, no SGLang.

`r2r` and `citer` are networks; `checkpoint` and `citer` read files, `tensors` the formats below
them. Members evaluate them in `subserver.sglang_compat.networks`.
"""
