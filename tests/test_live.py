"""What the live table says of a wave."""

from acceptance.client import Progress, SlotProgress
from acceptance.live import COLUMNS, cells, line


def _progress(*states, tokens=5, elapsed_ns=2_000_000_000):
    slots = tuple(
        SlotProgress(
            slot=slot,
            state=state,
            bytes=0,
            reads=0,
            tokens=tokens if state in ("decode", "fin") else 0,
            start_ns=None,
            first_ns=7 if state in ("decode", "fin") else None,
            newest_ns=None,
        )
        for slot, state in enumerate(states)
    )
    return Progress(slots=slots, elapsed_ns=elapsed_ns, alive=True, done=False)


def _row(progress, total):
    return dict(zip(COLUMNS, cells(progress, total), strict=True))


def test_requests_are_counted_by_what_they_are_doing():
    row = _row(_progress("waiting", "connecting", "prefill", "decode", "fin", "reset"), 60)

    assert ("1", "3", "2", "2") == tuple(
        row[name] for name in ("waiting", "in flight", "first tokens", "done")
    )


def test_the_eta_goes_by_tokens_where_their_number_is_known():
    # 10 of 60 tokens in 2 s: 5 a second, 50 to go.
    assert "10 s" == _row(_progress("decode", "decode"), 60)["ETA"]


def test_the_eta_goes_by_requests_where_it_is_not():
    # 1 of 4 requests in 2 s.
    row = _row(_progress("fin", "decode", "decode", "waiting"), None)

    assert ("6 s", "15") == (row["ETA"], row["tokens"])


def test_before_anything_came_the_eta_is_unknown():
    assert "?" == _row(_progress("prefill"), 60)["ETA"]
    assert "?" == _row(_progress("waiting", elapsed_ns=None), None)["ETA"]


def test_the_plain_line_says_the_same():
    said = line("B1 C4", 60, _progress("fin", "decode"))

    assert "B1 C4: 10/60 tokens in 2.0 s (5/s), 1 of 2 requests done" == said
