"""AISBench itself scores our files again: its count and every item against ours.

    python bench/aisbench_rescore.py --python /path/to/aisbench-venv/bin/python RUN/.../aisbench

Works on a copy without our results. AISBench must be installed with all its dependencies; as of
version 3.1.20260630 that takes `pip install "pyarrow<21" "setuptools<81" ais_bench_benchmark`.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from acceptance.accuracy.aisbench import Detail, read_results  # noqa: E402
from acceptance.errors import UsageError  # noqa: E402

MODELS, DATASETS = "vllm_api_stream_chat", "gsm8k_gen_0_shot_cot_chat_prompt"


def rescore(python: Path, folder: Path, stamp: str) -> tuple[Detail, ...]:
    """Let AISBench score the predictions of a copied work directory; its items."""
    data = folder / "cache/ais_bench/datasets"
    data.mkdir(parents=True)
    shutil.copytree(folder / "data/gsm8k", data / "gsm8k")
    command = [
        str(python), str(python.parent / "ais_bench"), "--models", MODELS, "--datasets", DATASETS,
        "--mode", "eval", "--reuse", stamp, "--work-dir", str(folder), "--dump-eval-details",
    ]  # fmt: skip
    environment = os.environ | {
        "AIS_BENCH_DATASETS_CACHE": str(folder / "cache"),
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    results = list(folder.glob(f"{stamp}/results/*/gsm8k.json"))
    if done.returncode or not results:
        last = ((done.stderr or done.stdout).strip().splitlines() or ["no message"])[-1]
        raise UsageError(f"AISBench scored nothing (status {done.returncode}): {last}")
    return read_results(results[0])


def main() -> int:
    """Print both counts; 1 if a count or an item differs, 2 if it can't be tried."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, type=Path, help="AISBench's interpreter")
    parser.add_argument("folder", type=Path, help="the directory `aisbench` of an accuracy run")
    options = parser.parse_args()
    try:
        found = sorted(options.folder.glob("*/results/*/gsm8k.json"))
        if len(found) != 1:
            raise UsageError(f"{options.folder}: {len(found)} results files, expected one")
        ours, stamp = read_results(found[0]), found[0].parents[2].name
        with tempfile.TemporaryDirectory() as temporary:
            copy = Path(temporary) / "work"
            shutil.copytree(options.folder, copy)
            for part in ("results", "summary"):
                shutil.rmtree(copy / stamp / part)
            theirs = rescore(options.python.absolute(), copy, stamp)
    except UsageError as error:
        print(f"aisbench_rescore: {error}")
        return 2
    differ = [item for item, other in zip(ours, theirs, strict=True) if item != other]
    print(f"ours   {sum(item.correct for item in ours)}/{len(ours)}")
    print(f"theirs {sum(item.correct for item in theirs)}/{len(theirs)}")
    print(f"{len(differ)} items differ{': ' if differ else ''}{[d.id for d in differ] or ''}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
