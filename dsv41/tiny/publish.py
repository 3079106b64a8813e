"""Make a training's weights the repository's checkpoint: `python -m dsv41.tiny.publish FILE`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from safetensors.torch import load_file

from dsv41.tiny import checkpoint


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dsv41.tiny.publish")
    parser.add_argument("weights", type=Path, help="weights.safetensors of a training")
    checkpoint.publish(load_file(parser.parse_args(argv).weights))
    sys.stdout.write(checkpoint.SHA256SUMS.read_text(encoding="ascii"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
