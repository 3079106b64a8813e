"""The model's operators: one folder each with its meaning, its fast forms and its cases.

`load(name)` gives an operator with every backend that its folder holds; `cases_of(name)` gives
the data that tests, mutation runs and timings share.  Importing this package imports nothing
heavy; loading an operator imports torch and `vllm.ir`.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsv41.ops.case import Cases
    from dsv41.ops.registry import Op

_NOT_BACKENDS = ("native", "cases")
_SHARED = ("testing",)


def names() -> list[str]:
    """Every operator, in alphabetical order: the folders beside this file."""
    found = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(m.name for m in found if m.ispkg and m.name not in _SHARED)


def load(name: str) -> Op:
    """The operator with all its backends registered; a broken backend raises, it never hides."""
    package = importlib.import_module(f"dsv41.ops.{name}")
    op = importlib.import_module(f"dsv41.ops.{name}.native").OP
    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in _NOT_BACKENDS:
            importlib.import_module(f"dsv41.ops.{name}.{module.name}")
    op.settle()
    return op


def cases_of(name: str) -> Cases:
    """The cases of an operator."""
    return importlib.import_module(f"dsv41.ops.{name}.cases").CASES
