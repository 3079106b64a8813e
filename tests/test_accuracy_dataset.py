"""Question files: found in order, verified by hash, refused with both hashes (P5.2)."""

from pathlib import Path

import pytest

from acceptance import gsm8k
from acceptance.accuracy import dataset
from acceptance.errors import UsageError

OWN = Path(__file__).parent / "data/gsm8k/questions.jsonl"
OWN_SHA256 = "7b3ccddd656d4bced63db9fd84f3c500c660a5888768e13a732ecad7263916b2"


def test_a_profile_s_own_questions_are_read_in_file_order():
    questions = dataset.load_questions(OWN, OWN_SHA256, 12).questions

    assert tuple(range(12)) == tuple(item.position for item in questions)
    assert "Ida has 3 red caps and 4 blue caps. How many caps has she?" == questions[0].question
    assert "A caf\u00e9 sells 18 buns at 2 \u20ac each. How many euros is that?" == (
        questions[4].question
    )


@pytest.mark.rule("P5.2")
def test_an_edited_file_is_refused_with_both_hashes(tmp_path):
    edited = tmp_path / "questions.jsonl"
    edited.write_bytes(OWN.read_bytes().replace(b"3 red", b"2 red"))

    with pytest.raises(
        UsageError, match=f"SHA-256 (?!{OWN_SHA256}).{{64}}, frozen is {OWN_SHA256}"
    ):
        dataset.load_questions(edited, OWN_SHA256, 12)


@pytest.mark.rule("P5.2")
def test_a_file_that_is_not_gsm8k_is_refused_with_both_hashes(tmp_path):
    (tmp_path / "test.jsonl").write_bytes(OWN.read_bytes())

    with pytest.raises(UsageError, match=f"{OWN_SHA256}; frozen is {gsm8k.TEST_SHA256}"):
        dataset.load_gsm8k(str(tmp_path))


def test_a_short_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match="12 lines, expected 13"):
        dataset.load_questions(OWN, OWN_SHA256, 13)


def test_a_missing_file_is_one_line_that_says_what_to_do(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere: .*test\.jsonl.*ACCEPTANCE_GSM8K") as caught:
        dataset.load_gsm8k(str(tmp_path / "nowhere"))

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        pytest.param(b"{", "JSONDecodeError", id="not-json"),
        pytest.param(b'{"question": "a"}', "KeyError", id="no-answer"),
        pytest.param(b"[]", "TypeError", id="a-list"),
        pytest.param(b'{"question": "a", "answer": "18"}', "IndexError", id="no-gold"),
        pytest.param(b'{"question": 5, "answer": "#### 1"}', "AttributeError", id="a-number"),
        pytest.param(
            b'{"question": "\\ud800", "answer": "#### 1"}', "UnicodeEncodeError", id="surrogate"
        ),
        pytest.param(
            b'{"question": "a", "answer": "#### %s"}' % (b"9" * 400), "OverflowError", id="huge"
        ),
    ],
)
def test_a_line_that_is_no_question_is_named(line, says):
    with pytest.raises(UsageError, match=f"q.jsonl:2: .*{says}"):
        dataset.parse_questions(
            b'{"question": "a", "answer": "#### 1"}\n' + line + b"\n",
            "q.jsonl",
            source="q",
            indices=(0, 1),
        )


def test_repeated_questions_are_refused(tmp_path):
    twice = tmp_path / "twice.jsonl"
    twice.write_bytes(OWN.read_bytes().splitlines(keepends=True)[0] * 2)
    digest = dataset.sha256(twice.read_bytes())

    with pytest.raises(UsageError, match="questions repeat"):
        dataset.load_questions(twice, digest, 2)


def test_it_is_looked_for_in_order_path_variable_shared(tmp_path):
    places = [tmp_path / name for name in ("named", "variable", "shared/data/gsm8k")]
    for place in places:
        place.mkdir(parents=True)
        (place / "test.jsonl").touch()
    environ = {dataset.VARIABLE: str(places[1])}
    root = tmp_path / "repository"

    assert places[0] / "test.jsonl" == dataset.find_gsm8k(str(places[0]), environ, root)
    assert places[1] / "test.jsonl" == dataset.find_gsm8k(None, environ, root)
    assert places[2] / "test.jsonl" == dataset.find_gsm8k(None, {}, root)


def test_the_subset_file_serves_where_the_whole_split_is_missing(tmp_path):
    (tmp_path / "test_subset300.jsonl").touch()

    assert "test_subset300.jsonl" == dataset.find_gsm8k(str(tmp_path), {}, tmp_path).name


def test_nothing_found_names_the_places(tmp_path):
    with pytest.raises(UsageError, match=r"shared/data/gsm8k.*grade-school-math at 3101c7d50724"):
        dataset.find_gsm8k(None, {}, tmp_path / "repository")


class FakeManager:
    def __init__(self, path):
        self.path = path
        self.asked = []

    def download(self, url):
        self.asked.append(url)
        if self.path is None:
            raise ConnectionError("no route\nmore")
        return str(self.path)


def test_a_download_is_of_the_frozen_revision(tmp_path):
    manager = FakeManager(tmp_path / "x")

    assert tmp_path / "x" == dataset.download(lambda: manager)
    assert f"/{gsm8k.REVISION}/" in manager.asked[0]


def test_a_failed_download_is_one_line():
    with pytest.raises(UsageError, match="can't download: no route; get test"):
        dataset.download(lambda: FakeManager(None))


def test_without_the_package_the_message_says_so():
    def load():
        raise ImportError("datasets")

    with pytest.raises(UsageError, match="`datasets` is not installed"):
        dataset.download(load)
