"""DeepSeek V4.1 Flash, the architecture: engine-agnostic PyTorch, text only.

`forward_full` runs whole sequences and is differentiable; the serving engine runs the same
layers over a paged state.  Importing this package imports torch and nothing of any engine.
"""

from dsv41.model.config import ConfigError, ModelConfig
from dsv41.model.full import draft_full, forward_full, forward_hidden

__all__ = ["ConfigError", "ModelConfig", "draft_full", "forward_full", "forward_hidden"]
