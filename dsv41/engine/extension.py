"""What a worker of vLLM can be asked beside its work: `--worker-extension-cls` names the class."""

from __future__ import annotations

from dsv41 import paths


class PathsExtension:
    """Answers /collective_rpc with `{"method": "publish_paths"}` on every worker."""

    def publish_paths(self) -> None:
        """Write this worker's path counters down now, whenever it last did."""
        paths.write()
