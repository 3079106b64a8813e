"""Acceptance length from two snapshots, as the report shows it."""

import pytest

from acceptance.records import Attempt
from acceptance.report.speculation import speculation


def _metrics(drafts, accepted, per_position):
    lines = [
        f'vllm:spec_decode_num_drafts_total{{engine="0"}} {drafts}',
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {accepted}',
    ]
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    lines += [f'{name}{{engine="0",position="{i}"}} {n}' for i, n in enumerate(per_position)]
    return "\n".join(lines) + "\n"


@pytest.fixture
def attempt(tmp_path):
    def write(*snapshots):
        directory = tmp_path / "results/B1/C4/attempt-1"
        directory.mkdir(parents=True)
        names = [f"metrics-{number}.txt" for number in range(len(snapshots))]
        for name, text in zip(names, snapshots, strict=True):
            (directory / name).write_text(text)
        return Attempt(
            schema=1, run_id="r", runspec_sha256="-", round="B1", level="C4", attempt=1,
            service_id="s", waves=(), metrics=tuple(names), identity=(), previous=None, reason=None,
        )  # fmt: skip

    return write


@pytest.mark.rule("P2.4")
def test_only_the_measured_wave_counts(tmp_path, attempt):
    one = attempt(_metrics(0, 0, (0, 0)), _metrics(100, 7, (5, 2)), _metrics(110, 22, (14, 8)))

    # 10 drafts, 15 accepted: 1 + 15/10; positions 9/10 and 6/10.
    assert "| B1 C4 | 0 | 10 | 15 | 2.50 | 0.90 0.60 |" in speculation(tmp_path, [one])


def test_a_dead_drafter_shows_1(tmp_path, attempt):
    one = attempt(_metrics(0, 0, (0,)), _metrics(8, 0, (0,)))

    assert "| 8 | 0 | 1.00 | 0.00 |" in speculation(tmp_path, [one])


def test_without_speculation_there_is_no_section(tmp_path, attempt):
    one = attempt('vllm:num_preemptions_total{engine="0"} 0\n', "# nothing\n")

    assert "" == speculation(tmp_path, [one])
