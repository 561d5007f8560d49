"""A kernel's short name from its full one, as nsys shortens them."""

from functools import cache
from typing import Final

_OPEN: Final = "<([{"
_CLOSE: Final = ">)]}"


@cache
def short_kernel_name(name: str) -> str:
    """`name` without return type, namespaces, template arguments and parameters.

    `void at::native::vectorized_elementwise_kernel<4, …>(int, …)` is
    `vectorized_elementwise_kernel`; a name that cannot be taken apart stays whole.
    """
    plain = name.replace("(anonymous namespace)", "unnamed").replace("operator()", "operator")
    kept: list[str] = []
    depth = 0
    for at, letter in enumerate(plain):
        if letter == "(" and depth == 0:
            break
        if letter in _OPEN:
            depth += 1
        elif letter in _CLOSE and plain[at - 1] != "-":  # `->` closes nothing
            depth -= 1
        elif depth == 0:
            kept.append(letter)
    short = "".join(kept).strip().rpartition("::")[2].rpartition(" ")[2]
    return short if depth == 0 and short else name
