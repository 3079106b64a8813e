"""How many examples hypothesis tries: `fast` by default, `--hypothesis-profile=deep` at night.

Neither has a deadline: a busy machine is no fault of the rule under test. And a gate to start.
"""

import pytest
from hypothesis import HealthCheck, settings

from tests.strategies.gates import Gate

UNHURRIED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("fast", max_examples=60, **UNHURRIED)
settings.register_profile("deep", max_examples=3000, **UNHURRIED)
settings.load_profile("fast")


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A directory that looks like a checkpoint: config, tokenizer, one weight file."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    directory = tmp_path_factory.mktemp("model")
    made = Tokenizer(models.BPE(vocab={chr(i): i for i in range(32, 127)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.save(str(directory / "tokenizer.json"))
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(b"\0" * 64)
    return directory


@pytest.fixture
def gate(tmp_path, model):
    """Starts a gate on a profile's text; what still runs at the end of the test is killed."""
    started = []

    def start(text, **options):
        started.append(Gate(tmp_path, model, text, **options))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()
