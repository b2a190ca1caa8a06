"""Mutation testing of the core, by hand: which mistakes in the source would the tests miss?

    python tests/mutate.py [--count 200] [--seed 1] [--report mutants.jsonl] [--wide]

Each mutant changes one line of swizzle, tensor_map, mma or sync: a comparison, an operator, a number, a condition or a call.
The tests of its package run first, and stop at the first failure. With --wide, survivors of the report meet every test that ./test
runs, those of related packages first. The same seed draws the same mutants. A report that exists is continued, so that a
run may be interrupted. The checkout is not touched: mutants live in a temporary copy.

Options of @dataclass, sizes of caches and examples of rules are not mutated. Some other mutants cannot be noticed either,
because they change nothing that anyone can see: the size of a pool, or a bound that is never reached. Read the survivors;
each of the others is a missing test.
"""

import argparse
import ast
import functools
import itertools
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGES = ("swizzle", "tensor_map", "mma", "sync")
RELATED = {  # tests that use a package most
    "swizzle": ("tma", "smem", "tensor_map"),
    "tensor_map": ("tma", "cli", "questions"),
    "mma": ("machine", "planner", "questions"),
    "sync": ("pipeline", "machine"),
}
COPIED = (
    "src",
    "tests",
    "docs",
    "examples",
    "benchmarks",
    "pyproject.toml",
    "README.md",
    "CONTRIBUTING.md",
    "mkdocs.yml",
)
# CPU seconds of each selection of tests, some five times what they need: a mutant that takes longer loops forever, and is noticed.
CPU_SECONDS = {"package": 300, "related": 1500, "everything": 3000}
OPTIONS = ["-q", "-x", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"]

SWAPPED_COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
SWAPPED_OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
# Of @dataclass, zip, lru_cache and rule: what they say is a form, a size of a cache, or an example that tests read.
INVISIBLE_KEYWORDS = {"frozen", "slots", "eq", "kw_only", "init", "repr", "strict", "maxsize", "passing", "failing"}
TYPE_NAMES = {"bool", "bytes", "dict", "float", "int", "list", "np", "str", "tuple", "Callable", "Iterable", "Sequence"}


class Mutant(NamedTuple):
    """One changed place of one module."""

    path: str  # from the checkout's root
    line: int
    before: str
    after: str
    start: int  # of the changed text in the file, in bytes
    end: int

    @property
    def key(self):
        return self.path, self.line, self.after


def is_type_only(node, parents):
    """Whether a node is part of an annotation, an import, a docstring, a block for type checkers or an invisible keyword."""
    while node in parents:
        parent = parents[node]
        if isinstance(parent, ast.AnnAssign) and node is parent.annotation:
            return True
        if isinstance(parent, ast.arg) or (isinstance(parent, ast.FunctionDef) and node is parent.returns):
            return True
        if isinstance(parent, ast.If) and "TYPE_CHECKING" in ast.dump(parent.test):
            return True
        if isinstance(parent, ast.keyword) and parent.arg in INVISIBLE_KEYWORDS:
            return True
        if isinstance(parent, ast.Assign) and "Literal" in ast.dump(parent.value):
            return True
        node = parent
    return False


def is_union_of_types(node):
    """Whether `|` joins types, as in isinstance(value, list | tuple), and not bits or sets."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return isinstance(node.op, ast.BitOr) and bool(names & TYPE_NAMES)


def changed(node):
    """Replacements of a node: source text of each."""
    if isinstance(node, ast.Compare):  # of a chain, such as 1 <= rank <= 5, one end at a time
        swapped = [SWAPPED_COMPARISONS[type(operator)]() for operator in node.ops]
        chains = [[*node.ops[:at], operator, *node.ops[at + 1 :]] for at, operator in enumerate(swapped)]
        return [ast.Compare(node.left, chain, node.comparators) for chain in chains]
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPPED_OPERATORS and not is_union_of_types(node):
        return [ast.BinOp(node.left, SWAPPED_OPERATORS[type(node.op)](), node.right)]
    if isinstance(node, ast.BoolOp):
        return [ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [node.operand]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return [ast.Constant(node.value + 1)]
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        return [ast.Constant(not node.value)]
    if isinstance(node, ast.IfExp):
        return [ast.IfExp(node.test, node.orelse, node.body)]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return [ast.Expr(ast.Constant(None))]
    return []


def mutants_of(path):
    """Every mutant of a module."""
    source = path.read_bytes()
    begins = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]  # byte offset of each line
    tree = ast.parse(source)
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(tree):
        inside_text = isinstance(parents.get(node), ast.FormattedValue | ast.JoinedStr)
        if inside_text or is_type_only(node, parents):
            continue
        for replacement in changed(node):
            start = begins[node.lineno - 1] + node.col_offset
            end = begins[node.end_lineno - 1] + node.end_col_offset
            before, after = source[start:end].decode(), ast.unparse(replacement)
            is_statement = isinstance(node, ast.Expr)
            text = after if is_statement else f"({after})"
            yield Mutant(str(path.relative_to(ROOT)), node.lineno, before, text, start, end)


def drawn_mutants(count, seed):
    """`count` mutants of different lines, as many of each package."""
    drawing = random.Random(seed)
    chosen = []
    for number, package in enumerate(PACKAGES):
        by_line = {}
        for path in sorted((ROOT / "src" / "tilescope" / package).rglob("*.py")):
            for mutant in mutants_of(path):
                by_line.setdefault((mutant.path, mutant.line), []).append(mutant)
        share = count // len(PACKAGES) + (number < count % len(PACKAGES))
        lines = drawing.sample(sorted(by_line), share)
        chosen += [drawing.choice(by_line[line]) for line in lines]
    drawing.shuffle(chosen)
    return chosen


def limit_cpu(seconds):
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


class Copy:
    """A copy of the checkout in which one module at a time is a mutant's."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.written = 0
        self.killers = Counter()  # test files that noticed mutants: they run first
        for name in COPIED:
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copy2
            copy(source, self.folder / name)

    def write(self, mutant, text):
        path = self.folder / mutant.path
        path.write_bytes(text)
        self.written += 1  # a time of its own: cached bytecode of the mutant before is not taken for this one's
        os.utime(path, (self.written, self.written))

    def first_failure(self, selection, seconds):
        """The test that fails, "" if all pass; a run that takes more than these seconds of CPU time fails as a whole."""
        environment = os.environ | {"PYTHONPATH": str(self.folder / "src"), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "pytest", *OPTIONS, *selection]
        limit = functools.partial(limit_cpu, seconds)
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, preexec_fn=limit
        )
        if done.returncode == 0:
            return ""
        lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return lines[0].split()[1] if lines else f"status {done.returncode}"

    def test_files(self, folder):
        files = sorted(str(path.relative_to(self.folder)) for path in (self.folder / folder).rglob("test_*.py"))
        return sorted(files, key=lambda path: -self.killers[path])

    def stages(self, package, is_wide):
        """Tests to run, one selection after the other, until one of them notices."""
        own = self.test_files(f"tests/{package}")
        if not is_wide:
            return {"package": [*own, f"src/tilescope/{package}"]}
        related = [file for folder in RELATED[package] for file in self.test_files(f"tests/{folder}")]
        rest = [file for file in self.test_files("tests") if file not in {*own, *related}]
        return {"related": related, "everything": [*rest, "src"]}

    def try_mutant(self, mutant, is_wide):
        """The first test that notices a mutant, and in which stage."""
        source = (ROOT / mutant.path).read_bytes()
        self.write(mutant, source[: mutant.start] + mutant.after.encode() + source[mutant.end :])
        package = Path(mutant.path).parts[2]
        try:
            for stage, selection in self.stages(package, is_wide).items():
                failure = self.first_failure(["--thinned", *selection], CPU_SECONDS[stage])
                if failure:
                    self.killers[failure.partition("::")[0]] += 1
                    return stage, failure
            return "survived", ""
        finally:
            self.write(mutant, source)


def rows_of(report):
    """Rows of an earlier run, by the mutant's key."""
    lines = report.read_text("utf-8").splitlines() if report.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["path"], row["line"], row["after"]): row for row in rows}


def say(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--wide", action="store_true", help="run ./test's tests on survivors")
    options = parser.parse_args()
    rows = rows_of(options.report)
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(folder)
        for mutant in drawn_mutants(options.count, options.seed):
            before = rows.get(mutant.key)
            if before and (before["stage"] != "survived" or not options.wide):
                continue
            stage, failure = copy.try_mutant(mutant, is_wide=bool(before))
            rows[mutant.key] = {"stage": stage, "by": failure} | mutant._asdict()
            options.report.write_text("".join(json.dumps(row) + "\n" for row in rows.values()), "utf-8")
            noticed = sum(row["stage"] != "survived" for row in rows.values())
            say(
                f"{noticed} of {len(rows)} noticed; {stage}: {mutant.path}:{mutant.line} {mutant.before} -> {mutant.after}"
            )


if __name__ == "__main__":
    main()
