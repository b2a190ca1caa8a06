"""The fields of a form: how a page shows an input, and what a text in it means to the question."""

from dataclasses import dataclass

from tilescope.errors import RuleError, unknown_name
from tilescope.questions.page import Page, PageForm
from tilescope.questions.question import PAGE_LIMIT, READERS, Input, flag
from tilescope.rule import ARGUMENT_TYPE

MAX_CHARACTERS = 400  # of a field
MAX_LONG_CHARACTERS = 6000


@dataclass(frozen=True, slots=True)
class Field:
    """An input on a page, and its value if the address has none."""

    input: Input
    default: str  # what the library takes if it stays empty, in words
    preset: str

    @property
    def name(self) -> str:
        """In the address of the page."""
        return self.input.name

    @property
    def control(self) -> str:
        """How the page shows it: a box to tick, an area for much text, a list of names, or a line."""
        if self.input.is_long:
            return "area"
        if self.input.read is flag:
            return "tick"
        return "choice" if self.input.choices and not self.input.is_open else "line"

    @property
    def has_no_choice(self) -> bool:
        """Whether a list of names may stay without one."""
        return not self.preset or (bool(self.default) and self.default not in self.input.choices)

    @property
    def note(self) -> str:
        """The hint below it; a line or a list of names shows its own default if it is empty."""
        if self.control != "area" or not self.default or self.preset:
            return self.input.hint
        return f"{self.input.hint} Empty: {self.default}.".strip()

    @property
    def may_stay_empty(self) -> bool:
        """Whether an empty field is omitted, like a missing option; otherwise it is parsed, and refused."""
        return self.input.is_required is not True and bool(self.input.option or not self.preset)

    def takes(self, written: str) -> bool:
        """Whether the text is a valid value: a list of names accepts only those."""
        return self.control != "choice" or written in self.input.choices or (not written and self.has_no_choice)

    def argument(self, written: str) -> object:
        """What the text means to the question: None for an empty option, as if a command had none.

        RuleError if it means nothing.
        """
        most = self.input.longest or (MAX_LONG_CHARACTERS if self.input.is_long else MAX_CHARACTERS)
        if len(written) > most:
            fix = f"Use at most {most} characters; the command line takes more."
            raise PAGE_LIMIT.error(argument=self.name, what="characters", count=len(written), most=most, fix=fix)
        if not written.strip() and self.may_stay_empty:
            return None
        if self.control == "choice" and written not in self.input.choices:
            raise RuleError([unknown_name(self.input.label.lower(), self.name, written, self.input.choices)])
        try:
            return self.input.read(written)
        except ValueError as error:
            wrong, instead = error.args
            reader = READERS.get(self.input.read)
            limit = self.input.hint.rstrip(".") if reader is None else f"{self.name} is {reader.called}"
            raise ARGUMENT_TYPE.error(argument=self.name, found=wrong, limit=limit, fix=f"Write {instead}.") from None


def fields_of(form: PageForm) -> tuple[Field, ...]:
    """The fields of a form: they hold at first what the form presets, else the library's own choice.

    >>> from tilescope.questions.swizzle_questions import SWIZZLE_FORM
    >>> [(field.name, field.preset) for field in fields_of(SWIZZLE_FORM)]
    [('mode', '128B'), ('address', '0x0')]
    """
    fields = []
    for row in form.inputs:
        default = form.question.default(row)
        own_choice = default if default in row.choices and not row.is_open else ""
        fields.append(Field(row, default, form.presets.get(row.name, own_choice)))
    return tuple(fields)


def choice_of(page: Page) -> Field | None:
    """The field that selects a form; None for a page with one."""
    if page.chooser is None:
        return None
    return Field(page.chooser, "", preset=next(iter(page.forms)))
