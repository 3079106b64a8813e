"""STYLE.md as far as a program can check it; each check is shown to find a planted fault."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PRODUCT = ("acceptance", "validator", "dsv41")
TESTS = ("tests", "tests_ops", "tests_service", "tests_accuracy", "bench")
MODULE_LINES_MAX = 400
TEST_LINES_MAX = 600  # a table of cases is long without being hard to read
FUNCTION_LINES_MAX = 70
NO_NOUNS = {"util", "utils", "helper", "helpers", "misc", "common", "stuff"}
RULE = re.compile(r"\bP[1-8](?:\.\d+)+[a-z]?\b")


def _files(*folders):
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def _protocol_rules():
    return set(RULE.findall((ROOT / "docs/protocol.md").read_text()))


def long_functions(source):
    return [
        (node.name, node.end_lineno - node.lineno + 1)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]


def unknown_rules(text, known):
    return sorted({rule for rule in RULE.findall(text) if rule not in known})


def undocumented(source):
    tree = ast.parse(source)
    nodes = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    public = [node for node in nodes if not node.name.startswith("_")]
    missing = [node.name for node in public if ast.get_docstring(node) is None]
    return missing if ast.get_docstring(tree) else ["module", *missing]


def unreferenced(modules, texts):
    """Modules whose last name is in no other file's text."""
    return [
        name
        for name in modules
        if not any(
            re.search(rf"\b{re.escape(name.rpartition('.')[2])}\b", text)
            for other, text in texts.items()
            if other != name
        )
    ]


def test_functions_and_modules_are_short():
    too_long = []
    for path in _files(*PRODUCT, *TESTS):
        source = path.read_text()
        is_test = path.relative_to(ROOT).parts[0] in TESTS
        if source.count("\n") > (TEST_LINES_MAX if is_test else MODULE_LINES_MAX):
            too_long.append(f"{path.relative_to(ROOT)}: {source.count(chr(10))} lines")
        too_long += [f"{path.relative_to(ROOT)}: {n}: {k} lines" for n, k in long_functions(source)]

    assert [] == too_long


def test_every_cited_rule_stands_in_the_protocol():
    known = _protocol_rules()
    wrong = {
        str(path.relative_to(ROOT)): found
        for path in _files(*PRODUCT, *TESTS)
        if path.name != "test_tidy.py" and (found := unknown_rules(path.read_text(), known))
    }

    assert {} == wrong


def test_no_module_is_named_for_nothing():
    named = [path for path in _files(*PRODUCT, *TESTS) if path.stem in NO_NOUNS]

    assert [] == named


def test_what_is_public_says_what_it_is():
    missing = {
        str(path.relative_to(ROOT)): found
        for path in _files("acceptance", "validator")
        if (found := undocumented(path.read_text()))
        and found != ["module"]
        and path.name != "pytest_plugin.py"
    }

    assert {} == missing


def test_no_module_is_dead():
    texts = {
        str(path.relative_to(ROOT)).removesuffix(".py").replace("/", "."): path.read_text()
        for path in [*_files(*PRODUCT, *TESTS), ROOT / "conftest.py"]
    }
    texts["settings"] = "".join(
        (ROOT / name).read_text() for name in ("pyproject.toml", "pytest.ini", "Makefile")
    ) + "".join(path.read_text() for path in (ROOT / "acceptance/profiles").glob("*.toml"))
    texts["readme"] = "".join(path.read_text() for path in ROOT.glob("dsv41/**/README.md"))
    modules = [
        name
        for name in texts
        if name.startswith(PRODUCT) and not name.endswith(("__init__", "__main__"))
    ]

    assert [] == unreferenced(modules, texts)


def test_what_is_committed_names_no_place_of_our_own():
    done = subprocess.run(
        ["git", "grep", "-nIE", r"(^|[^a-z/.])/work/|/root/|pypi\.org|/opt/(wheels|pypi)",
         "--", ".", ":!tests/test_tidy.py"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode > 1:
        pytest.skip("not a git checkout")

    assert "" == done.stdout


def test_the_checks_find_planted_faults():
    long = "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX
    assert [("f", FUNCTION_LINES_MAX + 1)] == long_functions(long)
    assert [] == long_functions("def f():\n" + "    x = 1\n" * (FUNCTION_LINES_MAX - 1))
    assert ["P9.9"[:0] + "P7.77"] == unknown_rules("by P7.77 and P4.0", _protocol_rules())
    assert ["module", "f"] == undocumented("def f(): ...")
    assert ["g"] == undocumented('"""Doc."""\ndef g(): ...\ndef _h(): ...')
    assert ["a.dead"] == unreferenced(["a.dead"], {"a.dead": "dead", "a.b": "live deadly"})
