"""Every call of torch by a program, seen before torch does it: "cuda" becomes the CPU.

To a program, a tensor is on the card or on the CPU. Tensors that it created without "cuda" are marked, and results of
only marked tensors are marked too. All others are on the card, once the program has used "cuda".

    x = torch.zeros(4)              marked: x.is_cuda is False
    y = x.cuda()                    a copy without a mark: y.is_cuda is True, y.device is cuda:0
    z = y + 1                       on the card as y is
    z.cpu()                         a copy with a mark
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType

from tilescope.errors import DeviceError

MARK = "_tilescope_on_cpu"  # an attribute of tensors that the program made on the CPU
CALLS = Callable[..., object]
_PLAIN = (bool, int, float, str)


def is_cuda_device(torch: ModuleType, value: object) -> bool:
    """Whether a value names a CUDA device; a DeviceError for another than the first."""
    if not isinstance(value, str | torch.device):
        return False
    kind, _, index = str(value).partition(":")
    if kind != "cuda":
        return False
    if index not in ("", "0"):
        raise DeviceError(f"The program asks for {value}; under tilescope's driver there is one device, cuda:0.")
    return True


class TorchCalls:
    """Handles a call of torch; `note_use` is called at the first "cuda"."""

    def __init__(self, torch: ModuleType, note_use: Callable[[], None]) -> None:
        self._torch = torch
        self._note_use = note_use
        self._is_used = False
        self._cpu = torch.device("cpu")
        tensor = torch.Tensor
        self._tensor = tensor
        cuda = torch.device("cuda", 0)
        self._answers: dict[CALLS, Callable[[bool], object]] = {
            tensor.is_cuda.__get__: lambda on_cpu: not on_cpu,
            tensor.is_cpu.__get__: lambda on_cpu: on_cpu,
            tensor.device.__get__: lambda on_cpu: self._cpu if on_cpu else cuda,
            tensor.get_device: lambda on_cpu: -1 if on_cpu else 0,
        }

    def make_mode(self) -> object:
        """The torch function mode that passes every call here."""
        calls = self

        class CudaOnCpu(self._torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
            """Maps "cuda" to the CPU."""

            def __torch_function__(
                self,
                func: CALLS,
                _types: object,
                args: tuple[object, ...] = (),
                kwargs: Mapping[str, object] | None = None,
            ) -> object:
                return calls.answer(func, args, dict(kwargs or {}))

        mode: object = CudaOnCpu()
        return mode

    def answer(self, function: CALLS, args: tuple[object, ...], options: dict[str, object]) -> object:
        """The result of a call."""
        if function in self._answers:
            return self._answers[function](self._is_on_cpu(args[0]))
        if function in (self._tensor.to, self._tensor.cuda, self._tensor.cpu):
            return self._transfer(function, args, options)
        if function is self._tensor.pin_memory:
            return args[0]
        if function is self._torch.device:
            return function(*args, **options)  # a name, which is mapped where it is used
        mapped = tuple(self._map_device(value) for value in args)
        device = _device_by_number(options.get("device"))
        if "device" in options:
            options["device"] = self._map_device(device)
        if options.get("pin_memory"):
            options["pin_memory"] = False
        result = function(*mapped, **options)
        if result is None or isinstance(result, _PLAIN) or any(result is argument for argument in args):
            return result
        if device is None and mapped == args:
            tensors = [value for value in _list_entries((*args, *options.values())) if isinstance(value, self._tensor)]
            self._mark(result, on_cpu=all(hasattr(value, MARK) for value in tensors))
        else:
            self._mark(result, on_cpu=mapped == args and not is_cuda_device(self._torch, device))
        return result

    def note_use(self) -> None:
        """The program uses "cuda"."""
        if not self._is_used:
            self._is_used = True
            self._note_use()

    def _is_on_cpu(self, value: object) -> bool:
        return hasattr(value, MARK) or not self._is_used

    def _mark(self, value: object, *, on_cpu: bool) -> None:
        if isinstance(value, list | tuple):
            for entry in value:
                self._mark(entry, on_cpu=on_cpu)
        elif isinstance(value, self._tensor) and on_cpu:
            setattr(value, MARK, True)
        elif isinstance(value, self._tensor) and hasattr(value, MARK):
            delattr(value, MARK)

    def _map_device(self, value: object) -> object:
        if is_cuda_device(self._torch, value):
            self.note_use()
            return self._cpu
        return value

    def _transfer(self, function: CALLS, args: tuple[object, ...], options: dict[str, object]) -> object:
        """Tensor.to, .cuda and .cpu: a copy if the sides differ, with any other conversion of the call."""
        source, *rest = args
        from_cpu = self._is_on_cpu(source)
        to_cpu = self._goes_to_cpu(function, from_cpu, rest, options)
        if not to_cpu:
            self.note_use()
        moved: object = source
        if function is self._tensor.to:
            rest = [self._cpu if self._names_device(value) else value for value in rest]
            plain = {name: self._cpu if self._names_device(value) else value for name, value in options.items()}
            moved = function(source, *rest, **plain)
        if to_cpu != from_cpu and moved is source:
            moved = source.clone()  # type: ignore[attr-defined]
        if moved is not source:
            self._mark(moved, on_cpu=to_cpu)
        return moved

    def _goes_to_cpu(self, function: CALLS, from_cpu: bool, rest: list[object], options: dict[str, object]) -> bool:
        if function is self._tensor.cuda:
            return False
        if function is self._tensor.cpu:
            return True
        named = [_device_by_number(value) for value in (*rest, *options.values()) if self._names_device(value)]
        if named:
            return not is_cuda_device(self._torch, named[0])
        if rest and isinstance(rest[0], self._tensor):
            return self._is_on_cpu(rest[0])
        return from_cpu

    def _names_device(self, value: object) -> bool:
        if isinstance(value, str):
            return value.partition(":")[0] in ("cuda", "cpu")
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return is_number or isinstance(value, self._torch.device)


def _device_by_number(value: object) -> object:
    """The name of a device that is given by its number; any other value as it is."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"cuda:{value}"
    return value


def _list_entries(values: Iterable[object]) -> Iterator[object]:
    """The values, and those in lists and tuples among them."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from value
        else:
            yield value
