"""Short forms of numbers for labels and tooltips: 0-3 for 0 to 3.

>>> number_span(0, 3), extent(8, 8), extents(range(0, 20, 8))
('0-3', '8-15', {0: '0-7', 8: '8-15', 16: '16-19'})
>>> runs([0, 1, 2, 5])
[(0, 2), (5, 5)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def number_span(first: int, last: int, between: str = "-") -> str:
    """Numbers from `first` to `last` in short.

    >>> number_span(0, 3), number_span(7, 7)
    ('0-3', '7')
    """
    return f"{first}{between}{last}" if last > first else str(first)


def extent(first: int, length: int, between: str = "-") -> str:
    """The `length` numbers from `first` on, in short.

    >>> extent(8, 8), extent(7, 1)
    ('8-15', '7')
    """
    return number_span(first, first + length - 1, between)


def ordinal(number: int) -> str:
    """A number in a row: 1st, 2nd, 3rd, 4th.

    >>> [ordinal(number) for number in (1, 2, 11, 23)]
    ['1st', '2nd', '11th', '23rd']
    """
    endings = {1: "st", 2: "nd", 3: "rd"}
    is_teen = number // 10 % 10 == 1
    return f"{number}{'th' if is_teen else endings.get(number % 10, 'th')}"


def extents(starts: range) -> dict[int, str]:
    """The numbers from each start to the next, or to the end of the range, in short.

    >>> extents(range(0, 20, 8))
    {0: '0-7', 8: '8-15', 16: '16-19'}
    """
    return {start: number_span(start, min(start + starts.step, starts.stop) - 1) for start in starts}


def runs(
    numbers: Iterable[int], step: int = 1, alike: Callable[[int], object] = lambda _: None
) -> list[tuple[int, int]]:
    """Numbers `step` apart as first and last; in a run `alike` says the same of all of them.

    >>> runs([0, 1, 2, 5]), runs([0, 2, 4], step=2, alike=lambda number: number > 2)
    ([(0, 2), (5, 5)], [(0, 2), (4, 4)])
    """
    spans: list[tuple[int, int]] = []
    for number in numbers:
        if spans:
            first, last = spans[-1]
            if number == last + step and alike(number) == alike(last):
                spans[-1] = (first, number)
                continue
        spans.append((number, number))
    return spans
