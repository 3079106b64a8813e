"""A service that is not what the RunSpec asks for is INCONCLUSIVE, by name (P2.1, P2.2)."""

import shutil

import pytest

from tests.strategies.gates import SLOW, Gate, fake_profile, verify


@pytest.mark.rule("P2.2")
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        pytest.param(
            '"cache_config.enable_prefix_caching" = 1',
            "cache_config.enable_prefix_caching: asked 1, in effect True",
            id="coerced-from-1-to-true",
        ),
        pytest.param(
            '"additional_config.enable_fused_mc2" = 1',
            "additional_config.enable_fused_mc2: asked 1, the running server has no such key",
            id="silently-dropped",
        ),
    ],
)
def test_an_option_that_is_not_in_effect_is_named(gate, asked, says):
    run = gate(fake_profile(changes=[('"cache_config.block_size" = 32', asked)]))
    status, last, output = run.end()

    assert 10 == status, output
    assert last.startswith("INCONCLUSIVE run-1 P4.1: B1: ")
    assert says in last
    assert not (run.run_dir / "results/B1/C1").exists()
    assert 0 == verify(run.run_dir)[0]


@pytest.mark.rule("P2.1")
def test_a_weight_file_that_is_edited_in_a_run_is_named(model, tmp_path):
    mine = tmp_path / "model"
    shutil.copytree(model, mine)
    run = Gate(tmp_path, mine, fake_profile(extra=SLOW))
    run.wave("B1", "C1")
    (mine / "model.safetensors").write_bytes(b"\1" * 64)
    status, last, output = run.end()

    assert 10 == status, output
    assert last.startswith("INCONCLUSIVE run-1 P")
    assert "weights" in last or "model.safetensors" in last
    findings = run.json("results/B1/C1/attempt-1/findings.json")
    weights = next(one for one in findings if one["id"] == "weights")
    assert ("invalid", True) == (weights["outcome"], "model.safetensors" in weights["reason"])
    assert 0 == verify(run.run_dir)[0]
