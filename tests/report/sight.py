"""How far colours are apart, as people see them, colour-blind ones too."""

from typing import Final

Rgb = tuple[float, float, float]
Matrix = tuple[Rgb, Rgb, Rgb]

AS_SEEN: Final[dict[str, Matrix]] = {
    "typical": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""Linear RGB as people see it: Machado, Oliveira and Fernandes, 2009."""


def linear(colour: str) -> Rgb:
    """`#rrggbb` in linear RGB, 0 to 1."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return _linear(red), _linear(green), _linear(blue)


def _linear(value: float) -> float:
    return float(value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4)


def times(matrix: Matrix, of: Rgb) -> Rgb:
    first, second, third = (
        sum(each * value for each, value in zip(row, of, strict=True)) for row in matrix
    )
    return first, second, third


def oklab(rgb: Rgb) -> Rgb:
    """Ottosson's OKLab."""
    to_cones: Matrix = (
        (0.4122214708, 0.5363325363, 0.0514459929),
        (0.2119034982, 0.6806995451, 0.1073969566),
        (0.0883024619, 0.2817188376, 0.6299787005),
    )
    to_lab: Matrix = (
        (0.2104542553, 0.7936177850, -0.0040720468),
        (1.9779984951, -2.4285922050, 0.4505937099),
        (0.0259040371, 0.7827717662, -0.8086757660),
    )
    red, green, blue = (min(1.0, max(0.0, value)) for value in rgb)
    long, medium, short = times(to_cones, (red, green, blue))
    return times(to_lab, (long ** (1 / 3), medium ** (1 / 3), short ** (1 / 3)))


def apart(one: str, other: str, seen: Matrix) -> float:
    """How far two colours are apart."""
    labs = [oklab(times(seen, linear(colour))) for colour in (one, other)]
    return float(sum((x - y) ** 2 for x, y in zip(*labs, strict=True)) ** 0.5)


def contrast(one: str, other: str) -> float:
    """The contrast of WCAG 2."""
    shares = (0.2126, 0.7152, 0.0722)
    lights = sorted(
        sum(share * value for share, value in zip(shares, linear(colour), strict=True))
        for colour in (one, other)
    )
    return (lights[1] + 0.05) / (lights[0] + 0.05)
