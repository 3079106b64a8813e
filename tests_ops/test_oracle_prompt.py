"""The golden prompt strings (7.3), and the served encoder against the grammar's restatement."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests_ops.oracle.prompt import BOS, EOS, Message, encode

pytestmark = pytest.mark.ops  # minimum list 8.8.3
LINE = (
    "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def answer(text: str, reasoning: str = "") -> Message:
    return {"role": "assistant", "content": text, "reasoning": reasoning}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


ASKED_AGAIN = [user("a"), answer("b", "R1"), user("c")]
GOLDENS = {
    "thinking": (
        [user("2+2?")],
        {},
        f"{BOS}<｜System｜>{LINE.format(75)}<｜User｜>2+2?<｜Assistant｜><think>",
    ),
    "chat": (
        [user("2+2?")],
        {"thinking": False},
        f"{BOS}<｜User｜>2+2?<｜Assistant｜></think>",
    ),
    "system-low": (
        [system("Be brief."), user("Hi")],
        {"effort": "low"},
        f"{BOS}<｜System｜>{LINE.format(50)}Be brief.<｜User｜>Hi<｜Assistant｜><think>",
    ),
    "system-chat": (
        [system("Be brief."), user("Hi")],
        {"thinking": False},
        f"{BOS}<｜System｜>Be brief.<｜User｜>Hi<｜Assistant｜></think>",
    ),
    "reasoning-dropped": (
        ASKED_AGAIN,
        {},
        f"{BOS}<｜System｜>{LINE.format(75)}<｜User｜>a<｜Assistant｜></think>b{EOS}"
        "<｜User｜>c<｜Assistant｜><think>",
    ),
    "reasoning-kept": (
        ASKED_AGAIN,
        {"drop_thinking": False},
        f"{BOS}<｜System｜>{LINE.format(75)}<｜User｜>a<｜Assistant｜><think>R1</think>b{EOS}"
        "<｜User｜>c<｜Assistant｜><think>",
    ),
    "two-users": (
        [user("a"), user("b")],
        {"thinking": False},
        f"{BOS}<｜User｜>a\n\nb<｜Assistant｜></think>",
    ),
    "late-system": (
        [user("a"), answer("b"), system("s")],
        {"thinking": False},
        f"{BOS}<｜User｜>a<｜Assistant｜></think>b{EOS}<｜System｜>s<｜Assistant｜></think>",
    ),
    "ends-with-assistant": (
        [user("a"), answer("b")],
        {"thinking": False},
        f"{BOS}<｜User｜>a<｜Assistant｜></think>b{EOS}",
    ),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_golden_prompts(name: str) -> None:
    messages, options, expected = GOLDENS[name]

    assert expected == encode(messages, **options)


CONTENT = st.sampled_from(["a", "2+2?", "x y", "é"])
MESSAGES = st.lists(
    st.one_of(
        CONTENT.map(user),
        st.builds(answer, CONTENT, CONTENT),
        CONTENT.map(system),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.deep
@settings(deadline=None)
@given(messages=MESSAGES, thinking=st.booleans(), drop=st.booleans(), effort=st.integers(1, 100))
def test_the_served_encoder_follows_the_grammar(
    messages: list[Message], thinking: bool, drop: bool, effort: int
) -> None:
    from vllm.tokenizers.deepseek_v41_encoding import encode_messages

    served = [
        {("reasoning_content" if key == "reasoning" else key): v for key, v in m.items()}
        for m in messages
    ]
    theirs = encode_messages(
        served,
        thinking_mode="thinking" if thinking else "chat",
        drop_thinking=drop,
        reasoning_effort=effort,
    )

    assert encode(messages, thinking=thinking, effort=effort, drop_thinking=drop) == theirs
