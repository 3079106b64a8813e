"""The trained checkpoint as a directory that the plugin serves.

python -m dsv41.tiny.checkpoint --out DIR [--format float32|w8a8]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from dsv41.model.config import ConfigError, ModelConfig
from dsv41.model.make_checkpoint import official_tensors
from dsv41.model.w8a8 import convert_directory
from dsv41.tiny.tokenizer import build_tokenizer, tokenizer_settings

HERE = Path(__file__).parent
CONFIG = HERE / "config.json"
WEIGHTS = HERE / "model.safetensors"
SHA256SUMS = HERE / "SHA256SUMS"


def raw_config() -> dict[str, Any]:
    return json.loads(CONFIG.read_text(encoding="utf-8"))


def check_weights() -> None:
    """ConfigError unless the weights' bytes are those of `SHA256SUMS`."""
    wanted = SHA256SUMS.read_text(encoding="ascii").split()
    found = hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()
    if wanted[wanted.index(WEIGHTS.name) - 1] != found:
        raise ConfigError(f"{WEIGHTS}: SHA-256 {found} is not that of {SHA256SUMS.name}")


def load_weights() -> dict[str, Tensor]:
    """The trained tensors under their official names, float32."""
    check_weights()
    return load_file(WEIGHTS)


def publish(flat: dict[str, Tensor]) -> None:
    """Make a training's weights the repository's: the file and its hash."""
    config = ModelConfig.from_dict(raw_config())
    save_file(official_tensors(flat, config), str(WEIGHTS))
    WEIGHTS.chmod(0o644)
    digest = hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()
    SHA256SUMS.write_text(f"{digest}  {WEIGHTS.name}\n", encoding="ascii")


def write_directory(out: Path, tensors: dict[str, Tensor]) -> None:
    """A float checkpoint directory, which must not exist and appears complete."""
    raw = raw_config()
    settings = tokenizer_settings(raw["text_config"]["max_position_embeddings"])
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as name:
        work = Path(name) / "checkpoint"
        work.mkdir()
        for file, value in (("config.json", raw), ("tokenizer_config.json", settings)):
            text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
            (work / file).write_text(text, encoding="utf-8")
        build_tokenizer().save(str(work / "tokenizer.json"))
        save_file(tensors, str(work / "model.safetensors"))
        for path in work.iterdir():
            path.chmod(0o644)
            with path.open("rb") as handle:
                os.fsync(handle.fileno())
        os.rename(work, out)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dsv41.tiny.checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="directory to create")
    parser.add_argument("--format", choices=("float32", "w8a8"), default="float32")
    arguments = parser.parse_args(argv)
    try:
        if arguments.out.exists():
            raise ConfigError(f"{arguments.out}: exists already; choose another directory")
        if arguments.format == "float32":
            write_directory(arguments.out, load_weights())
        else:
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=arguments.out.parent, prefix=".float.") as name:
                write_directory(Path(name) / "float32", load_weights())
                convert_directory(Path(name) / "float32", arguments.out)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"checkpoint: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
