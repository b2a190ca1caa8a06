"""Why a PTX text is refused: its grammar, its names, its types, its size.

    ptx-syntax: line 7, column 12: `}`; expected an operand. Write an operand there.

Every refusal names the line and the column of the text at which it stopped making sense.
"""

from __future__ import annotations

from tilescope.rule import ptx_example, rule

_PLACE = "line {line}, column {column}"

SYNTAX = rule(
    "ptx-syntax",
    "A PTX text follows the grammar of the PTX ISA.",
    argument=_PLACE,
    found=_PLACE + ": {shown}",
    limit="expected {expected}",
    fix="Write {expected} there.",
    source="PTX ISA, Syntax and Directives",
    passing=f"ts.ptx.read_module({ptx_example('ptx-syntax.pass.ptx')})",
    failing=f"ts.ptx.read_module({ptx_example('ptx-syntax.fail.ptx')})",
)
CHARACTER = SYNTAX.worded(
    found=_PLACE + ": character {character!r}",
    limit="PTX is plain ASCII outside of comments and strings",
    fix="Remove it.",
)
OPEN_STRING = SYNTAX.worded(
    found=_PLACE + ": a string without an end", limit="strings end on their line", fix='Close it with ".'
)
OPEN_COMMENT = SYNTAX.worded(
    found=_PLACE + ": a comment without an end", limit="a comment that begins with /* ends with */", fix="Add */."
)
MISSING_HEAD = SYNTAX.worded(
    limit="a PTX text begins with .version and .target",
    fix="Begin with .version 8.0 and .target sm_90, or give the whole text that the compiler wrote.",
)
FILE_NAME = MISSING_HEAD.worded(
    fix='This is the name of a file; pass what it holds: open("{name}").read().',
)
DIVISION_BY_ZERO = SYNTAX.worded(
    found=_PLACE + ": a division by 0", limit="constants are divided by other numbers", fix="Use another divisor."
)
NAME = rule(
    "ptx-name",
    "A name is declared once in its scope, before it is used; labels may follow their use.",
    argument=_PLACE,
    found=_PLACE + ": {name} is not declared",
    limit="registers and variables are declared before they are used, labels in the same or an outer scope",
    fix="[[Did you mean {nearest}? ]]Declare {name}, or use a name that is declared.",
    source="PTX ISA, Identifiers; State Spaces; Labels",
    passing=f"ts.ptx.read_module({ptx_example('ptx-name.pass.ptx')})",
    failing=f"ts.ptx.read_module({ptx_example('ptx-name.fail.ptx')})",
)
DECLARED_AGAIN = NAME.worded(
    found=_PLACE + ": {name} is declared again",
    limit="a scope declares a name once",
    fix="Use another name, or put it into a separate scope.",
)
NO_LABEL = NAME.worded(
    found=_PLACE + ": {name} is no label",
    limit="a branch goes to a label of its scope or of an outer scope",
    fix="[[Did you mean {nearest}? ]]Add the label {name}: where the branch leads.",
)
NO_FUNCTION = NAME.worded(
    found=_PLACE + ": {name} is not a function",
    limit="a call names a function that the text declares before the call",
    fix="[[Did you mean {nearest}? ]]Declare the function {name}, or define it.",
)
MANY_NAMES = NAME.worded(
    found=_PLACE + ": {count} names that are not declared, up to here",
    limit="only the first ones are listed above",
    fix="Declare these first.",
)
TYPE = rule(
    "ptx-type",
    "Registers and variables have a type of the PTX ISA, and only predicates guard an instruction.",
    argument=_PLACE,
    found=_PLACE + ": {shown}",
    limit="the types are {known:, }",
    fix="Use one of them.",
    source="PTX ISA, Fundamental Types",
    passing=f"ts.ptx.read_module({ptx_example('ptx-type.pass.ptx')})",
    failing=f"ts.ptx.read_module({ptx_example('ptx-type.fail.ptx')})",
)
NO_PREDICATE = TYPE.worded(
    found=_PLACE + ": {name} has type .{type}",
    limit="what guards an instruction, or is negated by !, is a .pred",
    fix="Use a register of type .pred.",
)
NO_VALUE_OF_TYPE = TYPE.worded(
    found=_PLACE + ": {shown}", limit="a value that .{type} holds", fix="Use a value of .{type}."
)
POINTER_TYPE = TYPE.worded(
    found=_PLACE + ": an address in a variable of type .{type}",
    limit="addresses take 64 bits; in bytes: 0xFF(x), 0xFF00(x) and so on, all eight of them",
    fix="Use type .u64.",
)
POINTER_SPACE = TYPE.worded(
    found=_PLACE + ": the address of {name} within .{space}",
    limit="the address of a .global variable, or a generic address",
    fix="Write generic({name}).",
)
OPEN_PARAMETER = TYPE.worded(
    found=_PLACE + ": the parameter {name} of an entry, without an extent",
    limit="an entry has parameters of known size",
    fix="Write .param .b8 {name}[64], with the bytes that the host passes.",
)
POINTER_TARGET = TYPE.worded(
    found=_PLACE + ": the address of {name}, which is in .{space}, as an initial value",
    limit="the address of a variable in .global or .const, or of a function",
    fix="Let the kernel compute it: mov.u64 %rd1, {name}.",
)
LIMIT = rule(
    "ptx-limit",
    "A PTX text stays within the limits of the chip and of tilescope's parser.",
    argument=_PLACE,
    found=_PLACE + ": {amount} {what}",
    limit="at most {most}",
    fix="Use {most} or fewer.",
    source="PTX ISA, State Spaces; CUDA C++ Programming Guide, Compute Capabilities; the reader's own limits",
    passing=f"ts.ptx.read_module({ptx_example('ptx-limit.pass.ptx')})",
    failing=f"ts.ptx.read_module({ptx_example('ptx-limit.fail.ptx')})",
)
ADDRESS_SIZE = LIMIT.worded(
    found=_PLACE + ": .address_size {bits}",
    limit="only addresses of 64 bits are supported",
    fix="Compile for 64 bits: the 32-bit mode is gone since CUDA 12.",
)
