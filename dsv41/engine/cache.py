"""The paged cache as vLLM sees it: one layer whose page holds every record of the model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionMetadata,
    AttentionMetadataBuilder,
    CommonAttentionMetadata,
    MultipleOf,
)
from vllm.v1.kv_cache_interface import FullAttentionSpec

from dsv41.model.paged import Batch, RecordLayout

LAYER_NAME = "model.layers.0.attn.records"


@dataclass
class RecordMetadata(AttentionMetadata):
    """One step's batch; rows of `batch.block_table` stand in the order of the input batch."""

    batch: Batch
    num_tokens: int


class RecordMetadataBuilder(AttentionMetadataBuilder[RecordMetadata]):
    """Turns vLLM's common metadata into a `Batch`."""

    reorder_batch_threshold = None

    def __init__(
        self,
        kv_cache_spec: FullAttentionSpec,
        layer_names: list[str],
        vllm_config: VllmConfig,
        device: torch.device,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> RecordMetadata:
        common = common_attn_metadata
        num_reqs = common.num_reqs
        batch = Batch(
            query_start=common.query_start_loc_cpu[: num_reqs + 1].long(),
            seq_lens=common.seq_lens[:num_reqs].long(),
            block_table=common.block_table_tensor[:num_reqs].long(),
            block_size=self.kv_cache_spec.block_size,
        )
        return RecordMetadata(batch=batch, num_tokens=common.num_actual_tokens)


class RecordBackend(AttentionBackend):
    """A backend in name only: the model computes attention itself."""

    @staticmethod
    def get_name() -> str:
        return "DSV41_RECORDS"

    @staticmethod
    def get_impl_cls() -> type:
        raise NotImplementedError("the model computes attention itself")

    @staticmethod
    def get_builder_cls() -> type[RecordMetadataBuilder]:
        return RecordMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: object = None) -> list[MultipleOf]:
        # A block must not split a compression group.
        return [MultipleOf(2)]


class RecordCache(nn.Module, AttentionLayerBase):
    """The cache layer; `records` views vLLM's pages as `[num_slots, width]` float32."""

    def __init__(self, vllm_config: VllmConfig, layout: RecordLayout) -> None:
        super().__init__()
        self.layer_name, self.layout = LAYER_NAME, layout
        self.kv_cache = torch.tensor([])
        layers = vllm_config.compilation_config.static_forward_context
        if LAYER_NAME in layers:
            raise ValueError(f"a second model in one engine: {LAYER_NAME} exists already")
        layers[LAYER_NAME] = self
        if vllm_config.cache_config.block_size % 2:
            raise ValueError(
                f"--block-size {vllm_config.cache_config.block_size}: must be even, a block must"
                " not split a compression group"
            )

    def get_attn_backend(self) -> type[RecordBackend]:
        return RecordBackend

    def get_kv_cache_spec(self, vllm_config: VllmConfig) -> FullAttentionSpec:
        return FullAttentionSpec(
            block_size=vllm_config.cache_config.block_size,
            num_kv_heads=1,
            head_size=self.layout.width * torch.float32.itemsize,
            head_size_v=0,
            dtype=torch.uint8,
        )

    @property
    def records(self) -> Tensor:
        """All pages as float32 records, `[num_slots, width]`."""
        return self.kv_cache.view(-1, self.kv_cache.shape[-1]).view(torch.float32)
