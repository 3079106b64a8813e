"""A level of two requests: its mean, and each planted fault of a wave in its own code."""

import hashlib
from fractions import Fraction

import msgspec
import pytest

from acceptance.canonical import canonical
from acceptance.metrics import (
    LevelExpectation,
    Limits,
    eof_tail_ns,
    judge_level,
    send_skew_ns,
    sent_skew_ns,
    steady_window_ns,
    tpot_of_level,
)
from acceptance.records import Attempt
from acceptance.testing.streams import END, chunk, completion_events, head
from acceptance.testing.waves import client_report, request_record, wave_record

BANKS = {"warmup": [(1, 2), (3, 4), (5, 6)], "measured": [(7, 8), (9, 10), (11, 12)]}
FRAMES = [[5], [6, 7], [8]]
LIMITS = Limits(send_skew_ns=50, stall_ns=1000)


def asked(kind, request):
    return f"{kind} {request.slot}".encode()


def store(files, kind, slot, times):
    """One request in `files`, its parts read at `times`; returns its record."""
    parts = [head(), *map(chunk, completion_events(BANKS[kind][slot], FRAMES)), END, b""]
    names = {suffix: f"{kind}-{slot:02d}.{suffix}" for suffix in ("request", "raw", "reads")}
    record = request_record(
        slot=slot,
        prompt_index=slot,
        prompt_sha256=hashlib.sha256(canonical(list(BANKS[kind][slot]))).hexdigest(),
        cache_salt=f"{kind}-{slot}",
        **names,
    )
    files[names["request"]] = asked(kind, record)
    files[names["raw"]] = b"".join(parts)
    files[names["reads"]] = canonical(
        [[t, len(part)] for t, part in zip(times, parts, strict=True)]
    )
    return record


def level():
    """(attempt, files): warm-up and measured wave of two; TPOT of 1400/3 and 1000/3 ns."""
    files = {}
    #            head first  2nd   3rd usage done   end   FIN
    first = (100, 1000, 1600, 2200, 2300, 2301, 2400, 9000)
    second = (100, 1200, 1600, 2000, 2100, 2150, 2200, 9000)
    waves = [
        wave_record(
            [store(files, kind, 0, first), store(files, kind, 1, second)],
            kind=kind,
            origin_ns=origin,
        )
        for kind, origin in (("warmup", "1000"), ("measured", "20000"))
    ]
    attempt = Attempt(
        schema=1,
        run_id="r",
        runspec_sha256="0" * 64,
        round="B1",
        level="C4",
        attempt=1,
        service_id="s",
        waves=tuple(waves),
        metrics=(),
        identity=(),
        previous=None,
        reason=None,
    )
    return attempt, files


def judge(attempt, files, other_codes=(), **changes):
    given = {
        "concurrency": 2,
        "prompts": BANKS,
        "output_tokens": {"warmup": 4, "measured": 4},
        "request": asked,
        "limits": LIMITS,
        "salts": {"older"},
    }
    return judge_level(
        attempt, files.__getitem__, LevelExpectation(**{**given, **changes}), other_codes
    )


def change_wave(attempt, number, **changes):
    waves = list(attempt.waves)
    waves[number] = msgspec.structs.replace(waves[number], **changes)
    return msgspec.structs.replace(attempt, waves=tuple(waves))


def change_request(attempt, number, slot, **changes):
    requests = list(attempt.waves[number].requests)
    requests[slot] = msgspec.structs.replace(requests[slot], **changes)
    return change_wave(attempt, number, requests=tuple(requests))


@pytest.mark.rule("P4.0")
def test_the_round_mean_is_that_of_the_measured_requests():
    figures = judge(*level())

    assert (True, ()) == (figures.valid, figures.invalid)
    assert ["1400/3", "1000/3"] == [one.tpot_ns for one in figures.requests]
    assert "400/1" == figures.mean_tpot_ns


@pytest.mark.rule("P4.6")
def test_tpot_of_a_level_is_the_exact_middle_of_its_rounds():
    assert Fraction(5, 12) == tpot_of_level(Fraction(1, 3), Fraction(1, 2))


@pytest.mark.parametrize("number", [0, 1], ids=["warmup", "measured"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"aborted": "interrupted"}, "wave-aborted", id="aborted"),
        pytest.param({"client": None}, "client-stall", id="no-report"),
        pytest.param(
            {"client": client_report(stall_ns_max=1001)}, "client-stall", id="stall-over-limit"
        ),
    ],
)
def test_a_fault_of_a_wave_ends_in_its_own_code(number, change, expected):
    attempt, files = level()

    figures = judge(change_wave(attempt, number, **change), files)

    assert ((expected,), None, False) == (figures.invalid, figures.mean_tpot_ns, figures.valid)
    assert 2 == len(figures.requests)


@pytest.mark.parametrize("number", [0, 1], ids=["warmup", "measured"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"prompt_index": 0}, "prompt-order", id="other-index"),
        pytest.param({"prompt_sha256": "0" * 64}, "prompt-order", id="other-prompt"),
        pytest.param({"cache_salt": "older"}, "salt-reused", id="salt-of-an-older-attempt"),
        pytest.param({"start_ns": 0, "outcome": "fin"}, None, id="skew-below-limit"),
        pytest.param({"outcome": "reset"}, "reads-mismatch", id="outcome-and-fin"),
    ],
)
def test_a_fault_of_one_request_ends_in_its_own_code(number, change, expected):
    attempt, files = level()

    figures = judge(change_request(attempt, number, 1, **change), files)

    assert ((expected,) if expected else ()) == figures.invalid


def test_a_salt_used_twice_in_an_attempt_is_reused():
    attempt, files = level()

    assert ("salt-reused",) == judge(
        change_request(attempt, 1, 0, cache_salt="warmup-1"), files
    ).invalid


@pytest.mark.parametrize(
    ("skew", "expected"), [(50, ()), (51, ("send-skew",))], ids=["at-limit", "over-limit"]
)
def test_starts_further_apart_than_the_limit_are_a_skew(skew, expected):
    attempt, files = level()
    late = {"start_ns": 10 + skew, "connected_ns": 70, "sent_ns": 90}

    assert expected == judge(change_request(attempt, 1, 1, **late), files).invalid


def test_a_stall_at_the_limit_is_none():
    attempt, files = level()
    at_limit = change_wave(attempt, 1, client=client_report(stall_ns_max=1000))

    assert () == judge(at_limit, files).invalid


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        pytest.param((0,), {"wave-count"}, id="missing"),
        pytest.param((0, 0), {"wave-count", "salt-reused"}, id="doubled"),
        pytest.param((0, 1, 1), {"wave-count", "salt-reused"}, id="surplus"),
        pytest.param((1, 0), set(), id="listed-in-another-order"),
    ],
)
def test_each_slot_must_be_there_once(slots, expected):
    attempt, files = level()
    requests = attempt.waves[1].requests

    changed = change_wave(attempt, 1, requests=tuple(requests[slot] for slot in slots))

    assert expected == set(judge(changed, files).invalid)


def test_a_slot_beyond_the_level_is_counted_and_not_judged():
    attempt, files = level()

    figures = judge(attempt, files, concurrency=1)

    assert ("wave-count",) == figures.invalid
    assert [0] == [one.slot for one in figures.requests]


@pytest.mark.parametrize(
    "waves",
    [
        pytest.param(lambda both: both[:1], id="warm-up-alone"),
        pytest.param(lambda both: both[1:], id="no-warm-up"),
        pytest.param(lambda both: (), id="none"),
    ],
)
def test_a_level_is_a_warm_up_and_a_measured_wave(waves):
    attempt, files = level()

    changed = msgspec.structs.replace(attempt, waves=waves(attempt.waves))

    assert ("wave-order",) == judge(changed, files).invalid


@pytest.mark.rule("P3.1")
def test_a_second_round_on_one_service_start_is_a_measured_wave_alone():
    attempt, files = level()
    measured = msgspec.structs.replace(attempt, waves=attempt.waves[1:])

    assert () == judge(measured, files, waves=("measured",)).invalid
    assert ("wave-order",) == judge(attempt, files, waves=("measured",)).invalid


@pytest.mark.parametrize(
    ("origin", "expected"), [("10000", ()), ("9999", ("wave-order",))], ids=["after", "before"]
)
def test_the_measured_wave_begins_after_the_last_read_of_the_warm_up(origin, expected):
    attempt, files = level()

    # The warm-up's origin is 1000 and its last read came 9000 later.
    assert expected == judge(change_wave(attempt, 1, origin_ns=origin), files).invalid


def test_a_fault_in_a_warm_up_request_makes_the_level_invalid():
    attempt, files = level()
    files["warmup-00.raw"] = files["warmup-00.raw"].replace(b"[DONE]", b"[DONe]")

    assert ("no-done", "sse-malformed") == judge(attempt, files).invalid


def test_codes_from_elsewhere_make_the_level_invalid():
    attempt, files = level()

    figures = judge(attempt, files, other_codes=["preemptions"])

    assert (("preemptions",), None) == (figures.invalid, figures.mean_tpot_ns)


@pytest.mark.rule("P3.9")
def test_what_reports_show_beside_the_figures():
    attempt, files = level()
    late = change_request(attempt, 1, 1, start_ns=25, sent_ns=45)
    requests = judge(attempt, files).requests

    assert (15, 15) == (send_skew_ns(late.waves[1]), sent_skew_ns(late.waves[1]))
    assert [200, 200] == [eof_tail_ns(one) for one in requests]
    assert (1200, 2000) == steady_window_ns(requests)
    assert steady_window_ns(()) is None
    shifted = msgspec.structs.replace(requests[1], first_ns=3000, last_token_ns=4000)
    assert steady_window_ns((requests[0], shifted)) is None
