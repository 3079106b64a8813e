"""The independent oracle: DeepSeek V4.1 by full recomputation, plain torch, no cache.

Written from the architecture's specification alone; it shares no module with `dsv41`.
A model is a mapping of tensors under the official names plus the `text_config` dict.
Text only: vision, image spans and their router bias are out of scope.
"""

from tests_ops.oracle.config import Config, Model, build_model
from tests_ops.oracle.dspark import Draft, draft
from tests_ops.oracle.generate import Generation, generate, generate_with_drafts
from tests_ops.oracle.model import Replay, Trace, forward

__all__ = [
    "Config",
    "Draft",
    "Generation",
    "Model",
    "Replay",
    "Trace",
    "build_model",
    "draft",
    "forward",
    "generate",
    "generate_with_drafts",
]
