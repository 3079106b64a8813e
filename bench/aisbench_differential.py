"""Our scorer against the installed AISBench, on vectors and on generated answers, one by one.

    python bench/aisbench_differential.py --python /path/to/aisbench-venv/bin/python

The other environment needs `pip install ais_bench_benchmark`. With all its dependencies its own
modules are imported; installed with `--no-deps`, the evaluator's file is run alone, its imports
replaced by stand-ins. Either way the file's git blob says which version was compared. `--file`
compares another copy of that file, such as one of an unmerged change.
"""

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from acceptance import gsm8k  # noqa: E402

DRIVER = r"""
import hashlib, importlib.util, json, sys, types
from unittest.mock import MagicMock

class Registry:
    def register_module(self, *names, **options):
        return lambda thing: thing

def stand_in(name, **names):
    module = types.ModuleType(name)
    module.__getattr__ = lambda attribute: names.get(attribute, MagicMock())
    sys.modules[name] = module

def load(path):
    spec = importlib.util.spec_from_file_location("ais_bench.benchmark.datasets.alone", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

named = sys.argv[1]
how = "imported"
try:
    from ais_bench.benchmark.datasets import gsm8k as module
    from ais_bench.benchmark.utils.postprocess import model_postprocessors as models
    path = module.__file__
    if named:
        path, how, module = named, "imported, file named", load(named)
except ImportError as error:
    how = f"file alone ({error})"
    if importlib.util.find_spec("ais_bench") is None:
        sys.exit("ais_bench_benchmark is not installed there")
    base = importlib.util.find_spec("ais_bench").submodule_search_locations[0] + "/benchmark"
    for name in list(sys.modules):
        if name.partition(".")[0] in ("ais_bench", "datasets"):
            del sys.modules[name]
    registry = Registry()
    for name in ("datasets", "ais_bench", "ais_bench.benchmark", "ais_bench.benchmark.datasets",
                 "ais_bench.benchmark.datasets.utils",
                 "ais_bench.benchmark.datasets.utils.datasets",
                 "ais_bench.benchmark.datasets.base", "ais_bench.benchmark.utils",
                 "ais_bench.benchmark.utils.logging", "ais_bench.benchmark.utils.logging.logger",
                 "ais_bench.benchmark.utils.logging.error_codes",
                 "ais_bench.benchmark.utils.logging.exceptions"):
        stand_in(name, BaseDataset=object)
    stand_in("ais_bench.benchmark.openicl", BaseEvaluator=object)
    stand_in("ais_bench.benchmark.registry", LOAD_DATASET=registry, TEXT_POSTPROCESSORS=registry)
    path = named or base + "/datasets/gsm8k.py"
    module, models = load(path), load(base + "/utils/postprocess/model_postprocessors.py")

data = open(path, "rb").read()
blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
print("ANSWER" + json.dumps({"blob": blob, "how": how}))
evaluator = module.Gsm8kEvaluator()
for line in sys.stdin:
    row = json.loads(line)
    text, out = row["prediction"], {"error": None, "gold": None, "correct": None}
    if row["stage"] == "chat_pipeline":
        text = models.extract_non_reasoning_content(text)
    out["pred"] = module.gsm8k_postprocess(text)
    try:
        out["gold"] = module.gsm8k_dataset_postprocess(row["gold_raw"])
        result = evaluator.score([out["pred"]], [out["gold"]])
        out["correct"] = result["details"][0]["correct"]
    except Exception as error:
        out["error"] = type(error).__name__
    print("ANSWER" + json.dumps(out))
"""


def generated(seed: int, count: int) -> Iterator[dict[str, str]]:
    """Answers as models write them, and worse ones: signs, separators, tags, odd characters."""
    rng = random.Random(seed)
    pieces = (
        "answer:", "Answer: ", "The answer is ", "#### ", "####", "$", "%", " dollars", "\n", " ",
        ",", ".", "-", "- ", "\u2212", "/", "=", "\\boxed{", "}", "{,}", "\\,", "**", "(", ")",
        "<think>", "</think>", "Question:", "Question", "question:", "Quest,ion:", "\u00bd",
        "\uff11\uff18", "\u0661\u0668", "\u00b2", "1e3", "NULL", "\r\n", "\u2028", "\u00a0", "_",
        "eighteen", "step 1: ", "x", "\U0001f600", "'", "0", "00", "\x00",
    )  # fmt: skip
    for _ in range(count):
        gold = rng.choice((0, 1, 7, 18, -3, -10, 430, 1430, 9500, 1450000, rng.randrange(10**7)))
        near = rng.choice((gold, gold, gold, -gold, gold + 1, gold % 1000, rng.randrange(3000)))
        forms = (
            str(near), f"{near:,}", f"{near}.0", f"{near}.00", f"{near}.5", f"{near}.0000009",
            f"{near}.000001", f"{near:_}", f"{near} ".replace(" ", "\u202f"), f"{near:e}",
        )  # fmt: skip
        words = [rng.choice(pieces) for _ in range(rng.randrange(8))]
        words.insert(rng.randrange(len(words) + 1), rng.choice(forms))
        golds = (
            f"work\n#### {gold}", f"#### {gold:,}", f"####{gold}", f"{gold}", f"#### {gold}.0",
            f"#### {gold}#### 5", f"####  {gold} ", f"#### {gold:_}", "#### ", "#### many",
            f"#### {'9' * 400}", f"#### {'9' * 5000}",
        )  # fmt: skip
        yield {
            "prediction": "".join(words),
            "gold_raw": rng.choices(golds, weights=(30, 10, *[1] * 10))[0],
            "stage": rng.choice(("native", "chat_pipeline")),
        }


def recorded() -> list[dict[str, str]]:
    """The recorded vectors, if they lie beside the repository."""
    for place in (ROOT.parent, ROOT.parent.parent):
        path = place / "shared/data/gsm8k/evaluator_vectors.jsonl"
        if path.is_file():
            return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return []


def theirs(python: str, file: str, rows: list[dict[str, str]]) -> list[dict[str, object]]:
    """What AISBench says of each row; the first item tells its version."""
    keys = ("prediction", "gold_raw", "stage")
    text = "".join(json.dumps({key: row[key] for key in keys}) + "\n" for row in rows)
    done = subprocess.run(
        [python, "-c", DRIVER, file],
        input=text,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd="/",
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    if done.returncode or len(lines) != len(rows) + 1:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SystemExit(f"aisbench_differential: {python} can't score: {last}")
    return [json.loads(line.removeprefix("ANSWER")) for line in lines]


def main() -> int:
    """Compare and print the count; 1 if any answer is scored otherwise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="interpreter of AISBench's environment")
    parser.add_argument("--file", default="", help="another copy of the evaluator's file")
    parser.add_argument("--evaluator", default="", help="our version; default: that of the blob")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=20261201)
    options = parser.parse_args()
    file = str(Path(options.file).resolve()) if options.file else ""
    vectors = recorded()
    rows = [*vectors, *generated(options.seed, options.count)]
    version, *answers = theirs(options.python, file, rows)
    name = options.evaluator or str(version["blob"])
    try:
        evaluator = gsm8k.find_evaluator(name)
    except KeyError:
        raise SystemExit(
            f"aisbench_differential: {name} is no version known here; name one with --evaluator"
        ) from None
    differ = 0
    for row, answer in zip(rows, answers, strict=True):
        found = gsm8k.score(
            row["prediction"], row["gold_raw"], stage=row["stage"], evaluator=evaluator
        )
        ours = {
            "error": found.error,
            "gold": found.extracted_gold,
            "correct": found.correct,
            "pred": found.extracted_pred,
        }
        if ours != answer:
            differ += 1
            if differ <= 10:
                print(f"DIFFERS {row!r}\n  ours   {ours}\n  theirs {answer}")
    right = sum(answer["correct"] is True for answer in answers)
    raised = sum(answer["error"] is not None for answer in answers)
    print(f"evaluator {evaluator.name.lower()}, blob {version['blob']}, {version['how']}")
    print(
        f"{len(vectors)} vectors and {options.count} generated answers (seed {options.seed}): "
        f"{right} right, {raised} raised, {differ} scored otherwise"
    )
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
