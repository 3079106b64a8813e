"""Verification of all requests at once; the service's own is vLLM's rejection sampler."""

import torch
from torch import Tensor

from dsv41.ops.exactness import Bitwise
from dsv41.ops.greedy_verification.native import OP


@OP.backend("cpu", exactness={"int64": Bitwise(because="comparisons of tokens")})
def cpu(logits: Tensor, drafts: Tensor) -> tuple[Tensor, Tensor]:
    # Of equal maxima the first, which argmax alone does not promise.
    v = logits.shape[-1]
    place = torch.where(logits == logits.amax(-1, keepdim=True), torch.arange(v), v)
    choice = place.amin(-1)
    k = drafts.shape[1]
    accepted = (choice[:, :k] == drafts).long().cumprod(1).sum(1)
    emitted = torch.arange(k + 1) <= accepted.unsqueeze(1)
    return torch.where(emitted, choice, -1), accepted
