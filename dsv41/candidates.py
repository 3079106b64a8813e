"""Changes that the gate can judge, as data; `python -m dsv41.candidates` writes the table.

The gate reads `candidates.json` beside this file and knows nothing else of this package.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_suffix(".json")
SCHEMA = 1

CANDIDATES: tuple[dict[str, Any], ...] = (
    {
        "name": "target-fused-attention-001",
        "hypothesis": (
            "one fused call per segment instead of two products, a mask, a copy of the scores and a"
            " softmax shortens every layer's attention; most where most rows are scored at once"
        ),
        "parent": "baseline",
        "parent_commit": None,
        "targets": ["C4", "C16"],
        "switch": {"DSV41_ATTEND": "fused"},
        "eligibility": "float32 without gradients, any shape; else the plain path is taken",
        "claim": "tolerance",
        "tolerance": "rtol 1e-4, atol 1e-5 of float32 outputs",
        "paths": ["attend/fused", "attend.*/fused"],
        "outcome": "open: see the record of runs",
        "source": "the attention of the model with its sink as one more key",
    },
    {
        "name": "target-sink-after-001",
        "hypothesis": (
            "adding the sink to the denominator after the scores saves the copy that appends it"
        ),
        "parent": "baseline",
        "parent_commit": None,
        "targets": ["C16"],
        "switch": {"DSV41_ATTEND": "sink-after"},
        "eligibility": "float32 without gradients, any shape; else the plain path is taken",
        "claim": "tolerance",
        "tolerance": "rtol 1e-4, atol 1e-5 of float32 outputs",
        "paths": ["attend/sink-after", "attend.*/sink-after"],
        "outcome": (
            "withdrawn on component time (P7.4): slower than the plain path at 6, 24 and 96 rows"
            " (bench/attend.py); performance was never judged"
        ),
        "source": "the same rule as in `target-native-sink-001` of the campaign, on the CPU",
    },
)


def table() -> bytes:
    """The file's bytes."""
    text = json.dumps({"schema": SCHEMA, "candidates": CANDIDATES}, indent=2, ensure_ascii=False)
    return text.encode() + b"\n"


if __name__ == "__main__":
    TABLE.write_bytes(table())
