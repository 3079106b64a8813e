"""Fixtures of the operator tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class SeededModel:
    """The small model: its official tensors `[out, in]`, and what the loaders make of them."""

    config: Any
    official: dict[str, Any]
    params: Any
    int8: dict[str, Any]
    int8_params: Any


@pytest.fixture(scope="session")
def seeded_model() -> SeededModel:
    """Seeded weights through the float and the W8A8 loader."""
    import torch

    from dsv41.model import make_checkpoint, w8a8
    from dsv41.model.config import ModelConfig
    from dsv41.model.init import init_weights
    from dsv41.model.loader import load_official
    from dsv41.model.params import bind

    config = ModelConfig.from_dict(make_checkpoint.small_raw_config())
    official = make_checkpoint.official_tensors(init_weights(config, 0), config)
    int8, _ = w8a8.convert(official, config)
    flat, _ = load_official(official.items(), config, torch.float32)
    joined, _ = w8a8.load_w8a8(int8.items(), config, torch.float32)
    return SeededModel(config, official, bind(flat, config), int8, bind(joined, config))
