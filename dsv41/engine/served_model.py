"""The model class that vLLM instantiates: official weights in, hidden states and logits out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.forward_context import get_forward_context
from vllm.sequence import IntermediateTensors

from dsv41 import envs, paths
from dsv41.engine.cache import LAYER_NAME, RecordCache
from dsv41.engine.kernels import lend_attend, lend_kernels
from dsv41.model.config import ModelConfig
from dsv41.model.draft import write_context
from dsv41.model.engram import hash_plans
from dsv41.model.forward import Forward, logits, replay_cut, run_layers
from dsv41.model.paged import PagedState, RecordLayout
from dsv41.model.params import ModelParams, bind
from dsv41.model.quant import Rounding
from dsv41.model.vocabulary import token_map
from dsv41.model.w8a8 import loader_of


class DeepseekV41ForCausalLM(nn.Module):
    """DeepSeek V4.1 over vLLM's paged cache; see `dsv41.model` for the architecture."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        parallel = vllm_config.parallel_config
        if parallel.tensor_parallel_size > 1 or parallel.pipeline_parallel_size > 1:
            raise ValueError("the CPU model is not split: use --data-parallel-size instead")
        directory = Path(vllm_config.model_config.model)
        self.config = ModelConfig.from_file(directory / "config.json")
        self.load = loader_of(directory)
        self.dtype = vllm_config.model_config.dtype
        self.rounding = Rounding(envs.rounding())
        self.token_map = token_map(self.config, directory)
        hash_plans(self.config)
        lend_kernels()
        lend_attend()
        drafts = vllm_config.speculative_config is not None
        stages = self.config.num_nextn_predict_layers if drafts else 0
        self.layout = RecordLayout(self.config, stages)
        self.cache = RecordCache(vllm_config, self.layout)
        self.drafts = stages > 0
        self.replay = envs.decoder_replay()
        if self.replay:
            replay_cut(self.config)
            if vllm_config.cache_config.enable_prefix_caching:
                raise ValueError(
                    "DSV41_DECODER_REPLAY=1 leaves window rows unwritten that a prefix hit would"
                    " read: add --no-enable-prefix-caching"
                )
        self.params: ModelParams | None = None
        self.state: PagedState | None = None

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        assert self.params is not None
        return nn.functional.embedding(input_ids, self.params.embed)

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: object,
    ) -> Tensor:
        """Folded streams `[num_tokens, hidden]`; padding and dummy runs give zeros."""
        assert self.params is not None
        out = torch.zeros(input_ids.shape[0], self.config.hidden_size, dtype=self.dtype)
        all_metadata = get_forward_context().attn_metadata
        if all_metadata is None:
            return out
        metadata = all_metadata[LAYER_NAME]
        self.state = PagedState(
            self.cache.records, self.layout, metadata.batch, self.config.sliding_window
        )
        run = Forward(self.config, self.state, self.rounding, replay=self.replay)
        ids = input_ids[: metadata.num_tokens].long()
        hidden = run_layers(self.params, run, ids, self.token_map)
        paths.publish()
        if self.drafts:
            write_context(hidden.captured, self.params.draft, run)
        if run.kept is not None:
            out[run.kept] = hidden.folded
            return out
        if len(ids) == len(out):
            return hidden.folded
        out[: len(ids)] = hidden.folded
        return out

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        assert self.params is not None
        return logits(hidden_states, self.params, self.config)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        flat, names = self.load(weights, self.config, self.dtype)
        self.params = bind(flat, self.config)
        return names
