"""The fault corpus: both judges give the right value for what others got wrong in public."""

import tomllib
from pathlib import Path

import pytest

from acceptance import metrics
from acceptance.testing.waves import request_record
from tests.strategies import wire
from validator import reply
from validator.attempts import READS, Request
from validator.strict import Refused, read

CORPUS = Path(__file__).parent / "corpus"
STREAMS = tomllib.loads((CORPUS / "streams.toml").read_text())["case"]
RECORDS = tomllib.loads((CORPUS / "records.toml").read_text())["case"]
PROMPT = (1, 2, 3)
ASKED = 5
MS = 1_000_000


def event_bytes(text):
    """The bytes of one event in the corpus' notation."""
    word, _, rest = text.partition(" ")
    if word == "raw":
        plain = rest.encode("utf-8")
        return plain.decode("unicode_escape").encode("latin-1") if b"\\x" in plain else plain
    if word == "D":
        return wire.DONE
    if word == "U":
        return wire.event(wire.usage(len(PROMPT), int(rest)))
    ids = [int(one) for one in rest.split()]
    finish, echo = ("length" if word == "L" else None), (PROMPT if word == "P" else None)
    return wire.event(wire.tokens(ids, finish, echo))


def stored(case):
    """(raw bytes, reads) of a case."""
    parts = [wire.chunk(event_bytes(text)) for text in case["events"]]
    parts[0] = wire.CHUNKED + parts[0]
    times = [(number + 1) * MS for number in range(len(parts))]
    if "end_ms" in case:
        parts.append(wire.END)
        times.append(case["end_ms"] * MS)
    else:
        parts[-1] += wire.END
    if case.get("reads") == "one":
        parts, times = [b"".join(parts)], [MS]
    reads = [[t, len(part)] for t, part in zip(times, parts, strict=True)]
    if case.get("reads") == "bytes":
        reads = [[t, 1] for t, count in reads for _ in range(count)]
    return b"".join(parts), tuple((t, count) for t, count in [*reads, [times[-1] + 1, 0]])


def validator_says(raw, reads):
    record = request_record(start_ns=0, connected_ns=0, sent_ns=0)
    request = Request(**{name: getattr(record, name) for name in record.__struct_fields__})
    return reply.judge(request, raw, reads, b"sent", reply.Asked(PROMPT, ASKED, b"sent"))


def live_says(raw, reads):
    expected = metrics.Expectation(prompt=PROMPT, output_tokens=ASKED, request=b"sent")
    record = request_record(start_ns=0, connected_ns=0, sent_ns=0)
    return metrics.judge_request(raw, reads, record, b"sent", expected)


@pytest.mark.parametrize("case", STREAMS, ids=[case["id"] for case in STREAMS])
def test_the_right_value_is_given_by_both_judges(case):
    raw, reads = stored(case)
    expect = dict(case["expect"])
    codes = set(expect.pop("codes", ()))

    figures, found = validator_says(raw, reads)
    live, live_codes = live_says(raw, reads)

    assert (codes, codes) == (set(found), set(live_codes))
    shown = figures.as_json() if figures else {}
    assert expect == {name: shown[name] for name in expect}
    assert shown == ({n: getattr(live, n) for n in live.__struct_fields__} if live else {})


@pytest.mark.parametrize("case", RECORDS, ids=[case["file"] for case in RECORDS])
def test_a_file_that_is_none_of_ours_is_refused_on_one_line(case):
    data = (CORPUS / "records" / case["file"]).read_bytes()

    with pytest.raises(Refused) as caught:
        read(data, case["file"], READS)

    assert f"{case['file']}: {case['says']}" == str(caught.value)


def test_every_case_names_where_it_was_met():
    assert [] == [case["id"] for case in STREAMS if not case["peers"] or not case["why"]]
    assert sorted(case["file"] for case in RECORDS) == sorted(
        path.name for path in (CORPUS / "records").iterdir()
    )
