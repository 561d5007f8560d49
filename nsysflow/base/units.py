"""Numbers as people read them. Everywhere else times are ns; only this module converts them."""

import re
from textwrap import wrap
from typing import Final

POSSIBLE_NS: Final = range(1 - (1 << 62), 1 << 62)
"""The times that an event can have: 146 years each way. The difference of two fits 64 bits."""

_NS_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))
_BYTE_UNITS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "B"))

_FLOP_UNITS = (
    *((10**15, "PFLOP"), (10**12, "TFLOP"), (10**9, "GFLOP"), (10**6, "MFLOP")),
    *((10**3, "kFLOP"), (1, "FLOP")),
)


def duration(ns: int | None) -> str:
    """`23_752_139` as `23.8 ms`; empty for what was not measured."""
    return "" if ns is None else _scaled(ns, _NS_UNITS)


def signed(ns: int) -> str:
    """A difference of times: `+1.57 ms`, `-664 us`; `0` for none."""
    return f"+{duration(ns)}" if ns > 0 else duration(ns)


def time_unit(longest_ns: int) -> tuple[int, str]:
    """The unit in which an axis shows times up to this one, and its ns: `(1_000_000, "ms")`."""
    return next((unit for unit in _NS_UNITS if longest_ns >= unit[0]), _NS_UNITS[-1])


def size(count: int | None) -> str:
    """Bytes with a decimal prefix: `257_000_000` as `257 MB`."""
    return "" if count is None else _scaled(count, _BYTE_UNITS)


def flops(count: float | None) -> str:
    """Operations with a decimal prefix: `4_123_168_604_160` as `4.12 TFLOP`."""
    return "" if count is None else _scaled(round(count), _FLOP_UNITS)


def instant(ns: int | None) -> str:
    """A time on the report's clock in seconds, to the us, as `--from` and `--to` take it."""
    return "" if ns is None else f"{ns / 1e9:.6f} s"


def number(value: int | None) -> str:
    """A count with a comma between thousands."""
    return "" if value is None else f"{value:,}"


def cpus(count: int) -> str:
    """`1 CPU`, `64 CPUs`."""
    return f"{number(count)} CPU{'' if count == 1 else 's'}"


def percent(value: float | None) -> str:
    """0..100 with one decimal below 10: `4.4 %`, `34 %`; `<0.1 %` and `>99 %` where rounding would
    say none or all."""
    if value is None:
        return ""
    if 0 < value < 0.05:
        return "<0.1 %"
    return f"{value:.1f} %" if 0 < value < 9.95 else _whole(value)


def share(part: int, whole: int) -> str:
    """`part` as a percentage of `whole`; empty where there is no whole."""
    return percent(100 * part / whole) if whole else ""


def between(low_ns: int, high_ns: int) -> str:
    """`35.1 to 40.4 ms`, or one time where both read the same."""
    low, high = duration(low_ns), duration(high_ns)
    if low == high:
        return high
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


def whole_percent(part: int, whole: int) -> str:
    """The same for sentences, never with a decimal: `4 %`, and `<1 %` for almost none."""
    value = 100 * part / whole if whole else 0.0
    return "<1 %" if 0 < value < 0.5 else _whole(value)


def _whole(value: float) -> str:
    return ">99 %" if 99.5 <= value < 100 else f"{value:.0f} %"


def significant(value: float) -> str:
    """Three significant digits, never in powers of ten: `1.00`, `23.8`, `307`, `1,234`."""
    size = abs(value)
    if size >= 999.5:
        return f"{value:,.0f}"
    if size >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


_NO_BREAK: Final = "\N{NO-BREAK SPACE}"


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines; a number stays on one line with its unit."""
    joined = re.sub(r"(?<=\d) (?=(?:%|[num]?s\b))", _NO_BREAK, text)
    lines = wrap(joined, width, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]


def _scaled(value: int, units: tuple[tuple[int, str], ...]) -> str:
    if value == 0:
        return "0"
    smallest, smallest_name = units[-1]
    for unit, name in units[:-1]:
        if abs(value) >= 0.9995 * unit:
            return f"{significant(value / unit)} {name}"
    return f"{value // smallest} {smallest_name}"
