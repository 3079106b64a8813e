"""How many examples hypothesis tries: `fast` by default, `--hypothesis-profile=deep` at night.

Neither has a deadline: a busy machine is no fault of the rule under test.
"""

from hypothesis import HealthCheck, settings

UNHURRIED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("fast", max_examples=60, **UNHURRIED)
settings.register_profile("deep", max_examples=3000, **UNHURRIED)
settings.load_profile("fast")
