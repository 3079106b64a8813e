"""Files of questions -> a verified question set. A byte that differs is refused, with both hashes.

GSM8K is looked for in this order: the path given; the environment variable ACCEPTANCE_GSM8K;
`data/gsm8k` of a folder `shared` beside the repository; or, only if asked for by the name
`datasets`, a download through Hugging Face's `datasets` at the frozen git revision.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from acceptance import gsm8k
from acceptance.canonical import sha256
from acceptance.errors import UsageError
from acceptance.settings import ROOT

VARIABLE: Final = "ACCEPTANCE_GSM8K"
URL: Final = (
    "https://raw.githubusercontent.com/openai/grade-school-math/"
    f"{gsm8k.REVISION}/grade_school_math/data/test.jsonl"
)
HOW_TO_GET: Final = (
    f"get test.jsonl of openai/grade-school-math at {gsm8k.REVISION[:12]} and name its folder in "
    f"{VARIABLE}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question: its position in the set, its line number in the source, and its texts.

    `answer` is the worked solution with the gold after `#### `.
    """

    position: int
    index: int
    question: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSet:
    """The questions of a run in their frozen order. `lines` are the original bytes, each line
    with its newline; `source` says where they come from."""

    source: str
    lines: bytes
    questions: tuple[Question, ...]

    def prompts(self, template: str) -> list[str]:
        """The rendered prompts in order."""
        return [gsm8k.render(template, item.question) for item in self.questions]

    def indices(self) -> tuple[int, ...]:
        """Line numbers in the source, in order."""
        return tuple(item.index for item in self.questions)


def load_gsm8k(
    named: str | None = None, environ: Mapping[str, str] = os.environ, root: Path = ROOT
) -> QuestionSet:
    """The frozen 300 questions of P5.2. `named`: a path, `datasets`, or None to look for it."""
    source = download() if named == "datasets" else find_gsm8k(named, environ, root)
    return subset(_read(source), str(source))


def find_gsm8k(
    named: str | None = None, environ: Mapping[str, str] = os.environ, root: Path = ROOT
) -> Path:
    """Where `test.jsonl` or the 300 lines of it lie. UsageError says how to get them."""
    given = named or environ.get(VARIABLE)
    beside = (root.parent / "shared/data/gsm8k", root.parent.parent / "shared/data/gsm8k")
    for place in (Path(given),) if given else beside:
        for path in (place, place / "test.jsonl", place / "test_subset300.jsonl"):
            if path.is_file():
                return path
    looked = given or ", ".join(map(str, beside))
    raise UsageError(f"{looked}: no GSM8K test.jsonl there; {HOW_TO_GET}")


def download(load: Callable[[], Any] | None = None) -> Path:
    """`test.jsonl` through the download manager of `datasets`, which keeps the bytes."""
    try:
        manager = load() if load else _download_manager()
        return Path(manager.download(URL))
    except ImportError:
        raise UsageError(f"the package `datasets` is not installed; {HOW_TO_GET}") from None
    except Exception as error:  # the package's own errors have no common class
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{URL}: can't download: {reason}; {HOW_TO_GET}") from None


def _download_manager() -> Any:
    from datasets import DownloadManager

    return DownloadManager()


def subset(data: bytes, where: str) -> QuestionSet:
    """Bytes of `test.jsonl`, or of its 300 lines -> the frozen set (P5.2), every hash checked."""
    indices = gsm8k.select(gsm8k.TEST_LINES, gsm8k.SUBSET_SIZE)
    _check("the index list", sha256(_compact(indices)), gsm8k.INDICES_SHA256, where)
    found = sha256(data)
    if found not in (gsm8k.TEST_SHA256, gsm8k.SUBSET_SHA256):
        raise UsageError(
            f"{where}: SHA-256 {found}; frozen is {gsm8k.TEST_SHA256} for test.jsonl "
            f"({gsm8k.SUBSET_SHA256} for its 300 lines): not the frozen data; {HOW_TO_GET}"
        )
    lines = data.splitlines(keepends=True) if found == gsm8k.TEST_SHA256 else []
    chosen = b"".join(lines[index] for index in indices) if lines else data
    _check("the 300 lines", sha256(chosen), gsm8k.SUBSET_SHA256, where)
    source = f"openai/grade-school-math@{gsm8k.REVISION} test"
    made = parse_questions(chosen, where, source=source, indices=indices)
    prompts = gsm8k.prompts_sha256(made.prompts(gsm8k.TEMPLATE))
    _check("the prompts", prompts, gsm8k.PROMPTS_SHA256, where)
    return made


def load_questions(path: Path, wanted_sha256: str, count: int) -> QuestionSet:
    """A profile's own question set, whole and in file order, verified like GSM8K."""
    data = _read(path)
    _check("the question set", sha256(data), wanted_sha256, str(path))
    made = parse_questions(data, str(path), source=path.name, indices=tuple(range(count)))
    if len({item.question for item in made.questions}) != count:
        raise UsageError(f"{path}: questions repeat; all {count} must be distinct (P5.4)")
    return made


def parse_questions(
    data: bytes, where: str, *, source: str, indices: tuple[int, ...]
) -> QuestionSet:
    """JSON lines with `question` and `answer`; a gold that no evaluator can read is refused."""
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    if len(lines) != len(indices):
        raise UsageError(f"{where}: {len(lines)} lines, expected {len(indices)}")
    questions = []
    for position, (line, index) in enumerate(zip(lines, indices, strict=True)):
        try:
            row = json.loads(line)
            question, answer = row["question"], row["answer"]
            gsm8k.is_correct("0", gsm8k.extract_gold(answer))
            question.encode("utf-8"), answer.encode("utf-8")
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError) as e:
            raise UsageError(
                f"{where}:{position + 1}: not a question with a gold answer after '#### ': "
                f"{type(e).__name__}: {e}"
            ) from None
        questions.append(Question(position=position, index=index, question=question, answer=answer))
    return QuestionSet(source=source, lines=data, questions=tuple(questions))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {HOW_TO_GET}") from None


def _compact(indices: tuple[int, ...]) -> bytes:
    return json.dumps(indices, separators=(",", ":")).encode("ascii")


def _check(what: str, found: str, wanted: str, where: str) -> None:
    if found != wanted:
        raise UsageError(f"{where}: {what}: SHA-256 {found}, frozen is {wanted}")
