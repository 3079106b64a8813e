"""The records of an accuracy run: what was frozen, what was asked, and how it was counted (P5).

```
plan/accuracy/spec.json        record `AccuracySpec`
plan/accuracy/questions.jsonl  the question set, original bytes, one JSON object a line, in order
results/<accuracy directory>/
  accuracy.json                record `AccuracyRun`
  question-000.request .raw .reads   as a wave's files: bytes sent, received, [[t_ns, count], ...]
  figures.json                 record `AccuracyFigures`: recomputed by the validator
  report.json, report.md       what stands beside the verdict (P5.5), never instead of it
  aisbench/                    the same run as files that AISBench can score again
```

The questions are one wave of the client with a window of C requests (P5.3): its requests have the
question's position as slot and prompt index, SHA-256 of the prompt's UTF-8, and no salt. A request
is valid if its response is HTTP 200 with a whole body of Server-Sent Events: one id, at most one
choice a frame, one `finish_reason`, `stop` or `length`, exactly one usage frame that agrees with
it, `[DONE]`, the end. Reasons for failure:

| code | meaning |
|---|---|
| `outcome-<x>` | the connection ended other than by FIN |
| `file-missing` | the request, its bytes or its reads can't be read |
| `file-shared` | another question names the same file |
| `reads-mismatch` | the reads do not add up to the raw bytes, or run backwards |
| `request-mismatch` | the request's body is not the one that spec and question give |
| `http-status`, `http-framing`, `early-eof` | not 200; malformed HTTP; cut off |
| `sse-malformed`, `error-frame`, `no-done`, `after-done` | as for performance requests |
| `choice` | more than one choice in a frame, an index other than 0, or a tool call |
| `response-id` | no id, two ids in one response, or the id of another question's response |
| `finish-reason` | not exactly one, neither `stop` nor `length`, or text after it |
| `usage-missing`, `usage-mismatch` | not one usage frame; counts that contradict each other,
  the cap, or the finish reason |
"""

from typing import Any, Literal

from acceptance.records import FileHash, Record, ScopeVerdict, Wave

SCHEMA = 1


class AccuracyProfile(Record, frozen=True, kw_only=True):
    """The `[accuracy]` table of a profile: which questions, asked how, counted how.

    `questions` is `gsm8k` for the frozen 300 of P5.2, else the path of a JSON-lines file with
    `question` and `answer` (gold after `#### `), whose SHA-256 must be `questions_sha256`.
    `generation_kwargs` go into the body as AISBench sends its model config's: verbatim, in order.
    """

    questions: str
    questions_sha256: str
    count: int
    threshold: int
    concurrency: int
    max_tokens: int
    timeout_s: int
    template: str
    evaluator: str
    needs_reasoning: bool
    generation_kwargs: dict[str, Any]


class AccuracySpec(Record, frozen=True, kw_only=True):
    """`plan/accuracy/spec.json`: frozen before the first question, hashed into the RunSpec.

    `questions_sha256`: of `questions.jsonl`. `prompts_sha256`: over the rendered prompts, each
    followed by NUL. `bodies_sha256`: over the wire bodies, each followed by NUL.
    `indices_sha256`: of the line numbers in the source as compact JSON, None for a set of its own.
    `generation_kwargs_json`: text, because canonical JSON would sort keys that go out in order.
    `encoding`: the files that turn messages into tokens (chat template, tokenizer, encoder).
    """

    schema: int
    source: str
    questions_sha256: str
    indices: tuple[int, ...]
    indices_sha256: str | None
    count: int
    threshold: int
    concurrency: int
    max_tokens: int
    timeout_ns: int
    template: str
    template_sha256: str
    prompts_sha256: str
    bodies_sha256: str
    evaluator: str
    stage: Literal["chat_pipeline"]
    needs_reasoning: bool
    model: str
    generation_kwargs_json: str
    encoding: tuple[FileHash, ...]


class ServiceEdge(Record, frozen=True, kw_only=True):
    """The service right before the first question or right after the last (P5.6).

    `identity_sha256` is that of the identity proof without its volatile fields; `running` and
    `waiting` are requests inside the service, None if it could not be read.
    """

    identity: str
    identity_sha256: str
    metrics: str
    running: int | None
    waiting: int | None


class AccuracyRun(Record, frozen=True, kw_only=True):
    """`accuracy.json`. `measured_identity_sha256` is the identity under which the performance of
    B2 was measured, None if accuracy was asked for alone. `reuse_lost` says why the service is
    not that one (P5.1), None if it is meant to be. `previous` names an invalid earlier run and
    `fault` what was wrong with it (P5.4)."""

    schema: int
    accuracy_id: str
    runspec_sha256: str
    spec_sha256: str
    service_id: str
    measured_identity_sha256: str | None
    reuse_lost: str | None
    performance_sha256: str | None
    wave: Wave
    before: ServiceEdge
    after: ServiceEdge | None
    previous: str | None
    fault: str | None


class ItemFigures(Record, frozen=True, kw_only=True):
    """One question, recomputed from raw bytes. `correct` is the native score; of a failed request
    it is False and counts for nothing, because the run is invalid."""

    question: int
    index: int
    failed: tuple[str, ...]
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    reasoning_empty: bool
    content_empty: bool
    prediction_sha256: str
    extracted_pred: str
    extracted_gold: str
    correct: bool


class AccuracyFigures(Record, frozen=True, kw_only=True):
    """`figures.json`: everything that the verdict needs; live and recomputed must be equal in all
    but the wording of the verdict's reason."""

    schema: int
    accuracy_id: str
    spec_sha256: str
    items: tuple[ItemFigures, ...]
    correct: int
    count: int
    threshold: int
    verdict: ScopeVerdict


class Reference(Record, frozen=True, kw_only=True):
    """Per-item results of an earlier run of the same questions, to compare with (P5.5)."""

    name: str
    correct: tuple[bool, ...]
    preds: tuple[str, ...]


class Flip(Record, frozen=True, kw_only=True):
    """A question that the reference and this run answer differently in right or wrong."""

    question: int
    index: int
    gold: str
    was_correct: bool
    reference_pred: str
    pred: str
    finish_reason: str | None


class PairedTable(Record, frozen=True, kw_only=True):
    """`lost`: reference right, this run wrong; `gained` the other way. p-values as "n/d"."""

    reference: str
    reference_correct: int
    both_right: int
    lost: int
    gained: int
    both_wrong: int
    p_two_sided: str
    p_regression: str
    flips: tuple[Flip, ...]


class Listed(Record, frozen=True, kw_only=True):
    """A question that the report points at, and why."""

    question: int
    index: int
    gold: str
    pred: str
    why: str


class Tokens(Record, frozen=True, kw_only=True):
    """Completion tokens of the valid replies; None where there is no valid reply."""

    total: int
    p50: int | None
    p95: int | None
    max: int | None
    at_limit: int


class AccuracyReport(Record, frozen=True, kw_only=True):
    """`report.json`: beside the verdict, never instead (P5.5). Shares are decimals in strings:
    they are for display and nothing is decided by them."""

    schema: int
    accuracy_id: str
    wilson: tuple[str, str]
    clopper_pearson: tuple[str, str]
    lower_95: str
    power: dict[str, str]
    passes: dict[str, tuple[str, str]]
    causes: dict[str, tuple[Listed, ...]]
    lucky: tuple[Listed, ...]
    disputed: tuple[Listed, ...]
    content_correct: int
    anchored_correct: int
    disagreements: tuple[Listed, ...]
    tokens: Tokens
    paired: PairedTable | None
    notes: tuple[str, ...]
