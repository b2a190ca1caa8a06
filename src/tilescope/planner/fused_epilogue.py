"""The epilogue that is fused with a product, as data.

    value  =  activation(alpha * sum + bias[n])  + beta * residual[m, n]

    scale       alpha is an argument of the kernel; without it, 1
    bias        a float32 for every column
    activation  relu, gelu (by tanh) or silu
    gated       B has the columns of a gate and of what it lets through ("up"): C = silu(gate) * up has half as many
    residual    a matrix like C, and beta, are arguments; C itself may be the residual

Gate and up are two halves of B (all gates, then all ups), or interleaved in groups of 8 rows of B. In shared memory
they are always interleaved, so that both are in the registers of one thread, whether they are columns or rows of wgmma.
A tensor map of rank 4 loads the two halves in that order.

>>> Fused.named("bias+gelu")
Fused(bias=True, activation='gelu')
>>> Fused.named("swiglu").gate
'side by side'
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

from tilescope.reading import known_name
from tilescope.value import Value

Activation = Literal["none", "relu", "gelu", "silu"]
Gate = Literal["none", "side by side", "interleaved"]
GATE_GROUP = 8  # rows of B with gates, then as many with what they let through
_WORDS: dict[str, dict[str, object]] = {
    "none": {},
    "scale": {"scale": True},
    "bias": {"bias": True},
    "relu": {"activation": "relu"},
    "gelu": {"activation": "gelu"},
    "silu": {"activation": "silu"},
    "swiglu": {"activation": "silu", "gate": "side by side"},
    "swiglu-interleaved": {"activation": "silu", "gate": "interleaved"},
    "residual": {"residual": True},
}
EPILOGUE_WORDS = tuple(_WORDS)
RESIDUAL_TYPES = ("bf16", "f16", "f32")  # of C that a residual has, too; of others it is bf16


@dataclass(frozen=True, slots=True)
class Fused(Value):
    """What is fused with a product.

    >>> str(Fused(scale=True, residual=True)), str(Fused())
    ('scale+residual', 'none')
    """

    scale: bool = False  # the sums are multiplied by alpha
    bias: bool = False  # of every column, added to them
    activation: Activation = "none"  # of the sums: relu, gelu or silu
    gate: Gate = "none"  # where gates are stored in B: the activation is of the gate, and multiplies the other half
    residual: bool = False  # beta times a matrix like C is added at the end

    def __str__(self) -> str:
        words = [name for name in ("scale", "bias") if getattr(self, name)]
        if self.is_gated:
            words.append("swiglu" if self.gate == "side by side" else "swiglu-interleaved")
        elif self.activation != "none":
            words.append(self.activation)
        if self.residual:
            words.append("residual")
        return "+".join(words) or "none"

    @classmethod
    def named(cls, text: object) -> Fused:
        """The epilogue for a text of names joined by +; a RuleError for an unknown name."""
        if isinstance(text, Fused):
            return text
        fused = cls()
        for word in text.split("+") if isinstance(text, str) else [text]:
            field_values = _WORDS[known_name("epilogue", word, EPILOGUE_WORDS)]
            fused = replace(fused, **field_values)  # type: ignore[arg-type]  # the words of a field have its type
        return fused

    @property
    def is_gated(self) -> bool:
        """Whether C has half of B's columns."""
        return self.gate != "none"

    @property
    def is_plain(self) -> bool:
        """Whether sums are stored as they are."""
        return all(getattr(self, field.name) == field.default for field in fields(self))

    @property
    def is_exact(self) -> bool:
        """Whether it has no function that the hardware approximates."""
        return self.activation in ("none", "relu")

    def columns(self, sums: int) -> int:
        """The columns of C for a number of accumulator columns."""
        return sums // 2 if self.is_gated else sums


PLAIN_EPILOGUE = Fused()
