"""W8A8 in the Ascend layout: int8 weights per output channel, activations int8 per token.

    python -m dsv41.model.w8a8 --in DIR --out DIR

converts a float checkpoint.  A quantised linear is `X.weight` int8 `[out, in]` beside
`X.weight_scale` and `X.weight_offset` `[out, 1]` (symmetric: the offsets are 0);
`quant_model_description.json` says W8A8_DYNAMIC or FLOAT of every tensor, and the config says
`"quant_method": "ascend"`.
Products are those of the integers: float32 sums of int8 products are exact up to 1040 inputs, and
float64 ones beyond.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from dsv41.model.config import ConfigError, ModelConfig
from dsv41.model.files import read_tensors
from dsv41.model.loader import CheckpointError, load_official
from dsv41.model.names import text_tensors
from dsv41.model.params import stacked_name

QUANT_METHOD = "ascend"
DESCRIPTION = "quant_model_description.json"
WEIGHTS = "quant_model_weights.safetensors"
DYNAMIC, FLOAT = "W8A8_DYNAMIC", "FLOAT"
_SCALE, _OFFSET = ".weight_scale", ".weight_offset"
_LINEARS = (".attn.wq_a", ".attn.wq_b", ".attn.wkv", ".indexer.wq_b", ".w1", ".w2", ".w3")
_TABLE = ".engram.embed.weight"
_TABLE_GROUP = 32
_EXACT_INPUTS = 2**24 // 127**2  # more products of int8 may not sum exactly in float32


def is_w8a8(raw: Mapping[str, Any]) -> bool:
    """Whether a `config.json` describes this layout."""
    return (raw.get("quantization_config") or {}).get("quant_method") == QUANT_METHOD


def loader_of(directory: Path) -> Callable[..., tuple[dict[str, Any], set[str]]]:
    """What reads the checkpoint of `directory`: `load_w8a8`, or `load_official` for any other."""
    raw = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    return load_w8a8 if is_w8a8(raw) else load_official


def is_linear(name: str) -> bool:
    """Whether the tensor of this official name is a quantised linear's weight.

    Not: wo_a, wo_b, compressors, wk, weights_proj, router, norms, mixes, sinks, Engram's wkv,
    main_proj and the heads.
    """
    return name.removesuffix(".weight").endswith(_LINEARS) and name.endswith(".weight")


class Int8Weight:
    """Integer codes (held as floats) and a scale per output channel, used like a weight tensor.

    `codes [..., in, out]` and `scale [..., 1, out]`, or both transposed.  `x @ w` quantises each
    row of `x` to int8 first.  Only what the model does with these weights is defined.
    """

    def __init__(self, codes: Tensor, scale: Tensor) -> None:
        self.codes, self.scale = codes, scale

    # Experts of int8 stay apart: each has scales of its own, so no product may span several.
    requires_grad = True

    @property
    def shape(self) -> torch.Size:
        return self.codes.shape

    def transpose(self, a: int, b: int) -> Int8Weight:
        return Int8Weight(self.codes.transpose(a, b), self.scale.transpose(a, b))

    def t(self) -> Int8Weight:
        return self.transpose(0, 1)

    def index_select(self, dim: int, index: Tensor) -> Int8Weight:
        if dim != 0 or self.codes.dim() != 3:
            raise TypeError("an int8 weight is picked by expert only")
        return Int8Weight(self.codes.index_select(0, index), self.scale.index_select(0, index))

    def dequantised(self) -> Tensor:
        """The float weight that the codes stand for."""
        return self.codes * self.scale

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function is torch.cat:
            return _join(*args, **(kwargs or {}))
        if function in _PRODUCTS:
            return _product(args[0], args[1])
        raise TypeError(f"{function.__name__} is not defined for an int8 weight")


_PRODUCTS = (torch.matmul, torch.bmm, torch.mm, torch.Tensor.matmul, torch.Tensor.__matmul__)


def _join(parts: Sequence[Int8Weight], dim: int = 0) -> Int8Weight:
    """Side by side along the outputs of `[..., out, in]`."""
    if dim not in (-2, parts[0].codes.dim() - 2):
        raise TypeError("int8 weights are joined along their outputs only")
    return Int8Weight(
        torch.cat([p.codes for p in parts], dim), torch.cat([p.scale for p in parts], dim)
    )


def _product(x: Tensor, weight: Int8Weight) -> Tensor:
    codes, step = quantise_tokens(x)
    wide = torch.float32 if x.shape[-1] <= _EXACT_INPUTS else torch.float64
    total = torch.matmul(codes.to(wide), weight.codes.to(wide)).float()
    return (total * weight.scale * step).to(x.dtype)


def quantise_tokens(x: Tensor) -> tuple[Tensor, Tensor]:
    """Integer codes of `x [..., in]` as float32 and the step of each token, `[..., 1]`."""
    wide = x.float()
    step = wide.abs().amax(-1, keepdim=True) / 127
    # A token of zeros has no step; any will do.
    step = torch.where(step > 0, step, 1.0)
    return (wide / step).round().clamp(-128, 127), step


def quantise_channels(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Int8 codes of `weight [out, in]` and the scale of each output channel, `[out, 1]`."""
    scale = weight.float().abs().amax(-1, keepdim=True) / 127
    scale = torch.where(scale > 0, scale, 1.0)
    return (weight.float() / scale).round().to(torch.int8), scale


def load_w8a8(
    weights: Iterable[tuple[str, Tensor]], config: ModelConfig, dtype: torch.dtype
) -> tuple[dict[str, Any], set[str]]:
    """The flat dictionary with an `Int8Weight` for every quantised linear, and all names seen."""
    held, seen = dict(weights), set[str]()
    plain, scales = {}, {}
    for name, tensor in held.items():
        base = name.removesuffix(".weight")
        if name.endswith((_SCALE, _OFFSET, "embed.scale")):
            continue
        if is_linear(name):
            scales[name] = _scale_of(held, name, tensor)
            seen |= {base + _SCALE, base + _OFFSET}
        elif name.endswith(_TABLE) and tensor.dtype is torch.int8:
            step = _needed(held, base + ".scale", (len(tensor), tensor.shape[1] // _TABLE_GROUP))
            seen.add(base + ".scale")
            tensor = tensor.float() * step.repeat_interleave(_TABLE_GROUP, 1)
        plain[name] = tensor.float() if tensor.dtype is torch.int8 else tensor
    lone = sorted(set(held) - set(plain) - seen)
    if lone:
        raise CheckpointError(f"1 surplus tensor or more: {lone[0]} {list(held[lone[0]].shape)}")
    flat, names = load_official(plain.items(), config, dtype)
    return _with_scales(flat, scales), names | seen


def _scale_of(held: Mapping[str, Tensor], name: str, codes: Tensor) -> Tensor:
    if codes.dtype is not torch.int8:
        raise CheckpointError(f"tensor {name}: {codes.dtype}, expected int8")
    base, shape = name.removesuffix(".weight"), (codes.shape[0], 1)
    if _needed(held, base + _OFFSET, shape).any():
        raise CheckpointError(f"tensor {base + _OFFSET}: not zero; only symmetric weights are read")
    return _needed(held, base + _SCALE, shape).float()


def _needed(held: Mapping[str, Tensor], name: str, shape: tuple[int, ...]) -> Tensor:
    found = held.get(name)
    if found is None or tuple(found.shape) != shape:
        what = "missing" if found is None else f"shape {list(found.shape)}"
        raise CheckpointError(f"tensor {name}: {what}, expected {list(shape)}")
    return found


def _with_scales(flat: dict[str, Tensor], scales: Mapping[str, Tensor]) -> dict[str, Any]:
    joined: dict[str, Any] = dict(flat)
    parts: dict[str, dict[int, Tensor]] = {}
    for name, scale in scales.items():
        head, expert = stacked_name(name) or (name, -1)
        parts.setdefault(head, {})[expert] = scale
    for name, found in parts.items():
        scale = found[-1] if -1 in found else torch.stack([found[e] for e in range(len(found))])
        joined[name] = Int8Weight(flat[name].float(), scale)
    return joined


def convert(
    weights: Mapping[str, Tensor], config: ModelConfig
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Official float tensors to the quantised ones and their description."""
    out, description = {}, {"model_quant_type": DYNAMIC}
    for spec in text_tensors(config):
        name, base, tensor = spec.name, spec.name.removesuffix(".weight"), weights[spec.name]
        made = {name: tensor}
        if is_linear(name):
            codes, scale = quantise_channels(tensor)
            made = {name: codes, base + _SCALE: scale, base + _OFFSET: torch.zeros_like(scale)}
        elif name.endswith(_TABLE):
            codes, scale = quantise_channels(tensor.reshape(-1, _TABLE_GROUP))
            made = {
                name: codes.view(tensor.shape),
                base + ".scale": scale.view(len(tensor), -1),
            }
        kind = DYNAMIC if is_linear(name) else FLOAT
        description |= dict.fromkeys(made, kind)
        out |= made
    return {n: t.contiguous().clone() for n, t in out.items()}, description


def convert_directory(source: Path, out: Path) -> None:
    """A float checkpoint directory to a W8A8 one, which must not exist and appears complete."""
    raw = json.loads((source / "config.json").read_text(encoding="utf-8"))
    if is_w8a8(raw):
        raise ConfigError(f"{source}: is W8A8 already")
    config = ModelConfig.from_dict(raw, where=str(source / "config.json"))
    tensors, description = convert(dict(read_tensors(source)), config)
    raw["quantization_config"] = {"quant_method": QUANT_METHOD, "description": DESCRIPTION}
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as name:
        work = Path(name) / "checkpoint"
        work.mkdir()
        for file in sorted(source.glob("tokenizer*.json")):
            shutil.copyfile(file, work / file.name)
        for file, value in (("config.json", raw), (DESCRIPTION, description)):
            text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
            (work / file).write_text(text, encoding="utf-8")
        save_file(tensors, str(work / WEIGHTS))
        for path in work.iterdir():
            path.chmod(0o644)
            with path.open("rb") as handle:
                os.fsync(handle.fileno())
        os.rename(work, out)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dsv41.model.w8a8")
    parser.add_argument("--in", dest="source", type=Path, required=True, help="float checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="directory to create")
    arguments = parser.parse_args(argv)
    try:
        if arguments.out.exists():
            raise ConfigError(f"{arguments.out}: exists already; choose another directory")
        convert_directory(arguments.source, arguments.out)
    except (ValueError, OSError, KeyError) as error:
        sys.stderr.write(f"w8a8: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
