"""The trained weights on the frozen questions, and faults that must cost answers."""

import pytest
import torch

from acceptance import gsm8k
from dsv41.tiny import checkpoint, data, eval, questions
from dsv41.tiny.acceptance_length import measure
from dsv41.tiny.decode import accepted, greedy

pytestmark = [pytest.mark.accuracy, pytest.mark.timeout(1200)]

THRESHOLD = 292


@pytest.fixture(scope="module")
def made():
    torch.set_num_threads(1)
    return eval.setup()


@pytest.fixture(scope="module")
def tensors():
    return checkpoint.load_weights()


@pytest.fixture(scope="module")
def asked():
    return questions.load()


@pytest.fixture(scope="module")
def served(made, tensors, asked):
    """The W8A8 model's parameters and its answers."""
    params = eval.w8a8_params(tensors, made.config)
    return params, eval.evaluate(params, made, asked)


def test_float32_answers_at_least_295_of_300(made, tensors, asked):
    params = eval.float_params(tensors, made.config)
    assert sum(eval.evaluate(params, made, asked).right) >= 295


def test_w8a8_answers_at_least_292_of_300(served):
    assert sum(served[1].right) >= THRESHOLD


def test_drafts_make_three_tokens_a_step(made, served, asked):
    params, result = served
    assert eval.acceptance(params, made, result, asked).length >= 3.0


def test_answers_are_short_and_end(served):
    assert all(t[-1] == 1 and len(t) <= data.ANSWER_TOKENS for t in served[1].tokens)


def test_the_count_is_that_of_the_accuracy_stage(served, asked):
    for text, right, question in zip(served[1].texts, served[1].right, asked, strict=True):
        assert gsm8k.score(text, question.answer).correct is right


def test_halved_scales_of_one_layer_fall_below_the_threshold(made, tensors, asked):
    quantised, _ = eval.convert(tensors, made.config)
    for name, tensor in quantised.items():
        if name.startswith("layers.3.") and name.endswith(".weight_scale"):
            quantised[name] = tensor * 0.5
    flat, _ = eval.load_w8a8(quantised.items(), made.config, torch.float32)
    result = eval.evaluate(eval.bind(flat, made.config), made, asked)
    assert sum(result.right) < THRESHOLD


def test_a_wrong_sink_sign_falls_below_the_threshold(made, tensors, asked):
    wrong = {n: -t if n.endswith("attn_sink") else t for n, t in tensors.items()}
    result = eval.evaluate(eval.w8a8_params(wrong, made.config), made, asked)
    assert sum(result.right) < THRESHOLD


def test_a_drafter_that_returns_noise_is_seen(made, tensors, served, asked):
    random_ = torch.Generator().manual_seed(3)
    noise = {
        n: torch.randn(t.shape, generator=random_) if n.startswith("mtp.") and t.dim() > 1 else t
        for n, t in tensors.items()
    }
    params = eval.float_params(noise, made.config)
    assert eval.acceptance(params, made, served[1], asked).length < 1.5


def test_guesses_change_no_answer(made, served, asked):
    params, result = served
    asked_ids = eval.prompts(made, asked[:6])
    none = greedy(params, made.config, made.map, asked_ids, [[]] * 6, eval.CAP)
    wrong = [[*t[:4], 99, *t[5:]] for t in result.tokens[:6]]
    assert none == greedy(params, made.config, made.map, asked_ids, wrong, eval.CAP)
    assert none == result.tokens[:6]


def test_a_walk_counts_as_the_service_does():
    assert accepted([5, 6, 7], [5, 6, 8, 9]) == [5, 6, 8]
    assert accepted([5, 6], [5, 6, 7]) == [5, 6, 7]
    assert accepted([], [4]) == [4]


def test_a_walk_with_perfect_drafts_has_length_six(made, monkeypatch):
    answer = list(range(20, 45))

    def perfect(*_: object) -> list[list[list[int]]]:
        return [[(answer + [0] * 5)[i + 1 : i + 6] for i in range(len(answer))]]

    monkeypatch.setattr("dsv41.tiny.acceptance_length.draft_everywhere", perfect)
    count = measure(None, made.config, made.map, [[0]], [answer])
    assert count.drafts == 4
    assert count.length == 6.0


def test_changed_weights_are_refused(tmp_path, monkeypatch):
    copy = tmp_path / "model.safetensors"
    copy.write_bytes(checkpoint.WEIGHTS.read_bytes()[:-1] + b"\0")
    monkeypatch.setattr(checkpoint, "WEIGHTS", copy)
    with pytest.raises(ValueError, match="is not that of SHA256SUMS"):
        checkpoint.load_weights()
