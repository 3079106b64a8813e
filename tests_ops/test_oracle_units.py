"""The oracle's parts against values worked out by hand or printed in the specification."""

from __future__ import annotations

import pytest
import torch

from tests_ops.oracle import attention, hyper, indexer, model, moe, numerics, quant, rope
from tests_ops.oracle.config import Config
from tests_ops.oracle.tiny import RELEASED, TINY

pytestmark = pytest.mark.ops
RELEASED_CONFIG = Config.from_text_config(RELEASED)
TINY_CONFIG = Config.from_text_config(TINY)


@pytest.mark.parametrize(
    ("amax", "scale"),
    [(448.0, 1.0), (449.0, 2.0), (1e-5, 2.0**-22), (224.0, 0.5)],
    ids=["fp8-448", "fp8-449", "fp8-floor", "fp8-224"],
)
def test_fp8_scale_is_the_power_of_two_above(amax: float, scale: float) -> None:
    floored = torch.tensor(max(amax, 1e-4), dtype=torch.float64)

    assert float(quant.pow2ceil(floored / 448)) == scale


@pytest.mark.parametrize(
    ("amax", "scale"), [(6.0, 1.0), (6.1, 2.0)], ids=["fp4-6", "fp4-6-and-a-bit"]
)
def test_fp4_index_scale_is_the_power_of_two_above(amax: float, scale: float) -> None:
    assert float(quant.pow2ceil(torch.tensor(amax / 6))) == scale


def test_fp4_ties_go_to_the_even_code() -> None:
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])

    rounded = quant.to_e2m1(torch.cat((ties, -ties)))

    expected = torch.tensor([0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0])
    assert torch.equal(torch.cat((expected, -expected)), rounded)


def test_e4m3_rounding_equals_the_hardware_type_on_every_value_and_midpoint() -> None:
    grid = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    grid = grid[grid.isfinite()].unique()
    middles = (grid[1:] + grid[:-1]) / 2
    x = torch.cat((grid, middles, middles.nextafter(grid[1:]), middles.nextafter(grid[:-1])))

    assert torch.equal(x.to(torch.float8_e4m3fn).float(), quant.to_e4m3(x))


def test_fp8_act_rounds_each_block_of_32_with_its_own_scale() -> None:
    x = torch.zeros(1, 64)
    x[0, 0], x[0, 1] = 448.0, 17.0  # scale 1: 17 lies between 16 and 18 and ties to 16
    x[0, 32], x[0, 33] = 0.875, 0.53125  # scale 2^-9: 272 lies on the grid of step 32 -> 256

    expected = x.clone()
    expected[0, 1], expected[0, 33] = 16.0, 0.5
    assert torch.equal(expected, quant.fp8_act(x))


def test_fp4_latent_scale_is_itself_rounded_to_e4m3() -> None:
    x = torch.zeros(1, 16)
    x[0, 0], x[0, 1] = 6.6, 2.0
    # 6.6 / 6 = 1.1 -> E4M3 1.125; 6.6 / 1.125 = 5.87 -> 6; 2 / 1.125 = 1.78 -> 2

    expected = torch.zeros(1, 16)
    expected[0, 0], expected[0, 1] = 6.75, 2.25
    assert torch.equal(expected, quant.fp4_latent(x))


def test_fake_quantisation_of_zeros_is_zero() -> None:
    zeros = torch.zeros(2, 32)

    for round_trip in (quant.fp8_act, quant.fp4_index, quant.fp4_latent):
        assert torch.equal(zeros, round_trip(zeros))


def test_rms_norm_of_a_zero_vector_is_zero() -> None:
    out = numerics.rms_norm(torch.zeros(1, 8), torch.ones(8), 1e-20)

    assert torch.equal(torch.zeros(1, 8), out)


def test_top_k_gives_ties_to_the_smaller_index_and_never_picks_minus_infinity() -> None:
    scores = torch.tensor([[0.0, 1.0, 0.0, 0.0], [-torch.inf, 2.0, -torch.inf, -torch.inf]])

    expected = torch.tensor([[True, True, False, False], [False, True, False, False]])
    assert torch.equal(expected, numerics.top_k_mask(scores, 2))


def test_first_argmax_takes_the_smallest_index() -> None:
    assert numerics.first_argmax(torch.tensor([1.0, 3.0, 3.0])) == 1


def test_attention_sink_only_enlarges_the_denominator() -> None:
    # One key with score 0 and a sink of 0: half of the weight has no value.
    q, keys = torch.zeros(1, 1, 2), torch.tensor([[4.0, 2.0]])

    out = numerics.attend(q, keys, torch.ones(1, 1, dtype=torch.bool), torch.zeros(1))

    assert torch.equal(torch.tensor([[[2.0, 1.0]]]), out)


# Minimum list 8.8.5.
@pytest.mark.parametrize("spread", [1.0, 5.0], ids=["unit-logits", "peaky-logits"])
def test_sinkhorn_columns_sum_to_one(spread: float) -> None:
    logits = spread * torch.randn(200, 4, 4, generator=torch.Generator().manual_seed(0))

    comb = hyper.sinkhorn(TINY_CONFIG, logits)

    assert (comb.sum(-2) - 1).abs().max() < 1e-5


def test_sinkhorn_of_a_constant_matrix_is_uniform() -> None:
    comb = hyper.sinkhorn(TINY_CONFIG, torch.zeros(1, 4, 4))

    assert (comb - 0.25).abs().max() < 2e-6


def test_expand_sums_over_the_source_index() -> None:
    comb = torch.zeros(1, 2, 2)
    comb[0, 0, 1] = 1.0  # copy 0 flows to copy 1 and nowhere else
    residual = torch.tensor([[[3.0], [5.0]]])

    out = hyper.expand(torch.ones(1, 1), residual, torch.tensor([[10.0, 20.0]]), comb)

    assert torch.equal(torch.tensor([[[10.0], [23.0]]]), out)


# Minimum list 8.8.6.
def test_rope_table_b_has_the_golden_values() -> None:
    freqs = rope.frequencies(RELEASED_CONFIG, 2)
    golden = {
        0: 1.0,
        1: 0.687656,
        2: 0.472871,
        14: 0.00528686,
        15: 0.00363554,
        16: 0.00226563,
        20: 0.000296978,
        24: 1.95312e-5,
        25: 5.37231e-6,
        31: 5.68053e-7,
    }

    assert rope.yarn_bounds(RELEASED_CONFIG) == (15, 25)
    for i, value in golden.items():
        assert float(freqs[i]) == pytest.approx(value, rel=5e-6)


# Minimum list 8.8.6.
def test_rope_table_a_is_plain_and_differs_from_table_b() -> None:
    freqs = rope.frequencies(RELEASED_CONFIG, 0)

    assert float(freqs[0]) == 1.0
    assert float(freqs[31]) == pytest.approx(10000 ** (-62 / 64), rel=1e-12)
    assert not torch.allclose(freqs, rope.frequencies(RELEASED_CONFIG, 1))


def test_rotation_turns_adjacent_pairs_of_the_last_dims() -> None:
    x = torch.tensor([[9.0, 1.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    quarter = torch.tensor([torch.pi / 2, torch.pi])

    out = rope.rotate(x, torch.tensor([1]), quarter.double())

    expected = torch.tensor([[9.0, 0.0, 1.0, -1.0, 0.0]], dtype=torch.float64)
    assert torch.allclose(expected, out, atol=1e-6)


def test_inverse_rotation_undoes_the_rotation() -> None:
    x = torch.randn(5, 3, 64, dtype=torch.float64)
    positions, freqs = torch.arange(5) * 7, rope.frequencies(TINY_CONFIG, 2)

    back = rope.rotate_back(rope.rotate(x, positions, freqs), positions, freqs)

    assert torch.allclose(x, back, atol=1e-12)


def test_window_holds_w_rows_including_self() -> None:
    positions = torch.arange(12)

    mask = attention.window_mask(TINY_CONFIG, positions, torch.zeros(12, dtype=torch.int64))

    assert mask[11].nonzero().squeeze(-1).tolist() == [4, 5, 6, 7, 8, 9, 10, 11]
    assert mask[3].nonzero().squeeze(-1).tolist() == [0, 1, 2, 3]


def test_reach_counts_groups_whose_last_token_is_seen() -> None:
    positions = torch.arange(5)

    assert indexer.reach(positions, 2).tolist() == [0, 1, 1, 2, 2]
    assert indexer.reach(positions, 1).tolist() == [1, 2, 3, 4, 5]


def test_candidates_keep_the_best_blocks_and_the_newest() -> None:
    scores = torch.full((1, 14), -torch.inf)
    scores[0, :13] = torch.tensor([0, 9, 0, 0, 5, 0, 0, 0, 7, 7, 7, 7, -4.0])
    # Blocks of 4: maxima 9, 5, 7, -4. The newest reachable group is 12, so block 3 is pinned.

    mask = indexer.candidates(TINY_CONFIG, scores, torch.tensor([13]))

    assert mask[0].nonzero().squeeze(-1).tolist() == [0, 1, 2, 3, 12, 13]


def test_candidates_of_a_query_that_reaches_nothing_are_empty() -> None:
    scores = torch.full((1, 4), -torch.inf)

    mask = indexer.candidates(TINY_CONFIG, scores, torch.tensor([0]))

    assert not mask.any()


def test_equal_candidate_blocks_go_to_the_smaller_index() -> None:
    mask = indexer.candidates(TINY_CONFIG, torch.zeros(1, 16), torch.tensor([16]))

    assert mask[0].nonzero().squeeze(-1).tolist() == [0, 1, 2, 3, 12, 13, 14, 15]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(0.0, 3 / (1 + 2.718281828459045**-3) * 5), (1.0, 1 / (1 + 2.718281828459045**-1))],
    ids=["limit-0-is-off", "limit-1"],
)
def test_swiglu_clips_both_factors_before_silu(limit: float, expected: float) -> None:
    three, five = torch.tensor([3.0]).double(), torch.tensor([5.0]).double()

    assert float(moe.clipped_swiglu(three, five, limit)) == pytest.approx(expected, rel=1e-12)


def test_swiglu_does_not_clip_the_gate_from_below() -> None:
    gate, up = torch.tensor([-3.0]), torch.tensor([1.0])

    assert torch.equal(torch.nn.functional.silu(gate), moe.clipped_swiglu(gate, up, 1.0))


def test_replay_keeps_the_last_rows_of_each_chunk_and_floors_their_window() -> None:
    keep, floor = model.kept_rows(4, (10, 13))

    assert keep.tolist() == [6, 7, 8, 9, 10, 11, 12]
    assert floor.tolist() == [6, 6, 6, 6, 0, 0, 0]


def test_a_config_without_a_key_is_named() -> None:
    broken = {key: value for key, value in TINY.items() if key != "o_groups"}

    with pytest.raises(ValueError, match="text_config lacks o_groups"):
        Config.from_text_config(broken)
