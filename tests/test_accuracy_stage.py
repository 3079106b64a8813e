"""The accuracy run with a scripted client: asked once, judged from files, faults caught (P5)."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acceptance.accuracy import dataset
from acceptance.accuracy.evaluate import evaluate, read_run
from acceptance.accuracy.plan import freeze, wave_spec
from acceptance.accuracy.records import AccuracyProfile, ServiceEdge
from acceptance.accuracy.stage import Address, Binding, run
from acceptance.errors import RunFailure
from acceptance.testing.answers import Reply, ScriptedClient, stream

OWN = Path(__file__).parent / "data/gsm8k/questions.jsonl"
GOLDS = ["7", "1500", "7", "-5", "36", "210", "0", "512", "4", "12000", "45", "18"]
ADDRESS = Address(host="127.0.0.1", port=1, data_parallel_size=4, barrier_timeout_ns=10**9)
BINDING = Binding(
    accuracy_id="accuracy-1",
    runspec_sha256="r",
    service_id="B2",
    measured_identity_sha256="same",
    performance_sha256="p",
)


def a_profile(**changes):
    made = AccuracyProfile(
        questions="questions.jsonl",
        questions_sha256=dataset.sha256(OWN.read_bytes()),
        count=12,
        threshold=11,
        concurrency=4,
        max_tokens=64,
        timeout_s=30,
        template="Q: {question}",
        evaluator="released",
        needs_reasoning=True,
        generation_kwargs={"temperature": 0, "seed": 0},
    )
    return msgspec.structs.replace(made, **changes)


def a_plan(**changes):
    questions = dataset.load_questions(OWN, dataset.sha256(OWN.read_bytes()), 12)
    return freeze(a_profile(**changes), questions, model="m", encoding=())


def an_edge(name, **changes):
    made = ServiceEdge(
        identity=f"identity-{name}.json",
        identity_sha256="same",
        metrics=f"metrics-{name}.txt",
        running=0,
        waiting=0,
    )
    return msgspec.structs.replace(made, **changes)


def right(question):
    # A thought of its own, so that no two responses are equal.
    return Reply(reasoning=f"thought {question}", content=f"answer:{GOLDS[question]}")


def wrong_at(*questions):
    return lambda n: Reply(content="answer:99") if n in questions else right(n)


def judged(directory, client, *, plan=None, binding=BINDING, edge=an_edge):
    """Run and evaluate; the figures."""
    plan = plan or a_plan()
    record = run(
        plan, binding, ADDRESS, edge=edge, send_wave=client, directory=Path(directory) / "a"
    )
    return evaluate(plan, record, Path(directory) / "a").figures


@pytest.mark.rule("P5.4")
@pytest.mark.parametrize(
    ("wrong", "verdict", "correct"),
    [
        pytest.param((), "PASS", 12, id="all-right"),
        pytest.param((3,), "PASS", 11, id="at-the-threshold"),
        pytest.param((3, 9), "FAIL", 10, id="one-below"),
    ],
)
def test_a_run_is_judged_by_its_count(tmp_path, wrong, verdict, correct):
    figures = judged(tmp_path, ScriptedClient(reply=wrong_at(*wrong)))

    assert (verdict, correct, 12) == (figures.verdict.verdict, figures.correct, figures.count)
    assert f"{correct}/12 (threshold 11)" == figures.verdict.reason


@pytest.mark.rule("P5.3")
def test_each_question_is_asked_once_in_order_in_a_window_of_c(tmp_path):
    spec = wave_spec(a_plan(), host="127.0.0.1", port=1, data_parallel_size=4, barrier_timeout_ns=1)

    assert (4, "/v1/chat/completions") == (spec.concurrency, spec.path)
    assert list(range(12)) == [request.prompt_index for request in spec.requests]
    assert [0, 1, 2, 3] * 3 == [request.rank for request in spec.requests]
    body = json.loads(spec.requests[0].body)
    assert (
        "Q: Ida has 3 red caps and 4 blue caps. How many caps has she?"
        == (body["messages"][0]["content"])
    )
    assert (64, True) == (body["max_tokens"], body["stream"])
    assert not {"stop", "min_tokens", "ignore_eos"} & set(body)


@pytest.mark.rule("P5.5")
def test_a_truncated_answer_is_scored_as_it_is(tmp_path):
    cut = Reply(reasoning="it is 512", content="", finish_reason="length", tokens=64)

    figures = judged(tmp_path, ScriptedClient(reply=lambda n: cut if n == 7 else right(n)))

    assert ("PASS", 12) == (figures.verdict.verdict, figures.correct)
    assert ("length", True) == (figures.items[7].finish_reason, figures.items[7].content_empty)


@pytest.mark.rule("P5.4")
def test_a_failed_request_makes_the_run_invalid_not_the_answer_wrong(tmp_path):
    cut = stream(right(5), "chatcmpl-5")[:-5]

    figures = judged(tmp_path, ScriptedClient(reply=lambda n: cut if n == 5 else right(n)))

    assert ("INCONCLUSIVE", "P5.4", ("early-eof",)) == (
        figures.verdict.verdict,
        figures.verdict.rule,
        figures.items[5].failed,
    )
    # Its text is all there and right; it counts for nothing all the same.
    assert ("210", False, 11) == (
        figures.items[5].extracted_pred,
        figures.items[5].correct,
        figures.correct,
    )


@pytest.mark.rule("P5.3")
def test_thinking_is_proved_by_reasoning_in_every_reply(tmp_path):
    silent = Reply(reasoning="", content="answer:7")
    client = ScriptedClient(reply=lambda n: silent if n == 2 else right(n))

    assert ("INCONCLUSIVE", "P5.3") == (
        (found := judged(tmp_path / "1", client).verdict).verdict,
        found.rule,
    )
    assert "PASS" == (
        judged(tmp_path / "2", client, plan=a_plan(needs_reasoning=False)).verdict.verdict
    )


@pytest.mark.rule("P5.6")
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"identity_sha256": "other"}, "service changed", id="restarted"),
        pytest.param({"running": 1}, "not drained after", id="still-running"),
        pytest.param({"waiting": None}, "not drained after", id="unknown"),
    ],
)
def test_the_service_after_the_run_is_proved_and_drained(tmp_path, changes, says):
    def edge(name):
        return an_edge(name, **(changes if name == "after" else {}))

    found = judged(tmp_path, ScriptedClient(reply=right), edge=edge).verdict

    assert ("INCONCLUSIVE", "P5.6") == (found.verdict, found.rule)
    assert says in found.reason


@pytest.mark.rule("P5.6")
def test_a_service_that_is_gone_afterwards_is_inconclusive(tmp_path):
    def edge(name):
        if name == "after":
            raise RunFailure("P5.6", "gone")
        return an_edge(name)

    found = judged(tmp_path, ScriptedClient(reply=right), edge=edge).verdict

    assert ("INCONCLUSIVE", "P5.6") == (found.verdict, found.rule)


@pytest.mark.parametrize(
    ("edge_changes", "binding_changes", "rule"),
    [
        pytest.param({"running": 2}, {}, "P5.6", id="not-drained"),
        pytest.param({"waiting": None}, {}, "P5.6", id="unknown"),
        pytest.param({"identity_sha256": "new"}, {}, "P5.1", id="another-service"),
        pytest.param({}, {"previous": "accuracy-0"}, "P5.4", id="no-fault-recorded"),
    ],
)
def test_nothing_is_asked_unless_the_run_can_be_valid(
    tmp_path, edge_changes, binding_changes, rule
):
    fields = {name: getattr(BINDING, name) for name in BINDING.__slots__} | binding_changes

    with pytest.raises(RunFailure) as caught:
        judged(
            tmp_path,
            lambda spec, directory: pytest.fail("a question was asked"),
            binding=Binding(**fields),
            edge=lambda name: an_edge(name, **edge_changes),
        )

    assert rule == caught.value.rule


@pytest.mark.rule("P5.1")
def test_a_new_service_with_its_reason_is_judged_and_never_called_a_reuse(tmp_path):
    fields = {name: getattr(BINDING, name) for name in BINDING.__slots__}
    binding = Binding(**fields | {"reuse_lost": "B2 died: out of memory"})

    figures = judged(
        tmp_path,
        ScriptedClient(reply=right),
        binding=binding,
        edge=lambda name: an_edge(name, identity_sha256="new"),
    )

    assert "PASS" == figures.verdict.verdict
    assert "B2 died: out of memory" == read_run(tmp_path / "a").reuse_lost


def test_an_interrupted_run_leaves_its_record(tmp_path):
    def interrupted(spec, directory):
        error = KeyboardInterrupt()
        error.wave = ScriptedClient(reply=right, aborted="interrupted")(spec, directory)
        raise error

    with pytest.raises(KeyboardInterrupt):
        judged(tmp_path, interrupted)
    found = evaluate(a_plan(), read_run(tmp_path / "a"), tmp_path / "a").figures.verdict

    assert ("INCONCLUSIVE", "P5.4") == (found.verdict, found.rule)
    assert "aborted: interrupted" in found.reason


def test_a_directory_is_used_once(tmp_path):
    judged(tmp_path, ScriptedClient(reply=right))

    with pytest.raises(FileExistsError):
        judged(tmp_path, ScriptedClient(reply=right))


def swap(items, one, other):
    items[one], items[other] = items[other], items[one]
    return items


def give(items, to, giver, *names):
    changes = {name: getattr(items[giver], name) for name in names}
    items[to] = msgspec.structs.replace(items[to], **changes)
    return items


@pytest.mark.rule("P5.4")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(lambda r: r[:-1], "missing: 11", id="response-missing"),
        pytest.param(lambda r: [*r, r[0]], "more than once: 0", id="question-doubled"),
        pytest.param(lambda r: swap(r, 2, 3), "frozen order", id="order-swapped"),
        pytest.param(
            lambda r: give(r, 2, 3, "prompt_index", "slot"), "missing: 2", id="question-replaced"
        ),
        pytest.param(lambda r: give(r, 2, 3, "raw", "reads"), "file-shared", id="raw-shared"),
        pytest.param(lambda r: give(r, 2, 3, "request"), "file-shared", id="request-shared"),
        pytest.param(
            lambda r: give(give(r, 2, 3, "request"), 3, 4, "request"),
            "request-mismatch",
            id="request-of-another",
        ),
        pytest.param(
            lambda r: give(r, 2, 3, "prompt_sha256"), "request-mismatch", id="prompt-hash"
        ),
        pytest.param(
            lambda r: [msgspec.structs.replace(r[0], raw="no"), *r[1:]],
            "0 (file-missing)",
            id="file-missing",
        ),
        pytest.param(
            lambda r: [msgspec.structs.replace(r[0], raw="../a/question-00.raw"), *r[1:]],
            "0 (file-missing)",
            id="path-out-of-the-directory",
        ),
        pytest.param(
            lambda r: [msgspec.structs.replace(r[0], outcome="timeout"), *r[1:]],
            "0 (outcome-timeout)",
            id="timeout",
        ),
    ],
)
def test_a_planted_fault_in_the_record_is_caught(tmp_path, change, says):
    found = judged(tmp_path, ScriptedClient(reply=right, change=change)).verdict

    assert ("INCONCLUSIVE", "P5.4") == (found.verdict, found.rule)
    failed = evaluate(a_plan(), read_run(tmp_path / "a"), tmp_path / "a").figures.items
    assert says in found.reason or any(says in item.failed for item in failed)


@pytest.mark.parametrize(
    "reads",
    [
        pytest.param(b"[[1,5],[2,0]]", id="do-not-add-up"),
        pytest.param(b'[["1",5]]', id="not-numbers"),
        pytest.param(b"[", id="cut"),
    ],
)
def test_reads_that_do_not_fit_the_bytes_fail_the_request(tmp_path, reads):
    judged(tmp_path, ScriptedClient(reply=right))
    (tmp_path / "a/question-06.reads").write_bytes(reads)

    figures = evaluate(a_plan(), read_run(tmp_path / "a"), tmp_path / "a").figures

    assert ("INCONCLUSIVE", ("reads-mismatch",)) == (
        figures.verdict.verdict,
        figures.items[6].failed,
    )


@pytest.mark.rule("P5.4")
def test_one_response_stored_twice_under_two_names_is_caught(tmp_path):
    client = ScriptedClient(reply=lambda n: stream(right(0), "one") if n in (0, 2) else right(n))

    figures = judged(tmp_path, client)

    assert "INCONCLUSIVE" == figures.verdict.verdict
    assert [("response-id",)] * 2 == [figures.items[n].failed for n in (0, 2)]


@settings(
    max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(data=st.data())
def test_a_planted_fault_in_the_files_never_gives_the_same_figures(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("run")
    plan = a_plan()
    honest = judged(directory, ScriptedClient(reply=wrong_at(1)), plan=plan)
    fault = data.draw(st.sampled_from(["answer", "swap", "duplicate", "missing", "cut", "sent"]))
    one, other = data.draw(st.lists(st.integers(0, 11), min_size=2, max_size=2, unique=True))
    a, b = (directory / "a" / f"question-{n:02d}.raw" for n in (one, other))
    if fault == "answer":
        said = b'"content": "' + (GOLDS[one].encode() if one != 1 else b"99")
        a.write_bytes(a.read_bytes().replace(said, said[:-1] + b"1"))
    elif fault == "swap":
        first, second = a.read_bytes(), b.read_bytes()
        a.write_bytes(second)
        b.write_bytes(first)
    elif fault == "duplicate":
        a.write_bytes(b.read_bytes())
    elif fault == "missing":
        a.unlink()
    elif fault == "cut":
        a.write_bytes(a.read_bytes()[: data.draw(st.integers(0, 600))])
    else:
        sent = a.with_suffix(".request")
        sent.write_bytes(sent.read_bytes().replace(b"Q: ", b"R: "))

    found = evaluate(plan, read_run(directory / "a"), directory / "a").figures

    assert found != honest
    # Only whole responses that change places can leave a valid run, with other figures.
    assert fault in ("answer", "swap") or found.verdict.verdict == "INCONCLUSIVE"


def test_evaluating_twice_gives_the_same_figures(tmp_path):
    figures = judged(tmp_path, ScriptedClient(reply=wrong_at(4)))

    assert figures == evaluate(a_plan(), read_run(tmp_path / "a"), tmp_path / "a").figures


def test_a_run_under_another_spec_is_inconclusive(tmp_path):
    judged(tmp_path, ScriptedClient(reply=right))

    found = evaluate(a_plan(threshold=1), read_run(tmp_path / "a"), tmp_path / "a").figures.verdict

    assert ("INCONCLUSIVE", "P5.2") == (found.verdict, found.rule)
