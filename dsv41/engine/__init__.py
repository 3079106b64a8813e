"""The vLLM side: registration, the paged cache layer, the served model and its drafter.

Start a server on the CPU with

    LD_PRELOAD=<venv>/lib/libiomp5.so VLLM_CPU_KVCACHE_SPACE=1 VLLM_ENABLE_V1_MULTIPROCESSING=0 \\
    HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DSV41_FORK=1 VLLM_PLUGINS=dsv41 \\
    python -m vllm.entrypoints.openai.api_server --model DIR --served-model-name dsv41 \\
        --host 127.0.0.1 --port PORT --dtype float32 --enforce-eager --max-model-len 2048 \\
        --block-size 32 --num-gpu-blocks-override 512 --max-num-batched-tokens 512 \\
        --max-num-seqs 16 --enable-prompt-tokens-details --reasoning-parser deepseek_v41 \\
        --disable-uvicorn-access-log

and, for five drafts a step, add

    --speculative-config '{"method": "custom_class",
        "model": "dsv41.engine.proposer.DSparkProposer", "num_speculative_tokens": 5}'

Without DSV41_FORK the start takes some 8 s more; without VLLM_ENABLE_V1_MULTIPROCESSING=0, too.
With several data-parallel ranks add `--distributed-executor-backend uni`.
"""
