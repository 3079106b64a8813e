"""What a running server really is configured as, compared key by key with what was asked (P2.2).

A key that was dropped silently, or coerced from `1` to `true`, is another configuration.
"""

from collections.abc import Mapping
from typing import Any

from acceptance.canonical import canonical

Setting = str | int | bool


def settings(config: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Setting]:
    """The asked keys of vLLM's configuration by dotted name; those that it lacks are left out.

    null becomes "null"; a number that is no integer its shortest decimal text; a list or mapping
    its canonical JSON. So every value is a setting of one of three kinds, and none is unknown.
    """
    found = {}
    for key in keys:
        value: Any = config
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                break
            value = value[part]
        else:
            found[key] = _setting(value)
    return found


def _setting(value: Any) -> Setting:
    if isinstance(value, bool | int | str):
        return value
    if value is None:
        return "null"
    if isinstance(value, float):
        return repr(value)
    return canonical(value).decode()


def differences(
    found: Mapping[str, Setting] | None, expected: Mapping[str, Setting], *, is_complete: bool
) -> tuple[str, ...]:
    """One line for each key that is not exactly as asked, in kind as well as in value.

    `is_complete`: what was read is the whole configuration, so that an absent key was dropped.
    """
    if found is None:
        return ("the effective configuration can't be read back",) if expected else ()
    absent = "the running server has no such key" if is_complete else "it can't be read back"
    lines = []
    for key, wanted in sorted(expected.items()):
        if key not in found:
            lines.append(f"{key}: asked {wanted!r}, {absent}")
        elif type(found[key]) is not type(wanted) or found[key] != wanted:
            lines.append(f"{key}: asked {wanted!r}, in effect {found[key]!r}")
    return tuple(lines)
