"""A PTX text into a Module.

.version 8.0                                   which PTX this is
.target sm_90a                                 and for which chip
.address_size 64
.extern .shared .align 16 .b8 smem[];          variables of the module
.visible .entry k(.param .u64 out)             a kernel: its parameters,
.reqntid 128                                   what its launch must keep to,
{ … }                                          its body
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import NamedTuple

from tilescope.errors import RuleError, argument_type, raise_all
from tilescope.names import nearest_name
from tilescope.ptx.body import Body, BodyReader
from tilescope.ptx.constants import read_count, read_integer
from tilescope.ptx.declarations import (
    VARIABLE_SPACES,
    Declared,
    VariableCounter,
    read_parameter,
    read_variables,
    skip_parentheses,
)
from tilescope.ptx.initial import InitialAddress
from tilescope.ptx.lexer import Cursor, Text, Token
from tilescope.ptx.operand_reader import Problems
from tilescope.ptx.rules import (
    ADDRESS_SIZE,
    DECLARED_AGAIN,
    FILE_NAME,
    MISSING_HEAD,
    NAME,
    OPEN_PARAMETER,
    POINTER_SPACE,
    POINTER_TARGET,
)
from tilescope.ptx.scope import NAMES_COMPARED, Scope
from tilescope.ptx.source_lines import SourceLines
from tilescope.ptx.syntax import Function, Module, Variable
from tilescope.sentence import shorten

_VERSION = ".version"
_SUFFIX = ".ptx"
_MAX_LAUNCH = (1 << 31) - 1  # threads, blocks and registers of a launch directive
_LINKING = frozenset({".visible", ".extern", ".weak", ".common"})
_SHAPES = frozenset({".maxntid", ".reqntid", ".reqnctapercluster"})
_COUNTS = frozenset(
    {".minnctapersm", ".maxnctapersm", ".maxnreg", ".maxclusterrank", ".abi_preserve", ".abi_preserve_control"}
)
_FLAGS = frozenset({".explicitcluster", ".noreturn", ".blocksareclusters"})


@dataclass
class _Launch:
    """The directives between a function's parameters and its body."""

    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


class _FunctionDraft(NamedTuple):
    """A function whose instructions are not made yet; its body is None where it is only declared."""

    function: Function
    body: Body | None


class _AddressOfName(NamedTuple):
    """An address among the initial values of a variable."""

    variable: Variable
    address: InitialAddress


def read_module(text: str) -> Module:
    """Parse a PTX text; a RuleError reports a mistake with its line and column.

    >>> module = read_module('''
    ... .version 8.0
    ... .target sm_90
    ... .visible .entry k(.param .u64 out)
    ... {
    ...     .reg .b32 %r<2>;
    ...     mov.u32 %r1, %tid.x;
    ...     ret;
    ... }''')
    >>> module.target, [function.name for function in module.entries]
    ('sm_90', ['k'])
    >>> print(module.functions["k"].instructions[0].text)
    mov.u32 %r1, %tid.x
    """
    if not isinstance(text, str):
        raise RuleError([argument_type("text", text, "the text of a PTX file", 'Use open("kernel.ptx").read().')])
    if _VERSION not in text:  # first of all: another language may have characters that PTX refuses
        raise _no_head(text)
    return _ModuleReader(Text(text)).read()


def _no_head(text: str) -> RuleError:
    """The refusal of a text that is not PTX: it shows the first line, which should be a .version."""
    before = len(text) - len(text.lstrip())
    first_line = text.strip().partition("\n")[0]
    is_file_name = first_line == text and text.endswith(_SUFFIX)
    wording = FILE_NAME if is_file_name else MISSING_HEAD
    return wording.error(
        change=None,
        line=text.count("\n", 0, before) + 1,
        column=1,
        shown=f"`{shorten(first_line, 60)}`" if first_line else "nothing",
        name=first_line,
    )


class _ModuleReader:
    """Reads the directives of a module, one after another."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.cursor = Cursor(text)
        self.sources = SourceLines(text)
        self.problems = Problems(text)
        self.numbers = VariableCounter()
        self.scope = Scope()  # of the module's variables
        self.variables: dict[str, Variable] = {}
        self.functions: dict[str, _FunctionDraft] = {}
        self.addresses: list[_AddressOfName] = []
        self.aliases: list[tuple[Token, Token]] = []
        self.version = ""
        self.target = ""

    def read(self) -> Module:
        """The whole text."""
        cursor = self.cursor
        self._read_head()
        while cursor.token.kind != "end":
            linking = cursor.take().text if cursor.token.text in _LINKING else ""
            directive = cursor.token.text
            if directive in VARIABLE_SPACES:
                self._read_variables(is_extern=linking == ".extern")
            elif directive in (".entry", ".func"):
                self._read_function(is_entry=directive == ".entry")
            elif directive in _DIRECTIVES and not linking:
                _DIRECTIVES[directive](self)
            else:
                cursor.refuse("a directive such as .entry, .func, .global or .shared")
        return self._module()

    def _module(self) -> Module:
        """All of it, once every name is known."""
        self._check_addresses()
        self._enter_aliases()
        raise_all(self.problems.violations)
        sources = self.sources.resolved()
        functions = {}
        for name, draft in self.functions.items():
            function = draft.function
            if draft.body is not None:
                registers = tuple(draft.body.scope.registers)
                instructions = draft.body.finished(sources)
                variables = draft.body.variables
                function = replace(function, registers=registers, variables=variables, instructions=instructions)
            functions[name] = function
        return Module(self.version, self.target, functions, self.variables)

    def _read_head(self) -> None:
        """`.version 8.0` and `.target sm_90a`."""
        for directive in (".version", ".target"):
            token = self.cursor.token
            while token.text in (".file", ".section"):  # some tools write these first
                _DIRECTIVES[token.text](self)
                token = self.cursor.token
            if token.text != directive:
                shown = f"`{token.text[:60]}`" if token.text else "nothing"
                raise self.text.error(MISSING_HEAD, token.start, shown=shown)
            _DIRECTIVES[directive](self)

    def read_version(self) -> None:
        """Read `.version 8.0`."""
        self.cursor.take()
        self.version = self.cursor.expect_kind("float", "a version such as 8.0").text

    def read_target(self) -> None:
        """`.target sm_90a, debug`: the first one is the chip."""
        self.cursor.take()
        self.target = self.cursor.expect_kind("name", "a target such as sm_90a").text
        while self.cursor.takes(","):
            self.cursor.expect_kind("name", "an option of .target")

    def read_address_size(self) -> None:
        """Read `.address_size 64`, the only one."""
        self.cursor.take()
        token = self.cursor.token
        bits = read_integer(self.cursor, "64")
        if bits != 64:
            raise self.text.error(ADDRESS_SIZE, token.start, bits=bits)

    def read_file(self) -> None:
        """`.file 1 "kernel.py"`, perhaps with time and size."""
        cursor = self.cursor
        cursor.take()
        number = read_count(cursor, "files", _MAX_LAUNCH)
        path = cursor.expect_kind("string", "the file's name in quotes").text[1:-1]
        while cursor.token.kind == "string":  # a directory, and then the name in it
            path = f"{path}/{cursor.take().text[1:-1]}"
        while cursor.takes(","):
            read_integer(cursor)
        self.sources.add_file(number, path)

    def read_loc(self) -> None:
        """A .loc outside of functions has no effect."""
        _, end = self.sources.read_loc(self.cursor.token.start)
        self.cursor.move(end)

    def skip_section(self) -> None:
        """`.section .debug_str { … }`: only the names of functions are read from it, later."""
        cursor = self.cursor
        cursor.take()
        name = cursor.take()
        brace = cursor.expect("{")
        end = self.text.code.find("}", brace.start)
        if end < 0:
            cursor.refuse("the `}` that ends the section", brace)
        if name.text == ".debug_str":
            self.sources.add_strings(brace.start + 1)
        cursor.move(end + 1)

    def skip_pragma(self) -> None:
        """Skip `.pragma "nounroll";`."""
        self.cursor.take()
        self.cursor.expect_kind("string", "a string")
        while self.cursor.takes(","):
            self.cursor.expect_kind("string", "a string")
        self.cursor.expect(";")

    def read_alias(self) -> None:
        """Read `.alias name, function;`."""
        self.cursor.take()
        name = self.cursor.expect_kind("name", "the name of a function")
        self.cursor.expect(",")
        function = self.cursor.expect_kind("name", "the name of a function")
        self.cursor.expect(";")
        self.aliases.append((name, function))

    def _read_variables(self, *, is_extern: bool) -> None:
        for declared in read_variables(self.cursor, self.numbers, is_extern=is_extern):
            self._declare(declared)

    def _declare(self, declared: Declared) -> None:
        """Enter a variable of the module; one that was .extern before may be defined now."""
        name = declared.variable.name
        earlier = self.variables.get(name)
        is_open = earlier is None or earlier.is_extern or declared.variable.is_extern
        if name in self.functions or not is_open:
            raise self.text.error(DECLARED_AGAIN, declared.token.start, name=shorten(name))
        if earlier is None or earlier.is_extern:
            self.variables[name] = declared.variable
            self.scope.declare(name, declared.variable)
        self.addresses += [_AddressOfName(declared.variable, address) for address in declared.addresses]

    def _read_function(self, *, is_entry: bool) -> None:
        """`.entry name (parameters) …`, with a body or a semicolon."""
        cursor = self.cursor
        cursor.take()
        parameters = Scope()
        while cursor.takes(".attribute"):
            skip_parentheses(cursor)
        results = self._read_parameters(parameters, is_entry=False) if cursor.token.text == "(" else ()
        name = cursor.expect_kind("name", "the name of a function")
        arguments = self._read_parameters(parameters, is_entry=is_entry) if cursor.token.text == "(" else ()
        launch = self._read_launch()
        function = Function(
            name=name.text,
            is_entry=is_entry,
            line=self.text.line(name.start),
            parameters=arguments,
            results=results,
            required_threads=launch.shapes.get(".reqntid"),
            max_threads=launch.shapes.get(".maxntid"),
            required_cluster=launch.shapes.get(".reqnctapercluster"),
            max_cluster_rank=launch.counts.get(".maxclusterrank"),
            max_registers=launch.counts.get(".maxnreg"),
            min_blocks=launch.counts.get(".minnctapersm"),
        )
        earlier = self.functions.get(name.text)
        if name.text in self.variables or (earlier is not None and earlier.function.is_entry != is_entry):
            raise self.text.error(DECLARED_AGAIN, name.start, name=shorten(name.text))
        if earlier is None:
            self.functions[name.text] = _FunctionDraft(function, None)
        if cursor.takes(";"):
            return
        if earlier is not None and earlier.body is not None:
            raise self.text.error(DECLARED_AGAIN, name.start, name=shorten(name.text))
        body = self._read_body(parameters)
        self.functions[name.text] = _FunctionDraft(function, body)

    def _read_body(self, parameters: Scope) -> Body:
        if self.cursor.token.text != "{":
            self.cursor.refuse("`{`, `;` or a directive of the launch such as .reqntid")
        reader = BodyReader(self.text, self.sources, self.numbers, self.problems)
        parameters.around = self.scope
        body, end = reader.read(self.cursor.token.start, parameters, self.functions)
        self.cursor.move(end)
        return body

    def _read_parameters(self, scope: Scope, *, is_entry: bool) -> tuple[Variable, ...]:
        """The variables of `(.param .u64 a, .param .align 64 .b8 map[128])`."""
        cursor = self.cursor
        cursor.expect("(")
        parameters: list[Variable] = []
        if cursor.takes(")"):
            return ()
        while True:
            declared = read_parameter(cursor, self.numbers)
            name = declared.variable.name
            if is_entry and declared.variable.size_bytes is None:
                self.problems.add(OPEN_PARAMETER, declared.token.start, name=shorten(name))
            if name != "_" and scope.declares(name):
                raise self.text.error(DECLARED_AGAIN, declared.token.start, name=shorten(name))
            scope.declare(name, declared.variable)
            parameters.append(declared.variable)
            if cursor.takes(")"):
                return tuple(parameters)
            cursor.expect(",", "`,` or `)`")

    def _read_launch(self) -> _Launch:
        """The values of `.reqntid 128, 1, 1 .minnctapersm 2 …`."""
        cursor = self.cursor
        launch = _Launch()
        while cursor.token.kind == "word":
            directive = cursor.token.text
            if directive in _SHAPES:
                cursor.take()
                launch.shapes[directive] = self._read_shape()
            elif directive in _COUNTS:
                cursor.take()
                launch.counts[directive] = read_count(cursor, "threads, blocks or registers", _MAX_LAUNCH)
            elif directive in _FLAGS:
                cursor.take()
            elif directive == ".attribute":
                cursor.take()
                skip_parentheses(cursor)
            elif directive == ".pragma":
                self.skip_pragma()
            else:
                cursor.refuse("`{`, `;` or a directive of the launch such as .reqntid")
        return launch

    def _read_shape(self) -> tuple[int, ...]:
        """Up to three extents."""
        shape = [read_count(self.cursor, "threads or blocks", _MAX_LAUNCH)]
        while self.cursor.takes(","):
            if len(shape) == 3:
                self.cursor.refuse("at most three numbers")
            shape.append(read_count(self.cursor, "threads or blocks", _MAX_LAUNCH))
        return tuple(shape)

    def _check_addresses(self) -> None:
        """Refuse the address of an undeclared name, and of a variable outside .global that is not generic."""
        for variable, address in self.addresses:
            name = address.name.text
            named = self.variables.get(name)
            if named is None and name not in self.functions:
                nearest = nearest_name(name, islice(chain(self.variables, self.functions), NAMES_COMPARED))
                self.problems.add(NAME.wording, address.name.start, name=shorten(name), nearest=nearest)
            elif named is not None and named.space not in ("global", "const"):
                self.problems.add(POINTER_TARGET, address.name.start, name=shorten(name), space=named.space)
            elif named is not None and named.space != "global" and not address.is_generic:
                self.problems.add(POINTER_SPACE, address.name.start, name=shorten(name), space=variable.space)

    def _enter_aliases(self) -> None:
        for name, original in self.aliases:
            draft = self.functions.get(original.text)
            earlier = self.functions.get(name.text)
            if earlier is not None and earlier.body is not None:
                raise self.text.error(DECLARED_AGAIN, name.start, name=shorten(name.text))
            if draft is None:
                nearest = nearest_name(original.text, islice(self.functions, NAMES_COMPARED))
                self.problems.add(NAME.wording, original.start, name=shorten(original.text), nearest=nearest)
            else:
                self.functions[name.text] = draft._replace(function=replace(draft.function, name=name.text))


_DIRECTIVES: dict[str, Callable[[_ModuleReader], None]] = {
    ".version": _ModuleReader.read_version,
    ".target": _ModuleReader.read_target,
    ".address_size": _ModuleReader.read_address_size,
    ".file": _ModuleReader.read_file,
    ".loc": _ModuleReader.read_loc,
    ".section": _ModuleReader.skip_section,
    ".pragma": _ModuleReader.skip_pragma,
    ".alias": _ModuleReader.read_alias,
}
