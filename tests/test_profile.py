"""Profiles: frozen records that refuse what they do not know, and say what was meant."""

from pathlib import Path

import pytest

from acceptance.errors import UsageError
from acceptance.profile import parse_profile

PROFILES = sorted((Path(__file__).parent.parent / "acceptance/profiles").glob("*.toml"))
MINI = next(path for path in PROFILES if path.stem == "cpu-mini").read_text()


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_a_shipped_profile_is_valid_and_carries_its_file_name(path):
    assert path.stem == parse_profile(path.read_text(), path.name).name


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        pytest.param("rounds =", "round =", "`round`; the nearest known key is `rounds`", id="top"),
        pytest.param(
            "http_s = ", "htp_s = ", "`htp_s` in [timeouts]; the nearest known key is `http_s`",
            id="nested",
        ),
        pytest.param("attempts_max = 2", 'attempts_max = "2"', "Expected `int`", id="type"),
        pytest.param("attempts_max = 2", "attempts_max = 0", "attempts_max", id="no-attempt"),
        pytest.param('C16 = "', 'C17 = "', "no target for C16", id="no-target"),
        pytest.param('C1 = "', 'C1 = "x', "exact decimals", id="not-exact"),
        pytest.param('C1 = "', 'C1 = "-', "positive", id="negative-target"),
        pytest.param("schema = 1", "schema = 2", "schema 2 is not known", id="future-schema"),
        pytest.param("schema = 1", "schema = = 1", "not TOML", id="not-toml"),
        pytest.param('levels = ["C1",', 'levels = ["C2",', "C2", id="unknown-level"),
        pytest.param("output_tokens = 64", "output_tokens = 1", "output_tokens", id="one-token"),
    ],
)  # fmt: skip
def test_a_wrong_profile_is_refused_in_one_line_that_names_the_place(old, new, says):
    assert old in MINI
    with pytest.raises(UsageError) as caught:
        parse_profile(MINI.replace(old, new, 1), "mine.toml")

    message = str(caught.value)
    assert message.startswith("mine.toml: ")
    assert says in message
    assert "\n" not in message


def test_targets_are_exact():
    profile = parse_profile(MINI.replace('C1 = "500"', 'C1 = "25.1"'), "mine.toml")

    assert (251 * 10**5, 1) == profile.targets_ns()["C1"].as_integer_ratio()
