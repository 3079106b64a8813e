"""Official tensors turned into the flat dictionary that `bind` reads."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from dsv41.model.config import ModelConfig
from dsv41.model.names import VISION_PREFIXES, Storage, TensorSpec, text_tensors
from dsv41.model.params import flat_tensors, stacked_name
from dsv41.model.quant import dequantise_fp4, dequantise_fp8_rows, dequantise_fp8_tiles

_SHOWN = 3  # names given in full in a complaint


class CheckpointError(ValueError):
    """The checkpoint does not hold the tensors that its config implies; one line says which."""


def load_official(
    weights: Iterable[tuple[str, Tensor]], config: ModelConfig, dtype: torch.dtype
) -> tuple[dict[str, Tensor], set[str]]:
    """The flat dictionary in `dtype` (float32 where the model demands it), and all names seen.

    Quantised weights may come with their `.scale` in any order; vision tensors are skipped.
    """
    table = {spec.name: spec for spec in text_tensors(config)}
    scales = {spec.scale_name: spec for spec in table.values() if spec.scale_name}
    flat = {
        spec.name: torch.empty(spec.shape, dtype=_kept(spec, dtype))
        for spec in flat_tensors(config)
    }
    waiting: dict[str, Tensor] = {}
    seen: set[str] = set()
    surplus: list[str] = []
    for name, tensor in weights:
        if name in seen:
            raise CheckpointError(f"tensor {name} comes twice")
        seen.add(name)
        if name in scales:
            spec, other = scales[name], scales[name].name
            weight, scale = waiting.pop(other, None), tensor
        elif name in table:
            spec, other = table[name], table[name].scale_name
            weight, scale = tensor, waiting.pop(other, None) if other else None
            if not _is_packed(tensor, spec):
                _store(flat, spec, tensor)
                continue
        elif name.startswith(VISION_PREFIXES):
            continue
        else:
            surplus.append(f"{name} {list(tensor.shape)}")
            continue
        if weight is None or scale is None:
            waiting[name] = tensor
        else:
            _store(flat, spec, dequantise(weight, scale, spec))
    lone_scales = [name for name in waiting if name in scales and scales[name].name in seen]
    missing = [f"{s.name} {list(s.stored_shape)}" for s in table.values() if s.name not in seen]
    missing += [
        f"{table[name].scale_name} {list(table[name].scale_shape or ())}"
        for name in waiting
        if name in table
    ]
    _complain("missing", missing)
    _complain("surplus", surplus + lone_scales)
    return flat, seen


def dequantise(weight: Tensor, scale: Tensor, spec: TensorSpec) -> Tensor:
    """Stored codes and scales to float32 values of the logical shape."""
    if tuple(scale.shape) != spec.scale_shape:
        raise CheckpointError(
            f"tensor {spec.scale_name}: shape {list(scale.shape)}, expected"
            f" {list(spec.scale_shape or ())}"
        )
    if spec.storage is Storage.FP4:
        return dequantise_fp4(weight, scale)
    if spec.storage is Storage.FP8_ROWS:
        return dequantise_fp8_rows(weight, scale)
    return dequantise_fp8_tiles(weight, scale)


def _kept(spec: TensorSpec, dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if spec.storage is Storage.F32 else dtype


def _is_packed(tensor: Tensor, spec: TensorSpec) -> bool:
    """Whether the tensor holds codes that need their scale; plain floats need none."""
    if spec.scale_name is None or tensor.dtype in (torch.float32, torch.bfloat16, torch.float16):
        return False
    if tuple(tensor.shape) != spec.stored_shape:
        raise CheckpointError(
            f"tensor {spec.name}: shape {list(tensor.shape)}, expected {list(spec.stored_shape)}"
        )
    return True


def _store(flat: dict[str, Tensor], spec: TensorSpec, value: Tensor) -> None:
    if tuple(value.shape) != spec.shape:
        raise CheckpointError(
            f"tensor {spec.name}: shape {list(value.shape)}, expected {list(spec.shape)}"
        )
    stacked = stacked_name(spec.name)
    target = flat[spec.name] if stacked is None else flat[stacked[0]][stacked[1]]
    target.copy_(value)


def _complain(kind: str, names: list[str]) -> None:
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise CheckpointError(f"{kind} tensors: {', '.join(names[:_SHOWN])}{more}")
