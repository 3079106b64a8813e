"""The command: `python -m validator RUN_DIR`, or `python RUN_DIR/validator RUN_DIR`.

Exit status 0: intact, and the recorded verdict is reproduced. 1: a byte or a figure differs, and
is named. 2: not an archive.
"""

import importlib.util
import marshal
import os
import sys
from contextlib import suppress
from pathlib import Path


def _become_package(here: Path) -> None:
    """Run as a folder: make it the package that it is, and keep its modules from standing in for
    any other. Compiled copies that lie in an archive are neither read nor written."""
    sys.path[:] = [one for one in sys.path if Path(one or ".").absolute() != here]
    _remove_own_cache(here / "__main__.py")
    spec = importlib.util.spec_from_file_location(
        "validator", here / "__init__.py", submodule_search_locations=[str(here)]
    )
    if spec is None or spec.loader is None:
        sys.exit(f"{here}: not the validator's folder")
    sys.pycache_prefix = str(here / "no-such-directory")
    package = importlib.util.module_from_spec(spec)
    sys.modules["validator"] = package
    spec.loader.exec_module(package)


def _remove_own_cache(source: Path) -> None:
    """Python left a compiled copy of this file when it started it as a folder. An archive must
    stay as it was sealed, so exactly that copy goes; any other stays, and is found to be extra."""
    cache = Path(importlib.util.cache_from_source(str(source)))
    with suppress(OSError, ValueError, EOFError, TypeError):
        compiled = compile(source.read_bytes(), str(source), "exec", dont_inherit=True)
        if marshal.loads(cache.read_bytes()[16:]) == compiled:
            cache.unlink()
            cache.parent.rmdir()


def _main() -> int:
    sys.dont_write_bytecode = True
    if not __package__:
        _become_package(Path(os.path.abspath(__file__)).parent)
    from validator.command import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(_main())
