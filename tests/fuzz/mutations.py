"""Mutations of what nsysflow reads: tables, JSON documents, lines of text, packets, and bytes.

Each takes a source of random choices, changes what it is given in place, and says what it did.
"""

import json
import math
from collections.abc import Callable, MutableSequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

INTEGERS: Final = (
    *(0, 1, -1, 2**24, 2**31 - 1, 2**31, -(2**31) - 1, 2**32 - 1, 2**32),
    *(2**53 + 1, 2**62, -(2**62), 2**63 - 1, -(2**63)),
)
NUMBERS: Final = (*INTEGERS, 2**63, 2**64, 10**40, 0.5, -0.0, 1e308, math.nan, math.inf, -math.inf)
MARKUP: Final = (
    "<script>fuzz()</script>",
    "</script><script>fuzz()</script>",
    '"><img src=x onerror=fuzz()>',
    "' onerror='fuzz()",
    "<!--",
    "]]>&amp;&#x1b;",
)
TEXTS: Final = (
    *("", " ", "\0", "a\0b", "\ud800", "caf\udce9", "a\nb\r\nc", "\t"),
    *("\u202egnp", "\ufeff", "\U0010ffff"),
    *("=1+1", "+1+1", "-1+1", "@SUM(A1)", "=cmd|' /C calc'!A0", "\t=1+1"),
    *("\x1b[2J\x1b[31m", "\x1b]0;fuzz\x07", "\x1b]8;;http://fuzz\x1b\\a", "\x9b31m", "\x7f\x08"),
    *MARKUP,
    *("'; DROP TABLE StringIds; --", "$(touch fuzz)", "`touch fuzz`", "../../fuzz", "/dev/zero"),
    *("[bold]a[/]", "{0}{a}", "%s%n", "|a|b|", "a\\", "null", "nan", "1e999", "9" * 5000),
    *("x" * 1_000_000, "step 1", "step/forward/.", "(outside ranges)", "ncclDevKernel_AllReduce"),
)
MARKS: Final[tuple[dict[str, Any], ...]] = (
    {"capture": "1:2:3", "unprofiled_step_ns": 1000},
    {"unix_ns": 10**18},
    {"capture": "0:0:5", "flops": {"unit": "bf16", "phases": {"step/forward": 10**12}}},
    {"clock_ns": 100, "graph_ranges": [["layer", None, 10, 60, 1000], ["b", "d", 20, 40, 1000]]},
    {"gpu_states": [[0, 1980, 2619, 700_000, 60, 4], [1, None, None, None, None, None]]},
    {"gpu_states": [[500, [0, 1980, 2619, 700_000, 60, 4]]]},
    {"gpu_traffic": [[0, 10**8, 10**6, 5 * 10**10, None, None], [1, 1, None, None, 1, 1]]},
    {"gpu_traffic": [[500, [0, 10**8, 10**6, 5 * 10**10, None, None]]]},
    {"thread_cpu": [[1000, 10**9, 10**8]]},
    {"gave_up": [["forward", "model.py:54", "self.clock == 7"]]},
    {
        "unused_gradients": [
            ["Vgg", "PairLoss", "PairLoss", ["train.py:5-9"], 9, 9, 2, 4, 2, 2, 0, ["train.py:7"]]
        ]
    },
    {
        "padded_input": [
            ["A", "A", "forward", [], 9, 9, 8, 8, 900, 600, 50, 40, 900, 90, ["a.py:7"]]
        ]
    },
    {"unchanged_calls": [["Linear", "A", "forward", [], 9, 9, 2, 24, 10**12, 10**13, ["a.py:7"]]]},
    {
        "product_order": [
            [
                *["A", "A", "forward", [], 9, 9, 2, 24, 24, 10**12, 10**12, 10**13],
                *[["a.py:7"], 10**10, 1, [9, 8, 9, 8], True],
            ]
        ]
    },
    {
        "zeros_in_products": [
            ["A", "A", "forward", [], 9, 9, 2, 6, 6, 900, 900, 999, ["a.py:7"], 800, [512, 512]]
        ]
    },
    {
        "merged_adapters": [
            ["A", "A", "forward", [], 9, 9, 2, 6, 6, 90, 90, 999, ["a.py:7"], 800, 60, [64, 4, 64]]
        ]
    },
    {"repeated_calls": [["Net", "A", "forward", [], 9, 9, 2, 4, 2, 2, ["a.py:7"], ["a.py:9"]]]},
    {"masked_rows": [["B, C", "A", "forward", ["a.py:7-9"], 9, 99, 2, 6, 90, 40, ["a.py:7"]]]},
    {"worker_code": [["decode", "data.py:7", 0, 83, 100, 1]]},
    {"process_cpu": [[1000, 10**9, 10**8, None, 4, 10**9]]},
)
"""What the marks of ours hold."""


def number(draw: Random) -> int | float:
    """A number near the ends of its range, or of another type."""
    return draw.choice(INTEGERS if draw.random() < 0.7 else NUMBERS)


def value(draw: Random) -> object:
    """A value that does not belong there."""
    kind = draw.random()
    if kind < 0.5:
        return number(draw)
    if kind < 0.8:
        return draw.choice(TEXTS)
    return draw.choice((None, True, b"\0\xff", mark(draw)))


def mark(draw: Random) -> str:
    """A mark of ours, whole or broken in one of many ways."""
    document: Any = {"nsysflow": json.loads(json.dumps(draw.choice(MARKS)))}
    for _ in range(draw.choice((0, 1, 1, 2))):
        change_document(draw, document)
    text = json.dumps(document)
    return text[: draw.randrange(len(text))] if draw.random() < 0.15 else text


@dataclass
class Table:
    """The rows of a table, each with a value of every column."""

    columns: list[str]
    rows: list[list[Any]]


Tables = dict[str, Table]

EVENTS: Final = 10
"""A table of so many rows is most likely one of events, where most can go wrong."""


def change_tables(draw: Random, tables: Tables) -> str:
    """Change one table."""
    filled = [name for name, table in tables.items() if table.rows]
    events = [name for name in filled if len(tables[name].rows) >= EVENTS]
    of = events if events and draw.random() < 0.6 else filled or [*tables]
    if not of:
        return "no table is left"
    name = draw.choice(of)
    said = draw.choice(_OF_TABLES)(draw, tables, name)
    return f"{name}: {said}"


def _drop_table(draw: Random, tables: Tables, name: str) -> str:
    del tables[name]
    return "dropped"


def _as_other(draw: Random, tables: Tables, name: str) -> str:
    other = draw.choice(list(tables))
    tables[other] = Table([*tables[name].columns], [[*row] for row in tables[name].rows])
    return f"copied over {other}"


def _drop_column(draw: Random, tables: Tables, name: str) -> str:
    table = tables[name]
    if len(table.columns) < 2:
        return "no column to drop"
    at = draw.randrange(len(table.columns))
    for row in table.rows:
        del row[at]
    return f"column {table.columns.pop(at)} dropped"


def _rename_column(draw: Random, tables: Tables, name: str) -> str:
    table = tables[name]
    at = draw.randrange(len(table.columns))
    was, table.columns[at] = table.columns[at], f"another {at}"
    return f"column {was} renamed"


def _swap_columns(draw: Random, tables: Tables, name: str) -> str:
    table = tables[name]
    one, other = (draw.randrange(len(table.columns)) for _ in range(2))
    for row in table.rows:
        row[one], row[other] = row[other], row[one]
    return f"values of {table.columns[one]} and {table.columns[other]} swapped"


def _drop_rows(draw: Random, tables: Tables, name: str) -> str:
    share = draw.choice((0.1, 0.5, 0.9, 1.0))
    tables[name].rows = [row for row in tables[name].rows if draw.random() >= share]
    return f"{share:.0%} of rows dropped"


def _double_rows(draw: Random, tables: Tables, name: str) -> str:
    share = draw.choice((0.1, 1.0))
    tables[name].rows += [[*row] for row in tables[name].rows if draw.random() < share]
    return f"{share:.0%} of rows doubled"


def _shuffle_rows(draw: Random, tables: Tables, name: str) -> str:
    draw.shuffle(tables[name].rows)
    return "rows shuffled"


def _change_cells(draw: Random, tables: Tables, name: str) -> str:
    table = tables[name]
    at = _any_column(draw, table)
    share, kind = draw.choice((0.0, 0.1, 0.5, 1.0)), draw.random()
    numeric = any(isinstance(row[at], int) for row in table.rows)
    new = None if kind < 0.15 else value(draw) if kind < 0.4 else _fitting(draw, numeric=numeric)
    if isinstance(new, str) and len(new) > 10_000:
        share = 0.0  # one cell
    only = draw.randrange(len(table.rows) or 1)
    for index, row in enumerate(table.rows):
        if index == only or draw.random() < share:
            row[at] = new
    return f"{share:.0%} of {table.columns[at]} is {str(new)[:40]!r}"


def _any_column(draw: Random, table: Table) -> int:
    """A column, most likely one with values that differ."""
    varied = [
        at for at in range(len(table.columns)) if len({str(row[at]) for row in table.rows[:9]}) > 1
    ]
    return draw.choice(varied if varied and draw.random() < 0.7 else range(len(table.columns)))


def _fitting(draw: Random, *, numeric: bool) -> object:
    if numeric:
        return draw.choice(INTEGERS)
    return mark(draw) if draw.random() < 0.2 else draw.choice(TEXTS)


def _as_bytes(value: object) -> bytes:
    return str(value).encode("utf-8", "surrogatepass")


def _retype_column(draw: Random, tables: Tables, name: str) -> str:
    table = tables[name]
    at = _any_column(draw, table)
    kind: Callable[[Any], object] = draw.choice((str, float, _as_bytes))
    for row in table.rows:
        if isinstance(row[at], int | float) or (row[at] is not None and kind is not float):
            row[at] = kind(row[at])
    return f"column {table.columns[at]} retyped"


def _shift_numbers(draw: Random, tables: Tables, name: str) -> str:
    table = tables[name]
    at = _any_column(draw, table)
    by, share = draw.choice((1, -1, 1000, 10**9, -(10**9), 10**17, 2**62, -(2**62))), draw.random()
    for row in table.rows:
        if isinstance(row[at], int) and draw.random() < share:
            row[at] = max(-(2**63), min(2**63 - 1, row[at] + by))
    return f"{share:.0%} of {table.columns[at]} shifted by {by}"


def _mix_spans(draw: Random, tables: Tables, name: str) -> str:
    """Ranges that end before they begin, contain each other in a circle, or never end."""
    table = tables[name]
    if not {"start", "end"} <= {*table.columns}:
        return "no spans"
    start, end = table.columns.index("start"), table.columns.index("end")
    way = draw.choice(("swapped", "moved", "endless", "equal", "empty"))
    ends = [row[end] for row in table.rows]
    for row, other in zip(table.rows, [*ends[1:], *ends[:1]], strict=True):
        if draw.random() < 0.5:
            match way:
                case "swapped":
                    row[start], row[end] = row[end], row[start]
                case "moved":
                    row[end] = other
                case "endless":
                    row[end] = None
                case "equal":
                    row[start], row[end] = table.rows[0][start], table.rows[0][end]
                case "empty":
                    row[end] = row[start]
    return f"spans {way}"


def _add_marks(draw: Random, tables: Tables, name: str) -> str:
    """Marks and ranges with text of ours, of others, or of nobody."""
    nvtx = tables.get("NVTX_EVENTS")
    if nvtx is None or not nvtx.rows or "text" not in nvtx.columns:
        return "no marks to add"
    for _ in range(draw.choice((1, 2, 20))):
        row = [*draw.choice(nvtx.rows)]
        row[nvtx.columns.index("text")] = mark(draw) if draw.random() < 0.8 else draw.choice(TEXTS)
        if "eventType" in nvtx.columns:
            row[nvtx.columns.index("eventType")] = draw.choice((34, 34, 59, 60, 75))
        nvtx.rows.append(row)
    return "marks added to NVTX_EVENTS"


_OF_TABLES: Final = (
    *(_drop_table, _as_other, _drop_column, _drop_column, _rename_column, _swap_columns),
    *(_drop_rows, _drop_rows, _double_rows, _shuffle_rows, _retype_column, _shift_numbers),
    *(_shift_numbers, _mix_spans, _mix_spans, _add_marks, *(_change_cells,) * 8),
)


def change_document(draw: Random, document: Any) -> str:
    """Change one place in a JSON document, which is an object or array."""
    path: list[str] = []
    holder: Any = document
    while True:
        keys = [*holder] if isinstance(holder, dict) else [*range(len(holder))]
        if not keys:
            return f"{'.'.join(path)}: is empty"
        key = draw.choice(keys)
        path.append(str(key)[:30])
        below = holder[key]
        if not isinstance(below, dict | list) or not below or draw.random() < 0.15:
            break
        holder = below
    return f"{'.'.join(path)}: {_change_node(draw, holder, key)}"


def _change_node(draw: Random, holder: dict[Any, Any] | list[Any], key: Any) -> str:
    old = holder[key]
    match draw.randrange(8):
        case 0:
            del holder[key]
            return "removed"
        case 1:
            if isinstance(holder, list):
                holder.insert(key, json.loads(json.dumps(old)))
            else:
                holder[f"{key}"[:100] + " "] = old
            return "doubled"
        case 2:
            holder[key] = [old]
            return "put into a list"
        case 3:
            holder[key] = {"a": old}
            return "put into an object"
        case 4:
            holder[key] = old if isinstance(old, str) else json.dumps(old)
            return "made text"
        case 5 if isinstance(old, int) and not isinstance(old, bool):
            holder[key] = old + draw.choice((1, -1, 10**9, -(10**9), 2**62))
            return f"changed to {holder[key]}"
        case _:
            new = value(draw)
            holder[key] = new.decode("latin-1") if isinstance(new, bytes) else new
            return f"changed to {str(new)[:40]!r}"


def share_values(draw: Random, document: dict[str, Any]) -> str:
    """Put a value at several places, or in itself, or one that holds another many times over."""
    lists = [each for each in document.values() if isinstance(each, list)]
    places = [each for of_list in lists for each in of_list if isinstance(each, dict)]
    if not places:
        return "nothing to share"
    kind = draw.choice(("many times over", "circle", "again"))
    place, key = draw.choice(places), draw.choice([*draw.choice(places)] or ["a"])
    if kind == "circle":
        place[key] = place
    elif kind == "again":
        place[key] = draw.choice(places)
    else:
        deep: Any = ["x"]
        for _ in range(60):
            deep = [deep, deep]
        place[key] = deep
    return f"{key}: {kind}"


def change_lines(draw: Random, lines: list[str]) -> str:
    """Change a line of a settings file, or its place."""
    if not lines:
        return "no line is left"
    at = draw.randrange(len(lines))
    name, equals, _ = lines[at].partition("=")
    match draw.randrange(6):
        case 0:
            return f"line {at} removed: {lines.pop(at)[:40]!r}"
        case 1:
            lines.insert(draw.randrange(len(lines)), lines[at])
            return f"line {at} doubled"
        case 2:
            lines.insert(at, str(draw.choice(TEXTS)))
            return f"text before line {at}"
        case 3 if equals:
            lines[at] = f"{name}= {json.dumps(str(draw.choice(TEXTS)))}"
        case 4 if equals:
            lines[at] = f"{name}= {number(draw)}"
        case _:
            others = ("true", "[]", "[[[]]]", "{}", '["a", 1]', "1979-05-27T07:32:00Z", "''", "nan")
            lines[at] = f"{name}= {draw.choice(others)}"
    return f"line {at} is {lines[at][:40]!r}"


def change_packets(draw: Random, packets: MutableSequence[Any]) -> str:
    """Change a packet of a trace in Perfetto's format, or its place."""
    if not packets:
        return "no packet is left"
    at = draw.randrange(len(packets))
    match draw.randrange(5):
        case 0:
            del packets[at]
            return f"packet {at} removed"
        case 1:
            packets.insert(draw.randrange(len(packets)), packets[at])
            return f"packet {at} doubled"
        case 2:
            other = draw.randrange(len(packets))
            packets[at], packets[other] = packets[other], packets[at]
            return f"packets {at} and {other} swapped"
        case _:
            return f"packet {at}: {_change_message(draw, packets[at])}"


def _change_message(draw: Random, message: Any) -> str:
    fields = message.ListFields()
    if not fields:
        return "is empty"
    field, held = draw.choice(fields)
    if draw.random() < 0.15:
        message.ClearField(field.name)
        return f"{field.name} removed"
    many = not hasattr(held, "ListFields") and hasattr(
        held, "append" if field.message_type is None else "add"
    )
    if field.message_type is not None:
        below = draw.choice(list(held)) if many else held
        return f"{field.name}.{_change_message(draw, below)}"
    new: Any
    if field.cpp_type in (field.CPPTYPE_STRING,):
        text = draw.choice(TEXTS).encode("utf-8", "replace")
        new = text if field.type == field.TYPE_BYTES else text.decode()
    elif field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        new = float(draw.choice((0, -1, 1e308, math.nan, math.inf)))
    elif field.cpp_type == field.CPPTYPE_BOOL:
        new = not held
    else:
        bits = 64 if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) else 32
        signed = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_INT32)
        new = draw.choice(INTEGERS) % (1 << (bits - signed)) if field.enum_type is None else 0
    if many:
        held[:] = [new]
    else:
        setattr(message, field.name, new)
    return f"{field.name} is {str(new)[:40]!r}"


def change_bytes(draw: Random, content: bytearray) -> str:
    """Change a few bytes, or how many there are."""
    if not content:
        return "no byte is left"
    at, length = draw.randrange(len(content)), min(1 << draw.randrange(12), len(content))
    match draw.randrange(7):
        case 0:
            content[at] ^= 1 << draw.randrange(8)
            return f"a bit of byte {at} flipped"
        case 1:
            del content[at:]
            return f"cut to {at} bytes"
        case 2:
            del content[at : at + length]
            return f"{length} bytes removed at {at}"
        case 3:
            content[at:at] = draw.randbytes(length)
            return f"{length} bytes inserted at {at}"
        case 4:
            other = draw.randrange(len(content))
            content[at : at + length] = content[other : other + length]
            return f"{length} bytes of {other} put to {at}"
        case 5:
            content[at : at + length] = bytes([draw.choice((0, 0x7F, 0x80, 0xFF))]) * length
            return f"{length} bytes overwritten at {at}"
        case _:
            content[at : at + length] = draw.randbytes(length)
            return f"{length} random bytes at {at}"
