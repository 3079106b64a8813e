"""The comparison finds one wrong bit, and no tolerance changes without a written reason."""

from __future__ import annotations

import hashlib

import pytest
import torch

from dsv41 import ops
from dsv41.ops import frozen
from dsv41.ops.exactness import Bitwise, Close, mismatch

pytestmark = pytest.mark.ops
# The table as it was frozen. A change of tolerance is a file in exactness_changes, never this.
TABLE_SHA256 = "9449ab3dea6996c846b47b1fc26e81af4f15a78a71c51208ef57caac9e3bde12"
BITS = Bitwise(because="test")
POSITIONS = Bitwise(nan="positions", because="test")
NEAR = Close(rtol=0.01, atol=0.001, because="test")


def bf16(*patterns: int) -> torch.Tensor:
    return torch.tensor(patterns, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


@pytest.mark.rule("P7.1")
def test_what_is_declared_is_what_was_frozen() -> None:
    now = frozen.declared(ops.load(name) for name in ops.names())

    assert [] == frozen.differences(frozen.read_frozen(), now)


@pytest.mark.rule("P7.1")
def test_the_frozen_table_is_the_one_that_was_committed() -> None:
    assert TABLE_SHA256 == hashlib.sha256(frozen.TABLE.read_bytes()).hexdigest()


def test_a_loosened_tolerance_is_found() -> None:
    want = {"norm/cpu/float32": "rtol 1e-06, atol 0"}

    found = frozen.differences(want, {"norm/cpu/float32": "rtol 0.01, atol 0"})

    assert ["norm/cpu/float32: declared 'rtol 0.01, atol 0', frozen 'rtol 1e-06, atol 0'"] == found


def test_a_change_that_says_why_is_taken() -> None:
    why = "the device adds in another order, measured on 1000 random rows"
    change = {"key": "a/cpu/float32", "before": "old", "after": "new", "why": why}

    assert {"a/cpu/float32": "new"} == frozen.frozen({"a/cpu/float32": "old"}, [change])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"before": "old", "after": "new", "why": "faster"}, "does not say why"),
        ({"before": "older", "after": "new", "why": "x" * 50}, "'old' stands"),
        ({"before": "", "after": "new", "why": "x" * 50}, "'old' stands"),
    ],
    ids=["no-reason", "another-before", "as-if-new"],
)
def test_a_change_without_reason_or_ground_is_refused(change: dict, complaint: str) -> None:
    with pytest.raises(frozen.FreezeError, match=complaint):
        frozen.frozen({"k": "old"}, [{"key": "k"} | change])


@pytest.mark.parametrize(
    ("got", "want", "exactness"),
    [
        (bf16(0x8000), bf16(0x0000), BITS),
        (bf16(0x7FC0), bf16(0x7FFF), BITS),
        (bf16(0xFFC0), bf16(0x7FC0), BITS),
        (bf16(0x3F81), bf16(0x3F80), BITS),
        (bf16(0x8000), bf16(0x0000), POSITIONS),
        (bf16(0x7FC0), bf16(0x3F80), POSITIONS),
        (torch.tensor([1.02]), torch.tensor([1.0]), NEAR),
        (torch.tensor([torch.nan]), torch.tensor([1.0]), NEAR),
        (torch.tensor([1.0]), torch.tensor([torch.nan]), NEAR),
        (torch.tensor([torch.inf]), torch.tensor([-torch.inf]), NEAR),
        (torch.tensor([3e38]), torch.tensor([torch.inf]), NEAR),
        (torch.tensor([1]), torch.tensor([2]), None),
        (torch.tensor([1.0]), torch.tensor([1]), NEAR),
        (torch.ones(2), torch.ones(1), NEAR),
        (torch.ones(1), torch.ones(1), None),
    ],
    ids=[
        "sign-of-zero",
        "nan-payload",
        "nan-sign",
        "last-bit",
        "sign-of-zero-positions",
        "nan-for-number",
        "too-far",
        "nan-got",
        "nan-wanted",
        "other-infinity",
        "large-for-infinity",
        "integer",
        "dtype",
        "shape",
        "undeclared",
    ],
)
def test_a_difference_is_found(got: torch.Tensor, want: torch.Tensor, exactness) -> None:
    assert mismatch(got, want, exactness) is not None


@pytest.mark.parametrize(
    ("got", "want", "exactness"),
    [
        (bf16(0xFFC1), bf16(0xFFC1), BITS),
        (bf16(0x7FC0), bf16(0x7FFF), POSITIONS),
        (torch.tensor([1.01]), torch.tensor([1.0]), NEAR),
        (torch.tensor([torch.inf, torch.nan]), torch.tensor([torch.inf, torch.nan]), NEAR),
        (torch.tensor([7]), torch.tensor([7]), None),
    ],
    ids=["same-nan", "nan-by-position", "within", "specials", "integers"],
)
def test_what_may_be_equal_is_equal(got: torch.Tensor, want: torch.Tensor, exactness) -> None:
    assert mismatch(got, want, exactness) is None


def test_a_mismatch_names_count_place_values_and_bits() -> None:
    got = bf16(0x3F80, 0x3F81, 0x8000).view(1, 3)
    want = bf16(0x3F80, 0x3F80, 0x0000).view(1, 3)

    line = mismatch(got, want, BITS)

    assert line == (
        "2 of 3 differ, first at [0, 1]: 1.0078125, not 1.0"
        " (0x3f81, not 0x3f80; largest difference 0.00781)"
    )
