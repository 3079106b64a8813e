"""What has to be told to vLLM before it can serve the model on the CPU."""

from __future__ import annotations

import os

from dsv41 import envs

ARCHITECTURE = "DeepseekV41ForCausalLM"
MODEL_TYPE = "deepseek_v41"


def register_cpu() -> None:
    """Register class and configuration; idempotent."""
    from vllm.model_executor.models import ModelRegistry

    from dsv41.engine.served_model import DeepseekV41ForCausalLM

    # The class itself, not its name: a name is inspected in a subprocess, 8-10 s on two cores.
    ModelRegistry.register_model(ARCHITECTURE, DeepseekV41ForCausalLM)
    _correct_architecture()
    if envs.fork_engine():
        _fork_engine()


def _correct_architecture() -> None:
    """Say that the model is not MLA, and that its formats are no business of vLLM's.

    vLLM's CPU platform switches chunked prefill and prefix caching off for MLA models and
    exempts only the previous generation by name.
    """
    from vllm.transformers_utils import model_arch_config_convertor as convertors

    class Convertor(convertors.ModelArchConfigConvertorBase):
        def is_deepseek_mla(self) -> bool:
            return False

        def get_quantization_config(self) -> None:
            # The loader reads the released formats itself; vLLM's CPU back end would refuse them.
            return None

    convertors.MODEL_ARCH_CONFIG_CONVERTORS[MODEL_TYPE] = Convertor


def _fork_engine() -> None:
    """Let the engine process be forked: vLLM's CPU platform asks for spawn unconditionally."""
    from vllm.platforms.cpu import CpuPlatform

    if getattr(CpuPlatform, "dsv41_forks", False):
        return
    original = CpuPlatform.check_and_update_config.__func__

    def check_and_update_config(cls: type, vllm_config: object) -> None:
        original(cls, vllm_config)
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)
    CpuPlatform.dsv41_forks = True
