"""The validator stands alone: Python's own modules only, and no code of the live side."""

import ast
import sys

import pytest

from tests.strategies.runs import ROOT

SOURCES = sorted((ROOT / "validator").rglob("*.py"))
LIVE = sorted((ROOT / "acceptance").rglob("*.py"))


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").split(".")[0]


@pytest.mark.parametrize("source", SOURCES, ids=[source.name for source in SOURCES])
def test_it_imports_nothing_but_pythons_own_modules(source):
    outside = set(imports(ast.parse(source.read_text()))) - set(sys.stdlib_module_names)

    assert outside <= {"validator"}


def test_a_foreign_import_would_be_found():
    assert ["msgspec"] == list(imports(ast.parse("from msgspec.json import decode")))


def test_no_module_stands_in_for_one_of_pythons():
    names = {source.stem for source in SOURCES}

    assert set() == names & set(sys.stdlib_module_names)


class Plain(ast.NodeTransformer):
    """Names and texts out, so that a copy with other names is still a copy."""

    def __init__(self):
        self.names = {}

    def _name(self, name):
        return self.names.setdefault(name, f"n{len(self.names)}")

    def visit_Name(self, node):
        return ast.Name(id=self._name(node.id), ctx=node.ctx)

    def visit_arg(self, node):
        return ast.arg(arg=self._name(node.arg), annotation=None)

    def visit_AnnAssign(self, node):
        self.generic_visit(node)
        return ast.Assign(targets=[node.target], value=node.value or ast.Constant(None), lineno=0)


def bodies(sources, least):
    """Normalised bodies of all functions with at least so many statements."""
    found = {}
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body
                if ast.get_docstring(node) is not None:
                    body = body[1:]
                if sum(isinstance(n, ast.stmt) for b in body for n in ast.walk(b)) < least:
                    continue
                text = "".join(ast.dump(Plain().visit(one)) for one in body)
                found[text] = f"{source.parent.name}/{source.name}:{node.name}"
    return found


def test_it_shares_no_function_body_with_the_live_side():
    mine, theirs = bodies(SOURCES, 4), bodies(LIVE, 4)

    assert len(mine) > 40
    assert [] == [(mine[text], theirs[text]) for text in mine.keys() & theirs.keys()]


def test_a_renamed_copy_would_be_found(tmp_path):
    for name, word in (("a.py", "total"), ("b.py", "sum_of_all")):
        lines = [
            f"def f({word}):",
            f"    {word} += 1",
            f"    if {word}:",
            "        return 1",
            f"    {word} -= 2",
            f"    return {word}",
        ]
        (tmp_path / name).write_text("\n".join(lines))

    first, second = (bodies([tmp_path / name], 4) for name in ("a.py", "b.py"))

    assert first.keys() == second.keys()
