"""The gate as a process of its own on the stand-in service, and the profiles that it is given."""

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent.parent
ALL = ("C1", "C4", "C16")
SLOW = ("--frame-s", "0.4")
MINI = (ROOT / "acceptance/profiles/cpu-mini.toml").read_text()


def fake_profile(
    *, rounds="restart", extra=(), fault="none", attempts=1, levels=("C1",), changes=()
):
    """cpu-mini with the stand-in service and tiny sizes."""
    argv = ["{python}", "-m", "acceptance.testing.fake_vllm", "--model", "{model}"]
    argv += ["--served-model-name", "fake", "--port", "{port}", "--fault", fault, *extra]
    text = re.sub(r"argv = \[.*?\n\]", f"argv = {json.dumps(argv)}", MINI, flags=re.DOTALL)
    text = re.sub(r"build(_sources)? = .*\n", "", text)
    text = re.sub(
        r"\[service.expect\].*?\[load\]",
        '[service.expect]\n"cache_config.block_size" = 32\n\n[load]',
        text,
        flags=re.S,
    )
    text = re.sub(
        r"\[service.environment\]\n.*?\n\n",
        f'[service.environment]\nPYTHONPATH = "{ROOT}"\n\n',
        text,
        flags=re.DOTALL,
    )
    text = re.sub(r"candidates = .*\n", "", text)
    text = re.sub(r"\[service.path_counters\]\n.*?\n\n", "", text, flags=re.DOTALL)
    text = re.sub(r"\[function\]\n.*?\n\n", "", text, flags=re.DOTALL)
    text = re.sub(r"(warmup|measured)_sha256 = .*\n", "", text)
    text = re.sub(r"\[accuracy\].*?(?=# Every validity rule)", "", text, flags=re.DOTALL)
    replaced = [
        ('levels = ["C1", "C4", "C16"]', f"levels = {json.dumps(levels)}"),
        ('name = "cpu-mini"', 'name = "fake"'),
        ('plan = "gate-full"', 'plan = "gate-performance"'),
        ('function = "planned"', 'function = "not planned"'),
        ('accuracy = "planned"', 'accuracy = "no trained checkpoint"'),
        ('"dsv41-0day"', '"fake"'),
        ('directory = "cpu-mini"', 'directory = "@MODEL@"'),
        ('rounds = "restart"', f'rounds = "{rounds}"'),
        ("input_tokens = 128", "input_tokens = 40"),
        ("output_tokens = 16", "output_tokens = 4"),
        ("output_tokens = 64", "output_tokens = 30"),
        ("attempts_max = 2", f"attempts_max = {attempts}"),
        ("startup_timeout_s = 180", "startup_timeout_s = 30"),
        ("stop_timeout_s = 20", "stop_timeout_s = 3"),
        ("http_s = 120", "http_s = 20"),
        ('draft-acceptance = "required"', 'draft-acceptance = "not_applicable: a stand-in"'),
        *changes,
    ]
    for old, new in replaced:
        assert old in text, old
        text = text.replace(old, new)
    return text


def asking_profile(*, wrong=0, fault="none", target="500"):
    """A profile that claims accuracy too: 12 questions, 11 of them must be right."""
    answers = ROOT / "tests/data/gsm8k/questions.jsonl"
    table = {
        "questions": str(answers),
        "questions_sha256": hashlib.sha256(answers.read_bytes()).hexdigest(),
        "count": 12, "threshold": 11, "concurrency": 4, "max_tokens": 64, "timeout_s": 20,
        "template": "{question}", "evaluator": "released",
    }  # fmt: skip
    lines = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
    accuracy = "\n".join(
        [
            "[accuracy]",
            *lines,
            "needs_reasoning = true",
            "",
            "[accuracy.generation_kwargs]",
            "temperature = 0",
            "",
            "[rules]",
        ]
    )
    return fake_profile(
        levels=ALL,
        fault=fault,
        extra=("--answers", str(answers), "--wrong", str(wrong)),
        changes=[
            ('accuracy = "no trained checkpoint"', 'accuracy = "planned"'),
            ('plan = "gate-performance"', 'plan = "gate-accuracy"'),
            ('C4 = "1000"', f'C4 = "{target}"'),
            ("[rules]", accuracy),
        ],
    )


def function_profile(fault="none"):
    """A profile that claims functions too."""
    sizes = "[function]\nlong_prompt_tokens = 100\noutput_tokens = 6\nabort_tokens = 300"
    return fake_profile(
        levels=ALL,
        fault=fault,
        extra=("--frame-s", "0.01"),
        changes=[
            ('plan = "gate-performance"', 'plan = "gate-function"'),
            ('function = "not planned"', 'function = "planned"'),
            ("[scopes]", f"{sizes}\n\n[scopes]"),
        ],
    )


def table(**changes):
    """A table with one candidate of the stand-in; `changes` replace its fields."""
    candidate = {
        "name": "fast-001",
        "hypothesis": "the fast path waits less between two frames",
        "parent": "baseline",
        "parent_commit": None,
        "targets": ["C4"],
        "switch": {"FAKE_FAST": "1"},
        "eligibility": "always",
        "claim": "bit_exact",
        "tolerance": None,
        "paths": ["attend/fast"],
        "outcome": "not tried",
        "source": "made up for tests",
        **changes,
    }
    return {"schema": 1, "candidates": [candidate]}


def candidate_profile(tmp_path, *, changes=(), **options):
    """A profile whose stand-in has a candidate, its counters and slow frames of its own."""
    path = tmp_path / "candidates.json"
    path.write_text(json.dumps(table(**dict(changes))))
    named = f'plan = "gate-performance"\ncandidates = {json.dumps(str(path))}'
    hidden = f'\nFAKE_FAULT_FILE = "{tmp_path}/fault"'
    counters = '[service.path_counters]\nvariable = "FAKE_PATHS_DIR"\nmethod = "publish_paths"'
    return fake_profile(
        levels=ALL,
        extra=("--frame-s", "0.02"),
        changes=[
            ('plan = "gate-performance"', named),
            ("[service.environment]", f"{counters}\n\n[service.environment]{hidden}"),
        ],
        **options,
    )


class Gate:
    """One started gate."""

    def __init__(self, tmp_path, model, text, run_id="run-1", command="gate", more=()):
        self.model = model
        self.runs = tmp_path / "runs"
        self.run_dir = self.runs / run_id
        profile = tmp_path / "fake.toml"
        profile.write_text(text.replace("@MODEL@", str(model)))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "acceptance", command, "--profile", str(profile),
             "--run-id", run_id, *more],
            cwd=ROOT,
            env={**os.environ, "ACCEPTANCE_RUNS": str(self.runs), "ACCEPTANCE_PLAIN": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def wait_for(self, pattern):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            if list(self.run_dir.glob(pattern)):
                return
            time.sleep(0.02)
        raise AssertionError(f"{pattern} never came:\n{self.process.communicate()[0]}")

    def wave(self, round_name, level, tokens=30):
        """Wait until a measured wave of the level is under way."""
        self.wait_for(f"results/{round_name}/{level}/attempt-1/metrics-1.txt")
        deadline = time.monotonic() + 30
        while not self.is_sending() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.8)  # so that some frames have come

    def is_sending(self):
        """Whether the measuring client holds connections."""
        clients = [
            child
            for child in psutil.Process(self.process.pid).children()
            if "acceptance.client.wave" in child.cmdline()
        ]
        return any(child.net_connections() for child in clients)

    def service(self):
        """The service's processes: known by the model directory of this very test session, so
        that another gate on the machine is not taken for it."""
        marks = {"acceptance.testing.fake_vllm", str(self.model)}
        running = psutil.process_iter(["cmdline"])
        return [one for one in running if marks <= {*(one.info["cmdline"] or ())}]

    def end(self):
        output = self.process.communicate(timeout=120)[0]
        return self.process.returncode, output.strip().splitlines()[-1], output

    def json(self, name):
        return json.loads((self.run_dir / name).read_text())


def verify(run_dir):
    done = subprocess.run(
        [sys.executable, "-m", "acceptance", "verify", str(run_dir)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, (done.stdout + done.stderr).strip()
