"""The table of model classes is the stock one, read instead of imported."""

import importlib
import sys
from pathlib import Path

import pytest

from tokenrouter.errors import ConfigError
from tokenrouter.subserver.sglang_compat.cpu_imports import prepare_sglang_import
from tokenrouter.subserver.sglang_compat.model_registry import ModelTable, register_models


@pytest.fixture(scope="module", autouse=True)
def _importable() -> None:
    prepare_sglang_import()


def test_declarations_of_every_form_are_read(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class A: ...\nEntryClass = A\n")
    (tmp_path / "list.py").write_text("EntryClass = [B, C]  # both\n")
    (tmp_path / "lines.py").write_text("EntryClass = [\n    D,  # not X\n    E,\n]\n")
    (tmp_path / "none.py").write_text("# EntryClass = F\n")
    assert list(ModelTable(tmp_path)) == ["D", "E", "B", "C", "A"]


def test_registered_classes_are_resolved() -> None:
    register_models(["Qwen3ForCausalLM", "LlamaForCausalLM"])
    registry = importlib.import_module("sglang.srt.models.registry").ModelRegistry
    for name in ("Qwen3ForCausalLM", "LlamaForCausalLM"):
        model, resolved = registry.resolve_model_cls([name])
        assert (model.__name__, resolved) == (name, name)


def test_another_architecture_is_imported_on_demand() -> None:
    register_models([])
    registry = importlib.import_module("sglang.srt.models.registry").ModelRegistry
    assert "OlmoForCausalLM" in registry.get_supported_archs()
    assert "sglang.srt.models.olmo" not in sys.modules
    assert registry.resolve_model_cls("OlmoForCausalLM")[1] == "OlmoForCausalLM"
    assert "sglang.srt.models.olmo" in sys.modules


def test_an_unknown_architecture_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="NoSuchModelForCausalLM"):
        register_models(["NoSuchModelForCausalLM"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_table_agrees_with_the_stock_scan() -> None:
    register_models([])
    registry = importlib.import_module("sglang.srt.models.registry")
    stock = registry.import_model_classes.__wrapped__()
    assert len(stock) > 50
    assert {name: registry.ModelRegistry.models[name] for name in stock} == stock
