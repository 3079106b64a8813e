"""The live view: tokens of one stream counted from reads cut anywhere, and the state of a slot."""

import os

import pytest

from acceptance.client.memory import LOG_WORDS, Field, Memory, Slot
from acceptance.client.progress import LiveView
from acceptance.testing.streams import completion_events, response

RAW = response(completion_events((11, 12, 13), [[5], [6, 7], [8]]))


@pytest.fixture
def memory():
    made = Memory.create([b"x"], capacity_bytes=1 << 16, reads_max=1000)
    yield made
    fd = made.fd
    made.close()
    os.close(fd)


def receive(memory, number, t_ns, data):
    """Do what the loop does for one read, one after the other."""
    offset = memory.arena_offset + memory.field(Field.ARENA)
    memory.bytes_[offset : offset + len(data)] = data
    word = memory.log_word + LOG_WORDS * number
    for index, value in enumerate((t_ns + 1, 0, len(data))):
        memory.words[word + index] = value
    memory.words[Field.ARENA] += len(data)
    memory.words[Field.READS] = number + 1


def test_tokens_and_first_time_do_not_depend_on_when_one_looks(memory):
    view = LiveView(memory)
    looks = []
    for number in range(len(RAW)):
        receive(memory, number, 1000 + number, RAW[number : number + 1])
        looks.append(view.slots()[0].tokens)

    # The prompt's IDs are not generated ones; each frame counts with the line end that closes it.
    assert [0, 1, 3, 4] == sorted(set(looks))
    assert looks == sorted(looks)
    (late,) = LiveView(memory).slots()
    assert (4, len(RAW), len(RAW)) == (late.tokens, late.bytes, late.reads)
    first = RAW.index(b"\n", RAW.index(b'"token_ids":[5]'))
    assert 1000 + first == view.slots()[0].first_ns == late.first_ns


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param((), "waiting", id="waiting"),
        pytest.param((Slot.START,), "connecting", id="connecting"),
        pytest.param((Slot.START, Slot.CONNECTED), "sending", id="sending"),
        pytest.param((Slot.START, Slot.CONNECTED, Slot.SENT), "prefill", id="prefill"),
        pytest.param((Slot.START, Slot.OUTCOME), "fin", id="fin"),
    ],
)
def test_the_state_of_a_slot_follows_its_times(memory, known, expected):
    for word in known:
        memory.set(0, word, 1)

    assert expected == LiveView(memory).slots()[0].state


def test_a_slot_with_a_token_decodes(memory):
    for word in (Slot.START, Slot.CONNECTED, Slot.SENT):
        memory.set(0, word, 1)
    receive(memory, 0, 5, RAW)

    assert "decode" == LiveView(memory).slots()[0].state
