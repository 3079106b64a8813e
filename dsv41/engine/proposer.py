"""DSpark as a `custom_class` proposer: five drafts per request from the paged draft context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from dsv41 import paths
from dsv41.model.draft import Context, Drafts, context_field, draft_hidden, greedy_drafts

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from dsv41.engine.served_model import DeepseekV41ForCausalLM


class DSparkProposer:
    """Drafts for every request that sampled a token, in one batched draft forward.

    The context rows lie in the target's pages, written by its own forward, so a prefix hit, a
    preemption or a rejection leaves nothing to repair here.
    """

    def __init__(self, vllm_config: VllmConfig) -> None:
        self.num_drafts = vllm_config.speculative_config.num_speculative_tokens
        self.model: DeepseekV41ForCausalLM | None = None

    def load_model(self, target: DeepseekV41ForCausalLM) -> None:
        """Take the target, whose weights, embedding, head and pages the drafts share."""
        size = target.config.dspark_block_size
        if not target.drafts:
            raise ValueError("num_nextn_predict_layers is 0: this checkpoint has no draft stages")
        if self.num_drafts > size:
            raise ValueError(
                f"num_speculative_tokens is {self.num_drafts}, but the draft block has {size}"
            )
        self.model = target

    @torch.inference_mode()
    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: np.ndarray,
        token_ids_cpu: np.ndarray,
        slot_mappings: object = None,
    ) -> list[list[int]]:
        """Draft tokens per request of the batch; none for an unfinished prefill."""
        rows = [i for i, sampled in enumerate(sampled_token_ids) if sampled]
        out: list[list[int]] = [[] for _ in sampled_token_ids]
        if not rows:
            return out
        lengths = num_tokens_no_spec[rows]
        # The newest token, not yet processed, is the anchor; context ends just before it.
        anchor = torch.from_numpy(token_ids_cpu[rows, lengths - 1].astype(np.int64))
        last = torch.from_numpy(lengths.astype(np.int64)) - 2
        drafts = self._draft(torch.tensor(rows), anchor, last)
        self._report(drafts)
        for row, tokens in zip(rows, drafts.tokens.tolist(), strict=True):
            out[row] = tokens[: self.num_drafts]
        return out

    def _draft(self, request: torch.Tensor, anchor: torch.Tensor, last: torch.Tensor) -> Drafts:
        model = self.model
        assert model is not None
        assert model.params is not None
        assert model.state is not None
        contexts = [
            Context(*model.state.window_before(context_field(model.config, stage), request, last))
            for stage in range(model.config.num_nextn_predict_layers)
        ]
        folded = draft_hidden(model.params, model.config, anchor, last, contexts, model.rounding)
        return greedy_drafts(folded, anchor, model.params, model.config)

    def _report(self, drafts: Drafts) -> None:
        """Count the drafts and sum the confidence head's estimates, position by position."""
        paths.count("dspark.propose", "batched", rows=drafts.tokens.shape[0])
        for i, estimate in enumerate(drafts.confidence.sigmoid().sum(0).tolist()):
            paths.add(f"dspark.confidence.{i}", estimate)
        paths.publish()
