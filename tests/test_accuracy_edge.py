"""Edges of an accuracy run: drained or not, the same service or not; unknown is never 0 (P5.6)."""

import json

import msgspec
import pytest

from acceptance.accuracy.edge import identity_sha256, inside, service_edge
from acceptance.errors import RunFailure
from acceptance.service.identity import Identity, Member

METRICS = b"""\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 0.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
"""
IDENTITY = Identity(
    schema=1,
    service_id="s",
    boot_id="b",
    port=1,
    process="7/70",
    processes=(Member(pid=7, start_ticks=70, name="python", is_running=True),),
    newcomers=(),
    port_owners=(7,),
    foreign_listeners=0,
    command=("python",),
    environment={},
    versions={},
    model=None,
    settings={"block_size": 32},
    settings_source="log",
    vllm_environment=None,
    is_profiler_on=False,
    differences=(),
)


class FakeService:
    def __init__(self, identity=IDENTITY, metrics=METRICS):
        self.proof = identity
        self.text = metrics

    def identity(self):
        return self.proof

    def metrics(self):
        return self.text, 5


@pytest.mark.rule("P5.6")
def test_requests_inside_are_summed_and_unknown_stays_unknown():
    # Engine 1 does not tell how many wait.
    assert (2, None) == inside(METRICS)
    assert (None, None) == inside(b"")
    assert (None, None) == inside(b"\xff")


def test_an_edge_stores_its_proof_and_snapshot(tmp_path):
    edge = service_edge(FakeService(), tmp_path)("before")

    assert METRICS == (tmp_path / edge.metrics).read_bytes()
    assert "7/70" == json.loads((tmp_path / edge.identity).read_bytes())["process"]
    assert identity_sha256(IDENTITY) == edge.identity_sha256


@pytest.mark.rule("P5.6")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"process": "8/80"}, id="another-process"),
        pytest.param({"boot_id": "c"}, id="another-boot"),
        pytest.param({"settings": {"block_size": 64}}, id="other-settings"),
        pytest.param({"command": ("python", "-O")}, id="another-command"),
    ],
)
def test_another_service_has_another_hash(change):
    assert identity_sha256(IDENTITY) != identity_sha256(msgspec.structs.replace(IDENTITY, **change))


def test_a_service_that_is_not_as_asked_is_no_edge(tmp_path):
    changed = msgspec.structs.replace(IDENTITY, differences=("process 7 is gone",))

    with pytest.raises(RunFailure, match=r"P5\.6: .*process 7 is gone"):
        service_edge(FakeService(changed), tmp_path)("after")
