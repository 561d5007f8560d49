"""Pickles of plain values, decoded without running anything that they hold.

A pickle is a program for a stack machine, and most of its instructions can call functions by name.
Those are not known here: what is left makes numbers, text, lists, tuples and dicts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct, error
from typing import Any, Final

_U16, _U32, _U64, _I32, _F64 = (Struct(form) for form in ("<H", "<I", "<Q", "<i", ">d"))


class OddPickle(ValueError):
    """The bytes are no pickle of plain values; the text says why."""


def plain_values(content: bytes) -> Any:
    """The value of a pickle: None, bool, int, float, str, bytes, or a list, tuple or dict of them.
    What it holds several times is one object. Text that is no UTF-8 has marks instead.

    Raises:
        OddPickle: it is cut off, or holds other objects.
    """
    try:
        return _Machine(content=content).run()
    except (IndexError, KeyError, error) as wrong:
        raise OddPickle("it is cut off or damaged") from wrong
    except TypeError as wrong:
        raise OddPickle(f"it is damaged ({wrong})") from wrong


@dataclass
class _Machine:
    """The state of decoding.

    Attributes:
        content: the pickle.
        at: where the next instruction begins.
        stack: the values that are being put together.
        memo: values that may be used again.
        marks: how high the stack was where a list, tuple or dict began.
    """

    content: bytes
    at: int = 0
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    marks: list[int] = field(default_factory=list)

    def run(self) -> Any:
        """The value that is left at the end. Nine tenths of the instructions of a snapshot of
        memory use a value again; these are done right here."""
        content, at, push, memo = self.content, 0, self.stack.append, self.memo
        while (code := content[at]) != _STOP:
            if code == _AGAIN_U32:
                push(memo[_U32.unpack_from(content, at + 1)[0]])
                at += 5
            elif code == _AGAIN_U8:
                push(memo[content[at + 1]])
                at += 2
            elif code in _INSTRUCTIONS:
                self.at = at + 1
                _INSTRUCTIONS[code](self)
                at = self.at
            else:
                raise OddPickle(f"it holds other objects than plain values (instruction {code:#x})")
        return self.stack.pop()

    def byte(self) -> int:
        self.at += 1
        return self.content[self.at - 1]

    def number(self, form: Struct) -> Any:
        (value,) = form.unpack_from(self.content, self.at)
        self.at += form.size
        return value

    def taken(self, count: int) -> bytes:
        """The next bytes."""
        if count < 0 or self.at + count > len(self.content):
            raise IndexError(count)
        self.at += count
        return self.content[self.at - count : self.at]

    def since_mark(self) -> list[Any]:
        """The values above the last mark, which goes."""
        mark = self.marks.pop()
        values = self.stack[mark:]
        del self.stack[mark:]
        return values


_Instruction = Callable[[_Machine], None]


def _push(value: Callable[[_Machine], Any]) -> _Instruction:
    return lambda machine: machine.stack.append(value(machine))


def _text(size: Callable[[_Machine], int]) -> _Instruction:
    return _push(lambda machine: machine.taken(size(machine)).decode("utf-8", "replace"))


def _bytes(size: Callable[[_Machine], int]) -> _Instruction:
    return _push(lambda machine: machine.taken(size(machine)))


def _whole(size: Callable[[_Machine], int]) -> _Instruction:
    return _push(
        lambda machine: int.from_bytes(machine.taken(size(machine)), "little", signed=True)
    )


def _of(form: Struct) -> Callable[[_Machine], Any]:
    return lambda machine: machine.number(form)


def _tuple_of(count: int) -> _Instruction:
    def instruction(machine: _Machine) -> None:
        if len(machine.stack) < count:
            raise IndexError(count)
        machine.stack[-count:] = [tuple(machine.stack[-count:])]

    return instruction


def _append(machine: _Machine) -> None:
    value = machine.stack.pop()
    _list(machine).append(value)


def _appends(machine: _Machine) -> None:
    values = machine.since_mark()
    _list(machine).extend(values)


def _list(machine: _Machine) -> list[Any]:
    target = machine.stack[-1]
    if type(target) is not list:
        raise OddPickle("it appends to what is no list")
    return target


def _dict(machine: _Machine) -> dict[Any, Any]:
    target = machine.stack[-1]
    if type(target) is not dict:
        raise OddPickle("it sets a key of what is no dict")
    return target


_KEYS: Final = (str, int)
"""A tuple as a key would be hashed: of one that holds others many times over, that never ends."""


def _set_item(machine: _Machine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    _set(machine, [key, value])


def _set_items(machine: _Machine) -> None:
    _set(machine, machine.since_mark())


def _set(machine: _Machine, values: list[Any]) -> None:
    """Set keys, each before its value."""
    if len(values) % 2:
        raise OddPickle("it has a key without a value")
    if not {*map(type, values[::2])} <= {*_KEYS}:
        raise OddPickle("it has a key that is neither text nor a number")
    _dict(machine).update(zip(values[::2], values[1::2], strict=True))


def _remember(place: Callable[[_Machine], int]) -> _Instruction:
    def instruction(machine: _Machine) -> None:
        machine.memo[place(machine)] = machine.stack[-1]

    return instruction


def _frame(machine: _Machine) -> None:
    machine.number(_U64)


def _protocol(machine: _Machine) -> None:
    machine.byte()


_BYTE: Final = _Machine.byte

_STOP, _AGAIN_U8, _AGAIN_U32 = 0x2E, 0x68, 0x6A
_INSTRUCTIONS: Final[dict[int, _Instruction]] = {
    0x80: _protocol,
    0x95: _frame,
    0x28: lambda machine: machine.marks.append(len(machine.stack)),
    0x4E: _push(lambda machine: None),
    0x88: _push(lambda machine: True),
    0x89: _push(lambda machine: False),
    0x4A: _push(_of(_I32)),
    0x4B: _push(_BYTE),
    0x4D: _push(_of(_U16)),
    0x8A: _whole(_BYTE),
    0x8B: _whole(_of(_I32)),
    0x47: _push(_of(_F64)),
    0x8C: _text(_BYTE),
    0x58: _text(_of(_U32)),
    0x8D: _text(_of(_U64)),
    0x43: _bytes(_BYTE),
    0x42: _bytes(_of(_U32)),
    0x7D: _push(lambda machine: {}),
    0x5D: _push(lambda machine: []),
    0x29: _push(lambda machine: ()),
    0x74: _push(lambda machine: tuple(machine.since_mark())),
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    0x61: _append,
    0x65: _appends,
    0x73: _set_item,
    0x75: _set_items,
    0x94: _remember(lambda machine: len(machine.memo)),
    0x71: _remember(_BYTE),
    0x72: _remember(_of(_U32)),
}
"""All others, by the byte of each, as the standard library's pickletools lists them."""
