"""Two optimisers in one: orthogonalised momentum for matrices, Adam for everything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_MOMENTUM, _BETAS, _EPS = 0.95, (0.9, 0.98), 1e-9
_QUINTIC = (3.4445, -4.7750, 2.0315)  # coefficients of the Newton-Schulz iteration
_NOT_MATRICES = ("embed.weight", "head.weight", "gate.weight", "weights_proj", "confidence")


def is_matrix(name: str, tensor: Tensor) -> bool:
    """Whether a weight maps one hidden space to another (stacked experts included)."""
    return (
        tensor.dim() >= 2
        and "hc_" not in name
        and not any(n in name for n in _NOT_MATRICES)
        and not name.endswith(("q_weight", "k_weight"))
    )


class Optimiser:
    """Updates `weights` in place; `state` is all that a resumed training needs."""

    def __init__(self, weights: Mapping[str, Tensor], matrix_lr: float, lr: float) -> None:
        self.weights = weights
        self.matrix_lr, self.lr = matrix_lr, lr
        self.steps = 0
        self.first = {n: torch.zeros_like(w) for n, w in weights.items()}
        self.second = {n: torch.zeros_like(w) for n, w in weights.items() if not is_matrix(n, w)}
        groups: dict[tuple[int, ...], list[str]] = {}
        for name, weight in weights.items():
            if is_matrix(name, weight):
                groups.setdefault(tuple(weight.shape[-2:]), []).append(name)
        self.groups = groups

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], factor: float) -> None:
        """One update with both rates times `factor`."""
        self.steps += 1
        for shape, names in self.groups.items():
            self._matrices(shape, names, gradients, factor)
        b1, b2 = _BETAS
        for name, second in self.second.items():
            g, first = gradients[name], self.first[name]
            first.lerp_(g, 1 - b1)
            second.lerp_(g.square(), 1 - b2)
            root = (second / (1 - b2**self.steps)).sqrt().add_(_EPS)
            scale = self.lr * factor / (1 - b1**self.steps)
            self.weights[name].addcdiv_(first, root, value=-scale)

    def _matrices(
        self,
        shape: tuple[int, ...],
        names: list[str],
        gradients: Mapping[str, Tensor],
        factor: float,
    ) -> None:
        pushes = []
        for name in names:
            g, first = gradients[name], self.first[name]
            first.lerp_(g, 1 - _MOMENTUM)
            pushes.append(g.lerp(first, _MOMENTUM).view(-1, *shape))
        update = orthogonal(torch.cat(pushes))
        scale = self.matrix_lr * factor * max(1.0, shape[0] / shape[1]) ** 0.5
        parts = update.split([p.shape[0] for p in pushes])
        for name, part in zip(names, parts, strict=True):
            weight = self.weights[name]
            weight.mul_(1 - 0.01 * self.matrix_lr * factor)
            weight.add_(part.view(weight.shape), alpha=-scale)

    def state(self) -> dict[str, Any]:
        return {"steps": self.steps, "first": self.first, "second": self.second}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.steps = state["steps"]
        for mine, theirs in ((self.first, state["first"]), (self.second, state["second"])):
            for name, value in mine.items():
                value.copy_(theirs[name])


def orthogonal(matrices: Tensor) -> Tensor:
    """`[n, rows, columns]` with all singular values near one, by five iterations."""
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if is_tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-12)
    a, b, c = _QUINTIC
    for _ in range(5):
        square = x @ x.transpose(1, 2)
        x = a * x + (b * square + c * (square @ square)) @ x
    return x.transpose(1, 2) if is_tall else x
