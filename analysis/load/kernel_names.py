"""Names of kernels and of API calls: short ones, those of nsys or better where these are
generic.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

GENERIC: Final = frozenset(
    {
        *("Kernel", "Kernel2", "device_kernel", "kernel", "_kernel_agent"),
        *("kentry", "trampoline_kernel", "kernel_wrapper"),
    }
)
"""Generic names: templates of CUTLASS, Thrust, Composable Kernel, rocPRIM and cuFFT for any
kernel."""

MANGLED: Final = "_Z"
"""What a C++ name begins with that nobody demangled, as most of ROCm's in torch.profiler."""

_WRAPPER: Final = re.compile(r"enable_\w+|GemmKernel")
"""Generic names in their arguments: `flash::enable_sm90_or_later<…>`."""

_VALUE_OR_PLAIN_TYPE: Final = re.compile(
    r"(?i)true|false|const|(?:__nv_|__)?(?:T|void|bool|char|short|long|double|half|u?int|signed"
    r"|unsigned|b?float|fp)\d*(?:b?_\w+)?"
)
_ADDRESS_OF: Final = re.compile(r"^\s*&\(?")
"""Before a function: `&f<int>` by nsys, `&(void f<int>(int))` by torch.profiler."""

_BRACKET: Final = re.compile(r"[<(\[{]")
_CLOSES: Final = {">": "<", ")": "(", "]": "[", "}": "{"}

_FIRST_TYPE: Final = re.compile(r"I(?:L[a-z]\w*?E|v)*N?(?:S[0-9A-Z]*_|St)?(?=[1-9])")
"""What stands in a mangled name between a template and its first argument with a name."""

_NESTED: Final = re.compile(f"{MANGLED}(?:L|NK?)?")
"""What stands before the first identifier of a mangled name."""

_LENGTH: Final = re.compile(r"[1-9]\d{0,4}")

_Part = tuple[str, list[str]]
"""A name between `::`, and its template arguments."""


@cache
def short_kernel_name(name: str) -> str:
    """A kernel's name without return type, namespaces, template arguments and parameters.

    `void at::native::vectorized_elementwise_kernel<4, …>(int, …)` is
    `vectorized_elementwise_kernel`. A generic name is replaced by that of its template argument:
    `void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(…)` is
    `cutlass_80_simt_sgemm_64x64_8x5_tn_align1`. Mangled names are read likewise:
    `_ZN5aiter24add_rmsnorm_quant_kernelI…` is `add_rmsnorm_quant_kernel`. A name that cannot be
    parsed stays as it is.
    """
    if name.startswith(MANGLED):
        return _short_mangled(name) or name
    plain = name.replace("(anonymous namespace)", "unnamed").replace("operator()", "operator")
    try:
        short, arguments = _parts(plain)[-1]
        return ((_first_specific(arguments) or short) if short in GENERIC else short) or name
    except ValueError:
        return name


def _first_specific(arguments: list[str]) -> str | None:
    """The short name of the first template argument that names a kernel. What stands before a
    generic name is a namespace or a class, and no plain type: `fp8_acc::GemmKernel`."""
    for argument in arguments:
        parts = _parts(_ADDRESS_OF.sub("", argument))
        for name, inner in reversed(parts):
            if name in GENERIC or _WRAPPER.fullmatch(name):
                if specific := _first_specific(inner):
                    return specific
            elif name.isidentifier() and not (
                name is parts[-1][0] and _VALUE_OR_PLAIN_TYPE.fullmatch(name)
            ):
                return name
            else:
                break
    return None


def _short_mangled(name: str) -> str | None:
    """The short name in a mangled one, or that of the first named argument of a generic template;
    None without either."""
    head = _NESTED.match(name)
    at = head.end() if head else len(name)
    short = None
    while at < len(name):
        last, at = _last_identifier(name, at)
        short = last or short
        opened = _FIRST_TYPE.match(name, at)
        if short not in GENERIC or opened is None:
            break
        at = opened.end()
    return short


def _last_identifier(name: str, at: int) -> tuple[str | None, int]:
    """The last of the identifiers, each after its length, that stand one behind the other from
    `at` on, and where they end."""
    last = None
    while length := _LENGTH.match(name, at):
        at = length.end() + int(length[0])
        last = name[length.end() : at]
    return last, at


def _parts(name: str) -> list[_Part]:
    """The parts of a C++ name, without return type and parameters.

    Raises:
        ValueError: its brackets do not match.
    """
    words = _split(next(_split(name, "(")).strip(), " ")
    return [_part(text) for text in _split([*words][-1], "::")]


def _part(text: str) -> _Part:
    bracket = _BRACKET.search(text)
    if bracket is None or bracket[0] != "<":
        return text[: bracket.start()] if bracket else text, []
    return text[: bracket.start()], [*_split(text[bracket.end() : text.rindex(">")], ",")]


def _split(text: str, separator: str) -> Iterator[str]:
    """The pieces of `text` between separators that are outside brackets.

    Raises:
        ValueError: brackets do not match, as far as the pieces were asked for.
    """
    begin = 0
    opened: list[str] = []
    for at, letter in enumerate(text):
        if not opened and text.startswith(separator, at):
            yield text[begin:at]
            begin = at + len(separator)
        elif letter in "<([{":
            opened.append(letter)
        elif letter not in _CLOSES or _compares(text, at, opened):
            continue
        elif not opened or opened.pop() != _CLOSES[letter]:
            raise ValueError(text)
    if opened:
        raise ValueError(text)
    yield text[begin:]


def _compares(text: str, at: int, opened: list[str]) -> bool:
    """Whether a closing bracket is a `>` that closes nothing: of `->`, or of a comparison in
    parentheses, `enable_if<(8) > (0)>`."""
    return text[at] == ">" and (text[at - 1] == "-" or opened[-1:] == ["("])


VERSION: Final = re.compile(r"(_v\d+|_ptsz|_ptds|_spt)+$")
"""The version at the end of an API name: `cudaLaunchKernel_v7000_ptsz`, `cuMemAlloc_v2`, and
of HIP per thread `hipMemcpy_spt`."""
