"""A kernel from PTX text, and its runs without a card.

kernel = Kernel(ptx)                                 what cannot be run is refused here, line by line
memory = Memory()
run = kernel.run(grid=4, block=128, args=[a, b, 1000], memory=memory)
run.outcome                                          "finished", "hang", "fault", "stopped"

The first kernel imports the parser and the decoder, the first run the execution engine, and the first mutant the editor.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tilescope.arch import Arch
from tilescope.sentence import counted

if TYPE_CHECKING:
    from tilescope.machine.edits.change import MutantKind
    from tilescope.machine.edits.kernel_text import KernelText
    from tilescope.machine.edits.mutations import Mutation
    from tilescope.machine.former_run_arguments import FormerArguments
    from tilescope.machine.launch.kernel_arguments import Argument
    from tilescope.machine.launch.triton_host import TritonHost
    from tilescope.machine.memory import Memory
    from tilescope.machine.program import Program
    from tilescope.machine.report.run import KernelRun
    from tilescope.machine.run_arguments import Advice, Smem
    from tilescope.ptx.syntax import Module, Variable

DEFAULT_MAX_STEPS = 10_000_000


class Kernel:
    """One entry of a PTX text, ready to run.

    >>> kernel = Kernel('''
    ...     .version 8.0
    ...     .target sm_90
    ...     .address_size 64
    ...     .visible .entry double(.param .u64 a) {
    ...         .reg .b32 %r<4>;
    ...         .reg .b64 %rd<4>;
    ...         ld.param.u64 %rd1, [a];
    ...         mov.u32 %r1, %tid.x;
    ...         mul.wide.u32 %rd2, %r1, 4;
    ...         add.s64 %rd3, %rd1, %rd2;
    ...         ld.global.u32 %r2, [%rd3];
    ...         add.s32 %r3, %r2, %r2;
    ...         st.global.u32 [%rd3], %r3;
    ...         ret;
    ...     }''')
    >>> import numpy as np
    >>> a = np.arange(4, dtype=np.int32)
    >>> kernel.run(grid=1, block=4, args=[a]).outcome, a.tolist()
    ('finished', [0, 2, 4, 6])
    >>> kernel
    <Kernel double(.u64 a): 8 instructions, 0 bytes of static shared memory>
    """

    def __init__(self, ptx: str, entry: str | None = None) -> None:
        from tilescope.machine.decoding.assembly import assemble
        from tilescope.machine.launch.entry_choice import choose_entry
        from tilescope.ptx import read_module

        self.module: Module = read_module(ptx)
        self.ptx = ptx
        self.host: TritonHost | None = None  # how Triton's host launches it, if Triton compiled the text
        self.changed_map: int | None = None  # the argument whose map is passed with another swizzle, in a mutant
        self._function = choose_entry(self.module, entry)
        self.program: Program = assemble(self.module, self._function)

    @classmethod
    def from_triton(
        cls,
        function: Any,
        signature: str | Sequence[str] | Mapping[str, str],
        constexprs: Mapping[str, Any] | None = None,
        *,
        arch: Any = "sm_90",
        **options: Any,
    ) -> Kernel:
        """A kernel of Triton or Gluon, compiled by the installed Triton; no GPU is needed.

        `function` is decorated with @triton.jit or @gluon.jit. `signature` has a type in Triton's notation for each parameter
        that is not a constexpr: "*fp16, *fp16, i32", or a mapping by name. Triton assumes that addresses are multiples of 16,
        as those of torch are; "i32:16" states the same for an integer, and "i32:1" makes it the constant 1. `options` are
        Triton's: num_warps, num_stages, num_ctas …

        Its `run` needs neither block nor smem_bytes. The grid counts programs, as in Triton. Arguments are in the order of the
        signature: arrays (numpy, or torch on the CPU), numbers, and for a tensordesc an array, Triton's TensorDescriptor or a
        tensor map. Maps and scratch memory are created as Triton's host code does.

            kernel = ts.Kernel.from_triton(add, "*fp32, *fp32, i32", {"BLOCK": 128}, num_warps=4)
            run = kernel.run(grid=8, args=[x, y, 1000])
        """
        from tilescope.machine.launch.triton_compiler import compile_triton

        compiled = compile_triton(function, signature, constexprs, arch=arch, options=options)
        kernel = cls(compiled.ptx, compiled.entry)
        kernel.host = compiled.host
        return kernel

    @classmethod
    def from_cuda(
        cls,
        path: str | os.PathLike[str],
        entry: str | None = None,
        *,
        arch: str | None = None,
        options: Sequence[str] = (),
    ) -> Kernel:
        """A kernel of a CUDA C++ file, compiled by the nvcc or NVRTC that is installed; no GPU is needed.

        If the file has several kernels, `entry` is the name in the source, a unique part of it, or an instance of a template
        such as "gemm<128, 64>". `options` are passed to the compiler: "-Iinclude", "-DTILE=64". The default `arch` is sm_90a.

            kernel = ts.Kernel.from_cuda("transpose.cu", options=["-Iinclude"])
            run = kernel.run(grid=(2, 2), block=(32, 32), args=[out, matrix, 64, 64])
        """
        from tilescope.machine.launch.cuda_compiler import compile_cuda

        return cls(compile_cuda(Path(path), arch=arch, options=options).ptx, entry)

    def __repr__(self) -> str:
        """The kernel in one line: its parameters, its shared memory, and how many instructions it has."""
        from tilescope.ptx.source_name import template_name

        size = counted(len(self.instructions), "instruction")
        if self.host is not None:
            return f"<Kernel {self.entry}({self.host.declared}), {self.host}: {size}>"
        parameters = ", ".join(_describe_parameter(parameter, self.entry) for parameter in self.parameters)
        name = template_name(self.entry)
        return f"<Kernel {name}({parameters}): {size}, {self.smem_bytes} bytes of static shared memory>"

    @property
    def entry(self) -> str:
        """The name of the kernel."""
        return self._function.name

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of all kernels of the text."""
        return tuple(function.name for function in self.module.entries)

    @property
    def parameters(self) -> tuple[Variable, ...]:
        """The parameters, in the order of the arguments."""
        return self._function.parameters

    @property
    def smem_bytes(self) -> int:
        """Static shared memory of a block; a launch adds dynamic memory to it."""
        return self.program.smem_bytes

    @property
    def instructions(self) -> tuple[str, ...]:
        """The instructions as they were written: the entry's, then those of called functions."""
        return tuple(instruction.text for instruction in self.program.instructions if instruction is not None)

    def run(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int] | None = None,
        args: Sequence[Argument] = (),
        *,
        memory: Memory | None = None,
        smem_bytes: int | None = None,
        cluster: int | Sequence[int] | None = None,
        arch: Any = None,
        blocks: Sequence[Sequence[int]] | None = None,
        seed: int | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        max_seconds: float | None = None,
        progress: Callable[[int], None] | None = None,
        findings: bool = True,
        record: bool = True,
        advice: Advice = "fixes",
        smem: Smem | None = None,
        **former: Unpack[FormerArguments],
    ) -> KernelRun:
        """Run the kernel without a GPU and return the outcome, findings and costs; it reads and writes the arrays in `args`.

        The launch: `args` in the order of the parameters are integers, floats, tensor maps, bytes (structs by value, `ts.pack`)
        or arrays, torch's on the CPU included. `block` defaults to the kernel's .reqntid. `smem_bytes` is dynamic shared
        memory. A kernel of `from_triton` needs neither, and takes the grid and the arguments of Triton. `blocks` selects the
        blocks to run.

        The machine: `arch` is the architecture to emulate (default: the target of the text). By default asynchronous work
        completes as late as its wait allows; with a `seed` it completes at random times, and the order of blocks changes.
        The run stops after `max_steps` (one instruction that many threads execute together is one step) or `max_seconds` of
        CPU time. `progress` is called with the steps so far, now and then; an exception that it raises ends the run.

        The checks: `findings=False` disables the detection of data races and the counting of costs, and is faster.
        `record=False` records no trace of the first cluster, which `pipeline()` needs. `advice` selects what further runs look
        for. "fixes": a kernel with errors runs again with candidate fixes, on a copy of memory of at most 64 MiB. "barriers": a
        kernel without errors runs again without some of its barriers, and a note lists the barriers that order no accesses.
        "all" is both, "none" neither.

        The picture: `smem=(0, 0, 0)` draws the shared memory of that block in `run.smem`, with the last writer of every chunk,
        at the end. A pair selects the moment: `smem=((0, 0, 0), "mm.py:12")` right before that source line runs, or 40, right
        before that PTX line; "mm.py:12:3", before its third execution.
        """
        from tilescope.machine.kernel_launch import LaunchedKernel, LaunchRequest, launch_kernel

        kernel = LaunchedKernel(
            program=self.program,
            text=lambda: self._text,
            target=self._target,
            host=self.host,
            changed_map=self.changed_map,
        )
        request = LaunchRequest(
            grid=grid,
            block=block,
            args=args,
            memory=memory,
            smem_bytes=smem_bytes,
            cluster=cluster,
            arch=arch,
            blocks=blocks,
            seed=seed,
            max_steps=max_steps,
            max_seconds=max_seconds,
            progress=progress,
            findings=findings,
            record=record,
            advice=advice,
            smem=smem,
        )
        if former or isinstance(advice, bool):
            from tilescope.machine.former_run_arguments import replace_former

            request = replace_former(request, former)
        return launch_kernel(kernel, request)

    @cached_property
    def _target(self) -> Arch:
        """The architecture that the text is for."""
        return Arch.named(self.module.target)

    @cached_property
    def _text(self) -> KernelText:
        """The text for edits; fixes that were assembled once are cached in it for the next run."""
        from tilescope.machine.edits.kernel_text import KernelText

        functions = tuple(self.module.functions[name] for name in self.program.functions)
        return KernelText(self.ptx, self.module, functions)

    def mutants(self) -> Iterator[Mutant]:
        """Copies of the kernel with one change each, for tests that should detect them.

        Waits, fences, commits, barriers and arrivals are removed, one by one and all of a kind; expected bytes, counts,
        parities, slots and swizzles are changed. A fence that has no effect in any launch is not removed separately.
        `mutant.kernel` is parsed on first use; it runs faster with `advice="none"`.

        >>> kernel = Kernel('''
        ...     .version 8.0
        ...     .target sm_90
        ...     .address_size 64
        ...     .visible .entry turn(.param .u64 a) {
        ...         .shared .b32 s[64];
        ...         bar.sync 0;
        ...         ret;
        ...     }''')
        >>> for mutant in kernel.mutants():
        ...     print(mutant, mutant.kind, mutant.kernel.instructions)
        bar.sync removed, line 7 barrier ('ret',)
        """
        from tilescope.machine.edits.mutations import find_mutations

        for mutation in find_mutations(self._text, self.parameters):
            yield Mutant(
                mutation.name, mutation.kind, mutation.line, mutation.source_line, _original=self, _mutation=mutation
            )

    def _mutate(self, mutation: Mutation) -> Kernel:
        if mutation.map_argument is not None:
            mutant = copy.copy(self)
            mutant.changed_map = mutation.map_argument
            return mutant
        from tilescope.ptx.editing import apply_edits

        mutant = Kernel(apply_edits(self._text.short, mutation.edits), entry=self.entry)
        mutant.host = self.host
        return mutant


@dataclass(frozen=True)
class Mutant:
    """A kernel with one change. `line` and `source_line` locate it; None if all instructions of a kind are changed.

    `kernel` is assembled on first use, so looking through names and kinds costs nothing.
    """

    name: str
    kind: MutantKind
    line: int | None  # of the PTX text
    source_line: str | None
    _original: Kernel = field(repr=False, compare=False)
    _mutation: Mutation = field(repr=False, compare=False)

    @cached_property
    def kernel(self) -> Kernel:
        """The changed kernel."""
        return self._original._mutate(self._mutation)

    @property
    def map_argument(self) -> int | None:
        """The argument whose tensor map gets another swizzle; None: the text is changed."""
        return self._mutation.map_argument

    @property
    def ptx(self) -> str:
        """The changed text; each line keeps its number."""
        from tilescope.ptx.editing import apply_edits

        return apply_edits(self._original.ptx, self._mutation.edits)

    def __str__(self) -> str:
        return self.name


def _describe_parameter(parameter: Variable, entry: str) -> str:
    """A parameter as PTX declares it.

    >>> from tilescope.ptx.syntax import Variable
    >>> _describe_parameter(Variable("m", 0, "param", "b8", 64, 128), "k")
    '.b8 m[128]'
    """
    from tilescope.ptx.source_name import parameter_name
    from tilescope.ptx.syntax import BITS_OF_TYPE

    name = parameter_name(entry, parameter.name)
    bits = BITS_OF_TYPE[parameter.type]
    is_scalar = parameter.size_bytes == bits // 8
    return f".{parameter.type} {name}" + ("" if is_scalar else f"[{parameter.size_bytes}]")
