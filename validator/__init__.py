"""Re-judge a run directory from its raw bytes, with Python alone.

    python -m validator RUN_DIR
    python RUN_DIR/validator RUN_DIR

Nothing here is shared with what measured the run: agreement of the two is evidence.
"""

from .recomputation import recompute
from .strict import Refused
from .verification import Result, verify

__all__ = ["Refused", "Result", "recompute", "verify"]
