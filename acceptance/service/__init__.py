"""The service under test: started, identified, watched, stopped and shown to be gone."""

from acceptance.service.identity import Identity, prove_same
from acceptance.service.orphans import Orphan, find_orphans
from acceptance.service.runner import Service, StopRecord, start
from acceptance.service.spec import ServiceSpec, check

__all__ = [
    "Identity",
    "Orphan",
    "Service",
    "ServiceSpec",
    "StopRecord",
    "check",
    "find_orphans",
    "prove_same",
    "start",
]
