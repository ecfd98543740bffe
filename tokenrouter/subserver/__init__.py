"""One member of a route: its event loop, visits, delayed batching and memory policy.

Everything here but `sglang_compat` is free of torch and SGLang and drives an `Engine`.
"""
