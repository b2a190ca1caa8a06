"""Autotuners and benchmarks without time: a configuration is chosen because it is valid, never because it is fast.

    autotune="first"     the first configuration that compiles and fits on the device
    autotune="all"       every valid one runs once, with findings for each; then the first, as the program's own launch

A configuration is invalid if Triton itself would skip it: not enough shared or tensor memory, or a static assertion.
The device stores the choices. Triton's cache of choices, in memory and on disk, is neither read nor written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol
from weakref import WeakKeyDictionary

from tilescope.triton.patches import Patches

AutotuneMode = Literal["first", "all"]
NO_TIME = "tilescope does not predict time: triton.testing.do_bench returns nan and does not call the function."
NO_REPORT = "tilescope does not predict time: the report of triton.testing.perf_report is skipped."


class Config(Protocol):
    """A configuration of Triton's."""

    pre_hook: Callable[[dict[str, object]], object] | None

    def all_kwargs(self) -> dict[str, object]:
        """Its constants and options."""


class Autotuner(Protocol):
    """What is used of Triton's autotuner."""

    arg_names: Sequence[str]
    keys: Sequence[str]
    configs: Sequence[Config]
    nargs: dict[str, object] | None
    best_config: Config
    fn: object

    def prune_configs(self, kwargs: Mapping[str, object]) -> Sequence[Config]:
        """The configurations that the program does not rule out."""

    def pre_hook(self, arguments: Mapping[str, object], reset_only: bool = False) -> object:
        """Reset or save arguments before a launch."""

    def post_hook(self, arguments: Mapping[str, object], exception: Exception | None) -> object:
        """Restore arguments after a launch."""


class Choices:
    """The configurations that a device chose, by autotuner and tuning key."""

    def __init__(self, mode: AutotuneMode, say: Callable[[str], None]) -> None:
        self._mode = mode
        self._say = say
        self._chosen: WeakKeyDictionary[Autotuner, dict[tuple[object, ...], Config]] = WeakKeyDictionary()

    def install(self, patches: Patches) -> None:
        """Replace Triton's autotuner and benchmarks until `patches` are restored."""
        import triton.testing
        from triton.runtime.autotuner import Autotuner as TritonAutotuner

        def run(autotuner: Autotuner, *args: object, **kwargs: object) -> object:
            return self.run(autotuner, args, kwargs)

        def skip_report(_mark: object, *_arguments: object, **_options: object) -> None:
            self._say(NO_REPORT)

        patches.set(TritonAutotuner, "run", run)
        patches.set(triton.testing.Mark, "run", skip_report)
        for name in ("do_bench", "do_bench_cudagraph", "do_bench_proton", "do_bench_cudagraph_proton"):
            if hasattr(triton.testing, name):
                patches.set(triton.testing, name, self.bench)

    def bench(
        self,
        _function: Callable[[], object],
        *_arguments: object,
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
        **_options: object,
    ) -> float | list[float]:
        """The result of a benchmark: nan for each requested time."""
        self._say(NO_TIME)
        unknown = float("nan")
        if quantiles is not None:
            return [unknown] * len(quantiles) if len(quantiles) > 1 else unknown
        return [unknown] if return_mode == "all" else unknown

    def run(self, autotuner: Autotuner, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Launch an autotuned kernel with a configuration that is valid."""
        autotuner.nargs = dict(zip(autotuner.arg_names, args, strict=False))
        try:
            key = _tuning_key(autotuner, kwargs)
            chosen = self._chosen.setdefault(autotuner, {})
            if len(autotuner.configs) == 1:
                chosen[key] = autotuner.configs[0]
            if key in chosen:
                return _launch(autotuner, chosen[key], args, kwargs)
            configs = autotuner.prune_configs(kwargs)
            if self._mode == "all":
                configs = [config for config in configs if _try(autotuner, config, args, kwargs)]
            return self._launch_first(autotuner, configs, key, args, kwargs)
        finally:
            autotuner.nargs = None

    def _launch_first(
        self,
        autotuner: Autotuner,
        configs: Sequence[Config],
        key: tuple[object, ...],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Launch the first valid configuration; without one, the error of the last."""
        from triton.runtime.errors import AutotunerError

        failure: Exception = AutotunerError("No configuration of this autotuner is valid on this device.")
        for config in configs:
            autotuner.pre_hook(_all_arguments(autotuner, config, kwargs), reset_only=True)
            try:
                launched = _launch(autotuner, config, args, kwargs)
            except _invalid_errors() as error:
                failure = error
                continue
            self._chosen[autotuner][key] = config
            return launched
        raise failure


def _invalid_errors() -> tuple[type[Exception], ...]:
    """The errors by which Triton recognises an invalid configuration."""
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.errors import OutOfResources, PTXASError

    return OutOfResources, CompileTimeAssertionFailure, PTXASError


def _tuning_key(autotuner: Autotuner, kwargs: Mapping[str, object]) -> tuple[object, ...]:
    """The values for which a choice holds: those of the tuning keys, and the types of tensors."""
    arguments = {**(autotuner.nargs or {}), **kwargs}
    named = {name: value for name, value in arguments.items() if name in autotuner.arg_names}
    values = [named[name] for name in autotuner.keys if name in named]
    types = [str(value.dtype) for value in named.values() if hasattr(value, "dtype")]
    return (*values, *types)


def _all_arguments(autotuner: Autotuner, config: Config, kwargs: Mapping[str, object]) -> dict[str, object]:
    return {**(autotuner.nargs or {}), **kwargs, **config.all_kwargs()}


def _launch(autotuner: Autotuner, config: Config, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
    """Launch a configuration as Triton does once it has chosen it."""
    autotuner.best_config = config
    if config.pre_hook is not None:
        config.pre_hook(_all_arguments(autotuner, config, kwargs))
    return autotuner.fn.run(*args, **kwargs, **config.all_kwargs())  # type: ignore[attr-defined]


def _try(autotuner: Autotuner, config: Config, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bool:
    """Launch a configuration between the hooks that reset arguments; whether it is valid."""
    arguments = _all_arguments(autotuner, config, kwargs)
    autotuner.pre_hook(arguments)
    try:
        _launch(autotuner, config, args, kwargs)
    except _invalid_errors():
        return False
    except Exception as error:
        autotuner.post_hook(arguments, exception=error)
        raise
    autotuner.post_hook(arguments, exception=None)
    return True
