"""The seam to SGLang 0.5.1: the only package that imports its internals or patches anything.

Order matters in every process that uses SGLang: `cpu_imports.prepare_sglang_import` first, then any
import of SGLang, then `cpu_patches.apply_cpu_patches`, then `model_registry.register_models`.
"""
