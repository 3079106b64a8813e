"""All planted bugs of the oracle by name: the backbone's, and the draft's of T-32 ff.

`with planted("no-attention-sink"): ...` breaks the oracle inside the block only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import torch

from tests_ops.oracle import dspark, generate, numerics
from tests_ops.oracle.mutants_backbone import BACKBONE
from tests_ops.oracle.planting import Mutant, instead


def _causal_block(block: int, context: int) -> Any:
    ahead = torch.arange(block)[None, :] <= torch.arange(block)[:, None]
    return torch.cat((torch.ones(block, context, dtype=torch.bool), ahead), -1)


def _late_context(original: Any) -> Any:
    return lambda m, stage, projected, positions: original(m, stage, projected, positions + 1)


def _wrong_noise(m: Any, anchor: int) -> Any:
    return torch.tensor([anchor] + [0] * (m.cfg.dspark_block_size - 1))


def _reversed_captures(original: Any) -> Any:
    def draft(m: Any, main_hidden: Any, positions: Any, anchor: int) -> Any:
        parts = main_hidden.unflatten(-1, (len(m.cfg.dspark_target_layer_ids), -1))
        return original(m, parts.flip(-2).flatten(-2), positions, anchor)

    return draft


def _normed_confidence(original: Any) -> Any:
    """Confidence from x after the final norm (T-34)."""

    def read_out(m: Any, x: Any, anchor: int) -> Any:
        good = original(m, x, anchor)
        last = f"mtp.{m.cfg.num_nextn_predict_layers - 1}"
        normed = numerics.rms_norm(x, m.w[f"{last}.norm.weight"], m.cfg.rms_norm_eps)
        return replace(good, confidence=original(m, normed, anchor).confidence)

    return read_out


def _markov_of_anchor(original: Any) -> Any:
    """Every row corrected by the anchor instead of the previous draft."""

    def read_out(m: Any, x: Any, anchor: int) -> Any:
        rows = [original(m, x[i : i + 1], anchor) for i in range(x.shape[0])]
        return dspark.Draft(
            tokens=[row.tokens[0] for row in rows],
            base_logits=torch.cat([row.base_logits for row in rows]),
            logits=torch.cat([row.logits for row in rows]),
            confidence=torch.cat([row.confidence for row in rows]),
        )

    return read_out


DRAFT = [
    Mutant(
        name="draft-block-causal",
        module=dspark,
        function="block_mask",
        wrap=instead(_causal_block),
    ),
    Mutant(
        name="draft-context-one-late", module=dspark, function="context_rows", wrap=_late_context
    ),
    Mutant(
        name="draft-noise-id-wrong",
        module=dspark,
        function="block_ids",
        wrap=instead(_wrong_noise),
    ),
    Mutant(
        name="draft-captures-reversed",
        module=dspark,
        function="draft",
        wrap=_reversed_captures,
    ),
    Mutant(
        name="draft-confidence-after-norm",
        module=dspark,
        function="read_out",
        wrap=_normed_confidence,
    ),
    Mutant(
        name="draft-markov-from-anchor",
        module=dspark,
        function="read_out",
        wrap=_markov_of_anchor,
    ),
    Mutant(
        name="draft-no-main-norm",
        module=dspark,
        function="context_input",
        wrap=instead(lambda m, main: main @ m.w["mtp.0.main_proj.weight"].T),
    ),
]

MUTANTS = {mutant.name: mutant for mutant in BACKBONE + DRAFT}


def noise_drafter(seed: int) -> generate.Drafter:
    """A dead drafter: tokens that have nothing to do with the model."""
    source = torch.Generator().manual_seed(seed)

    def draft(m: Any, trace: Any, anchor: int) -> list[int]:
        size = (m.cfg.dspark_block_size,)
        return torch.randint(m.cfg.vocab_size, size, generator=source).tolist()

    return draft


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """The named bug is in the oracle inside the block."""
    mutant = MUTANTS[name]
    original = getattr(mutant.module, mutant.function)
    with mock.patch.object(mutant.module, mutant.function, mutant.wrap(original)):
        yield
