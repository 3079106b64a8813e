"""Engram constants, hashing and token compression against the specification's goldens."""

from __future__ import annotations

import unicodedata

import pytest
import torch

from tests_ops.oracle import engram, token_map
from tests_ops.oracle.config import Config
from tests_ops.oracle.tiny import RELEASED, TINY

pytestmark = pytest.mark.ops
CONFIG = Config.from_text_config(RELEASED)
COLUMNS = [0, 7, 8, 16, 23]
HASHES = {
    1: [
        [9400104, 114349277, 128026094, 261350200, 382122658],
        [11440887, 115349167, 133705728, 269468428, 369904708],
        [3470735, 123745907, 134967535, 256147894, 375164022],
        [1326936, 120570043, 142088989, 270969918, 378628807],
    ],
    14: [
        [11315085, 116830007, 135395884, 269973942, 379075217],
        [12738157, 117566404, 142358933, 269980167, 382203530],
        [3894218, 126700282, 135776665, 270557808, 379666858],
        [5403109, 114437397, 136663117, 258079010, 378588994],
    ],
}


@pytest.fixture(scope="module")
def primes() -> dict[int, list[list[int]]]:
    return engram.primes(CONFIG)


# Minimum list 8.8.2.
def test_prime_sums_are_the_table_rows(primes: dict[int, list[list[int]]]) -> None:
    assert [sum(map(sum, primes[layer])) for layer in (1, 14)] == [384006168, 384016682]


# Minimum list 8.8.2.
def test_primes_start_and_end_as_listed(primes: dict[int, list[list[int]]]) -> None:
    assert primes[1][0][:3] == [16000057, 16000079, 16000081]
    assert primes[1][2][-1] == 16000463
    assert primes[14][0][0] == 16000477
    assert primes[14][2] == [
        16000781, 16000799, 16000813, 16000819, 16000841, 16000877, 16000879, 16000889,
    ]  # fmt: skip


# Minimum list 8.8.2.
def test_multipliers_are_the_goldens() -> None:
    assert engram.multipliers(CONFIG, 1) == [
        76632096046245, 4839876093313, 35959672319349, 73987337458391,
    ]  # fmt: skip
    assert engram.multipliers(CONFIG, 14) == [
        67716810739261, 51510806800915, 30921347202721, 82619226485591,
    ]  # fmt: skip


# Minimum list 8.8.2.
@pytest.mark.parametrize("layer", [1, 14], ids=["layer-1", "layer-14"])
def test_hash_rows_are_the_goldens(layer: int) -> None:
    rows = engram.hash_rows(CONFIG, layer, torch.tensor([10, 20, 30, 40]), pad=2)

    assert rows.shape == (4, 24)
    assert rows[:, COLUMNS].tolist() == HASHES[layer]


def test_tiny_primes_are_those_of_the_specification() -> None:
    tables = engram.primes(Config.from_text_config(TINY))

    assert tables == {1: [[67, 71], [73, 79]], 4: [[83, 89], [97, 101]]}


def test_gate_takes_the_signed_root_and_a_floor() -> None:
    dots = torch.tensor([4.0, -4.0, 0.0, 1e-9], dtype=torch.float64)

    expected = torch.sigmoid(torch.tensor([2.0, -2.0, 1e-3, 1e-3], dtype=torch.float64))
    assert torch.allclose(expected, engram.gate(dots), atol=1e-15)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  ", " "),
        (" The", "the"),
        ("ÉTÉ", "ete"),
        ("ﬁ", "fi"),
        ("a\t\n b", "a b"),
        ("\n", " "),
        ("ΟΔΟΣ", "οδοσ"),
        ("\x1f", "\x1f"),
    ],
    ids=["blanks", "space", "accents", "ligature", "run", "newline", "sigma", "separator"],
)
def test_token_text_is_normalised(text: str, expected: str) -> None:
    assert token_map.key_of(text, "raw") == expected


def test_undecodable_tokens_are_keyed_by_their_vocabulary_string() -> None:
    assert token_map.key_of("a\ufffd", "<0xE2>") == "<0xE2>"


def test_a_token_that_normalises_to_nothing_keeps_its_text() -> None:
    assert token_map.key_of("\u0301", "raw") == "\u0301"


def test_compressed_ids_follow_first_appearance() -> None:
    words = [" a", "b", "A", "B", "c"]

    ids = token_map.token_map(5, words.__getitem__, words.__getitem__)

    assert ids == [0, 1, 0, 1, 2]


@pytest.mark.parametrize("plane", [0, 1, 2, 3], ids=["u0000", "u4000", "u8000", "uc000"])
def test_normalisation_equals_the_tokenizers_library(plane: int) -> None:
    from tokenizers import Regex
    from tokenizers import normalizers as n

    reference = n.Sequence(
        [
            n.NFKC(),
            n.NFD(),
            n.StripAccents(),
            n.Lowercase(),
            n.Replace(Regex(r"[ \t\r\n]+"), " "),
            n.Replace(Regex(r"^ $"), token_map.LONE_SPACE),
            n.Strip(),
            n.Replace(token_map.LONE_SPACE, " "),
        ]
    )
    known = [
        chr(code)
        for code in range(plane * 0x4000, (plane + 1) * 0x4000)
        # What is newer than Unicode 3.2 differs between Unicode versions; surrogates are no text.
        if unicodedata.ucd_3_2_0.category(chr(code)) not in ("Cs", "Cn", "Co")
    ]

    different = [c for c in known if token_map.normalise(c) != reference.normalize_str(c)]

    assert different == []
