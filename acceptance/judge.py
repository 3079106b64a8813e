"""Attempts and their raw bytes -> live figures and verdicts (the validator does it again, alone)."""

import json
from fractions import Fraction
from pathlib import Path

import msgspec

from acceptance import exact, metrics, verdict
from acceptance.errors import UsageError
from acceptance.freeze import Frozen
from acceptance.judgement import Judgement, Obstacle, scope_verdict
from acceptance.plan import Outcome
from acceptance.protocol import CONCURRENCY, Verdict
from acceptance.records import (
    SCHEMA,
    Attempt,
    Figures,
    LevelFigures,
    ScopeVerdict,
)
from acceptance.runspec import RunSpec
from acceptance.steps import waves
