"""A run <-> the files of AISBench: predictions, results, summary, and the data they need.

What we write can be scored again by AISBench itself (`--mode eval --reuse <stamp>`), and gives
the same count. What it wrote is read back item by item; a rounded figure is never turned into
a count.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from acceptance import gsm8k
from acceptance.archive import write_once
from acceptance.canonical import sha256
from acceptance.errors import UsageError

ABBR: Final = "gsm8k"
MODEL_ABBR: Final = "vllm-api-stream-chat"
CONFIG_VERSION: Final = "50861a"
"""AISBench's own fingerprint of the configuration `gsm8k_gen_0_shot_cot_chat_prompt`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One question as AISBench keeps it. `error` is the text of a failed request, else None;
    `origin_prompt` the rendered prompt; `gold` the raw answer."""

    id: int
    origin_prompt: str
    prediction: str
    gold: str
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One scored item as AISBench reports it: post-processed strings and its own verdict."""

    id: int
    pred: str
    reference: str
    correct: bool


def write_run(
    folder: Path,
    predictions: Sequence[Prediction],
    *,
    stamp: str,
    run_id: str,
    evaluator: gsm8k.Evaluator = gsm8k.Evaluator.RELEASED,
    version: str = CONFIG_VERSION,
    model_abbr: str = MODEL_ABBR,
) -> Path:
    """Write `<folder>/<stamp>/` with predictions, results and summary; returns it.

    `stamp` is `YYYYmmdd_HHMMSS`, by which AISBench finds a run again.
    """
    root = folder / stamp
    good = [item for item in predictions if item.error is None]
    bad = [item for item in predictions if item.error is not None]
    files = {f"predictions/{model_abbr}/{ABBR}.jsonl": _lines(_row(i, run_id) for i in good)}
    if bad:
        files[f"predictions/{model_abbr}/{ABBR}_failed.jsonl"] = _lines(map(_failed_row, bad))
    results = _results(predictions, evaluator)
    files[f"results/{model_abbr}/{ABBR}.json"] = _text(json.dumps(results, indent=4))
    figure = f"{results['accuracy']:.2f}"
    files[f"summary/summary_{stamp}.csv"] = _text(
        f"dataset,version,metric,mode,{model_abbr}\n{ABBR},{version},accuracy,gen,{figure}\n"
    )
    files[f"summary/summary_{stamp}.md"] = _text(
        f"| dataset | version | metric | mode | {model_abbr} |\n"
        "|----- | ----- | ----- | ----- | -----|\n"
        f"| {ABBR} | {version} | accuracy | gen | {figure} |\n"
    )
    for name, data in files.items():
        write_once(root / name, data)
    return root


def write_data(folder: Path, lines: bytes) -> Path:
    """A data directory for AISBench: the question set as `test.jsonl`, whose line numbers are the
    ids, and a `train.jsonl`, which must exist and isn't used; returns it."""
    first = lines.partition(b"\n")[0] + b"\n"
    write_once(folder / "test.jsonl", lines)
    write_once(folder / "train.jsonl", first)
    return folder


def read_predictions(path: Path) -> dict[int, str]:
    """id -> prediction. As in AISBench, the first of several lines with one id counts."""
    found: dict[int, str] = {}
    for number, row in _rows(path):
        try:
            key, text = row["id"], row["prediction"]
        except (KeyError, TypeError) as error:
            raise UsageError(f"{path}:{number}: no `id` and `prediction`: {error}") from None
        if type(key) is not int or not isinstance(text, str):
            raise UsageError(f"{path}:{number}: `id` must be an integer and `prediction` a string")
        found.setdefault(key, text)
    return found


def read_results(path: Path) -> tuple[Detail, ...]:
    """The items of a results file written with `--dump-eval-details`, by id.

    UsageError if it holds no details, or if they do not add up to its own accuracy figure.
    """
    data = _json(path, _read(path))
    details = data.get("details") if isinstance(data, dict) else None
    if not isinstance(details, dict | list) or not details:
        raise UsageError(
            f"{path}: no `details`; the count can't be taken from a rounded figure: "
            "run AISBench with --dump-eval-details"
        )
    numbered = details.items() if isinstance(details, dict) else enumerate(details)
    try:
        items = sorted((_detail(int(key), row) for key, row in numbered), key=lambda d: d.id)
        share = float(data["accuracy"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UsageError(f"{path}: not a results file of AISBench: {error!r}") from None
    correct = sum(item.correct for item in items)
    if abs(share - 100 * correct / len(items)) > 1e-9:
        raise UsageError(
            f"{path}: accuracy {share} but {correct} of {len(items)} details are correct"
        )
    return tuple(items)


def read_summary(path: Path) -> str:
    """The accuracy figure of a summary CSV as printed, two decimals: for display, not to count."""
    for line in _decode(path, _read(path)).splitlines()[1:]:
        cells = line.split(",")
        if len(cells) == 5 and cells[0] == ABBR and cells[2] == "accuracy":
            return cells[4]
    raise UsageError(f"{path}: no accuracy row for {ABBR}")


def _prompt(item: Prediction) -> list[dict[str, str]]:
    return [{"role": "HUMAN", "prompt": item.origin_prompt}]


def _row(item: Prediction, run_id: str) -> dict[str, Any]:
    return {
        "data_abbr": ABBR,
        "id": item.id,
        "success": True,
        "uuid": sha256(f"{run_id}/{item.id}".encode())[:32],
        "origin_prompt": _prompt(item),
        "prediction": item.prediction,
        "gold": item.gold,
    }


def _failed_row(item: Prediction) -> dict[str, Any]:
    return {
        "data_abbr": ABBR,
        "id": item.id,
        "input": _prompt(item),
        "error_info": item.error,
    }


def _results(predictions: Sequence[Prediction], evaluator: gsm8k.Evaluator) -> dict[str, Any]:
    details: dict[str, Any] = {}
    correct = 0
    for item in predictions:
        # AISBench puts an empty answer in the place of a failed request and keeps it counted.
        text = item.prediction if item.error is None else ""
        scored = gsm8k.score(text, item.gold, stage="chat_pipeline", evaluator=evaluator)
        correct += bool(scored.correct)
        details[str(item.id)] = {
            "prompt": _prompt(item) if item.error is None else [],
            "origin_prediction": text,
            "predictions": [scored.extracted_pred],
            "references": [scored.extracted_gold],
            "correct": [bool(scored.correct)],
        }
    return {"accuracy": 100 * correct / len(predictions), "details": details, "type": "GEN"}


def _detail(key: int, row: dict[str, Any]) -> Detail:
    if "predictions" in row:
        pred, reference = row["predictions"][0], row["references"][0]
        correct = row["correct"][0]
    else:
        pred, reference, correct = row["pred"], row["answer"], row["correct"]
    if type(correct) is not bool:
        raise TypeError(f"`correct` of item {key} is not a boolean")
    return Detail(id=key, pred=str(pred), reference=str(reference), correct=correct)


def _lines(rows: Iterator[dict[str, Any]]) -> bytes:
    return _text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _text(text: str) -> bytes:
    return text.encode("utf-8")


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(_read(path).split(b"\n"), start=1):
        if line.strip():
            yield number, _json(Path(f"{path}:{number}"), line)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def _decode(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}") from None


def _json(where: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON: {error}") from None
