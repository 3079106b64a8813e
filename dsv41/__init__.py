"""DeepSeek V4.1 Flash for vLLM: a plugin that serves the model on the CPU.

`register` is the entry point `dsv41` of the group `vllm.general_plugins`.
"""


def register() -> None:
    """Make vLLM's CPU platform use this package's model class; other platforms keep their own.

    vLLM calls this in every one of its processes, and may call it twice.
    """
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from dsv41.engine.registration import register_cpu

    register_cpu()
