"""src/tilescope/rule_index.py, made from the source: which module defines each rule.

    python tests/rule_index.py        writes it anew, after a rule was added, renamed or moved

With the index, `ts.RULES["swizzle-span"]` imports one module, and the names of all rules are known without an import.
"""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import tilescope
from tilescope.rule import Rule

PACKAGE = Path(tilescope.__file__).parent
INDEX = PACKAGE / "rule_index.py"
HEADER = '''\
"""The module that defines each rule, so that one rule can be looked up without loading the others.

This file is made by `python tests/rule_index.py`.
"""

'''


def rules_of_module(path):
    """Names of the rules that a module assigns to its constants."""
    text = path.read_text("utf-8")
    if "rule" not in text:
        return []
    tree = ast.parse(text)
    constants = [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.strip("_").isupper()
    ]
    if not constants:
        return []
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    module = importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    values = [getattr(module, name) for name in constants]
    return [value.name for value in values if isinstance(value, Rule)]


def indexed_rules():
    """Rule names by module, below tilescope; a name belongs to the module that is first in the alphabet."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name in ("__main__.py", INDEX.name):
            continue
        for name in rules_of_module(path):
            parts = path.relative_to(PACKAGE).with_suffix("").parts
            found.setdefault(name, ".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return dict(sorted(found.items()))


def index_text():
    """The text of the module."""
    rows = "".join(f'    "{name}": "{module}",\n' for name, module in indexed_rules().items())
    return f"{HEADER}MODULE_OF_RULE = {{\n{rows}}}\n"


if __name__ == "__main__":
    INDEX.write_text(index_text(), "utf-8")
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", INDEX], check=True)
