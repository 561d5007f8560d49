"""Names of kernels and of CUDA API calls: short ones, those of nsys or better where these are
generic.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

GENERIC: Final = frozenset({"Kernel", "Kernel2", "device_kernel", "kernel", "_kernel_agent"})
"""Generic names: templates of CUTLASS and Thrust that run any kernel."""

_WRAPPER: Final = re.compile(r"enable_\w+|GemmKernel")
"""Generic names in their arguments: `flash::enable_sm90_or_later<…>`."""

_VALUE_OR_PLAIN_TYPE: Final = re.compile(
    r"(?i)true|false|const|(?:__nv_|__)?(?:T|void|bool|char|short|long|double|half|u?int|signed"
    r"|unsigned|b?float|fp)\d*(?:b?_\w+)?"
)
_BRACKET: Final = re.compile(r"[<(\[{]")

_Part = tuple[str, list[str]]
"""A name between `::`, and its template arguments."""


@cache
def short_kernel_name(name: str) -> str:
    """A kernel's name without return type, namespaces, template arguments and parameters.

    `void at::native::vectorized_elementwise_kernel<4, …>(int, …)` is
    `vectorized_elementwise_kernel`. A generic name is replaced by that of its template argument:
    `void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(…)` is
    `cutlass_80_simt_sgemm_64x64_8x5_tn_align1`. A name that cannot be parsed stays as it is.
    """
    plain = name.replace("(anonymous namespace)", "unnamed").replace("operator()", "operator")
    try:
        short, arguments = _parts(plain)[-1]
        return ((_first_specific(arguments) or short) if short in GENERIC else short) or name
    except ValueError:
        return name


def _first_specific(arguments: list[str]) -> str | None:
    """The short name of the first template argument that names a kernel."""
    for argument in arguments:
        for name, inner in reversed(_parts(argument)):
            if name in GENERIC or _WRAPPER.fullmatch(name):
                if specific := _first_specific(inner):
                    return specific
            elif name.isidentifier() and not _VALUE_OR_PLAIN_TYPE.fullmatch(name):
                return name
            else:
                break
    return None


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
    begin = depth = 0
    for at, letter in enumerate(text):
        if depth == 0 and text.startswith(separator, at):
            yield text[begin:at]
            begin = at + len(separator)
        elif letter in "<([{":
            depth += 1
        elif letter in ">)]}" and text[at - 1] != "-":  # `->` closes nothing
            depth -= 1
            if depth < 0:
                raise ValueError(text)
    if depth:
        raise ValueError(text)
    yield text[begin:]


VERSION: Final = re.compile(r"(_v\d+|_ptsz|_ptds)+$")
"""The version at the end of an API name: `cudaLaunchKernel_v7000_ptsz`, `cuMemAlloc_v2`."""
