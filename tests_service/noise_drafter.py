"""A planted fault: a drafter whose drafts are noise, as if its context were lost."""

from __future__ import annotations

import random

from dsv41.engine.proposer import DSparkProposer


class NoiseProposer(DSparkProposer):
    """Drafts random ordinary tokens for every request that sampled one."""

    def propose(self, sampled_token_ids, num_tokens_no_spec, token_ids_cpu, slot_mappings=None):
        source = random.Random(int(num_tokens_no_spec.sum()))
        return [
            [source.randrange(20, 250) for _ in range(self.num_drafts)] if sampled else []
            for sampled in sampled_token_ids
        ]
