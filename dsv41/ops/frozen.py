"""What exactness is declared, against the frozen table and the changes that were explained (P7.1).

`exactness_frozen.json` is never edited.  A new operator or another tolerance is a file in
`exactness_changes/`, applied in order of its name: the key, the text before (empty for a new
one), the text after, and why.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dsv41.ops.registry import Op

TABLE = Path(__file__).with_name("exactness_frozen.json")
CHANGES = Path(__file__).with_name("exactness_changes")
_SHORTEST_REASON = 40  # characters; less has not said why


class FreezeError(ValueError):
    """The table and the changes do not lead to what is declared; one line says where."""


def declared(ops: Iterable[Op]) -> dict[str, str]:
    """`op/backend/dtype` to the declared exactness, as text."""
    return {
        f"{op.name}/{backend.provider}/{dtype}": str(exactness)
        for op in ops
        for backend in op.backends.values()
        for dtype, exactness in backend.exactness.items()
    }


def frozen(table: Mapping[str, str], changes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The table after the changes; a change must know what it changes and say why."""
    result = dict(table)
    for change in changes:
        key, before, after = change["key"], change["before"], change["after"]
        if result.get(key, "") != before:
            raise FreezeError(f"{key}: {result.get(key, '')!r} stands, the change names {before!r}")
        if len(change["why"]) < _SHORTEST_REASON:
            raise FreezeError(f"{key}: the change does not say why")
        if after:
            result[key] = after
        else:
            result.pop(key)
    return result


def read_frozen() -> dict[str, str]:
    """The committed table with every committed change."""
    files = sorted(CHANGES.glob("*.toml")) if CHANGES.is_dir() else []
    changes = [
        change
        for path in files
        for change in tomllib.loads(path.read_text(encoding="utf-8"))["change"]
    ]
    return frozen(json.loads(TABLE.read_text(encoding="utf-8")), changes)


def differences(want: Mapping[str, str], got: Mapping[str, str]) -> list[str]:
    """One line per key that is not as frozen."""
    return [
        f"{key}: declared {got.get(key, 'nothing')!r}, frozen {want.get(key, 'nothing')!r}"
        for key in sorted(want.keys() | got.keys())
        if want.get(key) != got.get(key)
    ]
