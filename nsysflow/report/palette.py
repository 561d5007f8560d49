"""The colours of all pictures: of causes, of classes of GPU work, and of the page around them.

Those of causes and work were searched for together: also for colour-blind people any two differ
(a test holds by how much), and all stand out from the page. Where parts touch, figures hatch too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Colour:
    """A colour of both themes.

    Attributes:
        light: on a light page, as `#rrggbb`.
        dark: the same on a dark page.
        hatch: how it differs in black and white too: a hatch of matplotlib; empty for plain.
    """

    light: str
    dark: str
    hatch: str = ""


CAUSES: Final[Mapping[str, Colour]] = {
    "profiler": Colour(light="#414f4c", dark="#ebf9f4", hatch="xxxx"),
    "sync": Colour(light="#9f1208", dark="#cd2a00"),
    "blocking_copy": Colour(light="#5d002d", dark="#c66b75", hatch="////"),
    "alloc": Colour(light="#551385", dark="#7c68d0", hatch="\\\\\\\\"),
    "module_load": Colour(light="#a97dda", dark="#bc9af2", hatch="||||"),
    "api": Colour(light="#7a714e", dark="#b0922e", hatch="----"),
    "host": Colour(light="#d07c00", dark="#fea620"),
    "launch": Colour(light="#ddb124", dark="#ffe35e", hatch="////"),
    "queue_delay": Colour(light="#70849f", dark="#8497ba", hatch="++++"),
    "dependency": Colour(light="#235fc6", dark="#2147bc", hatch="\\\\\\\\"),
    "unknown": Colour(light="#b7b7ba", dark="#4b4c4e", hatch="xxxx"),
}
"""Of each cause of idle time, in the order of spec §3."""

CLASSES: Final[Mapping[str, Colour]] = {
    "compute": Colour(light="#44ab80", dark="#57c69f"),
    "communication": Colour(light="#8e4088", dark="#9f518d", hatch="////"),
    "copy": Colour(light="#43c3fd", dark="#9dd6fd", hatch="\\\\\\\\"),
    "memset": Colour(light="#8fdcff", dark="#c9e8fe", hatch="++++"),
    "other": Colour(light="#8c8c8c", dark="#9a9a9a"),
}
"""Of each class of GPU work."""

PAGE: Final[Mapping[str, Colour]] = {
    "background": Colour(light="#ffffff", dark="#16181d"),
    "ink": Colour(light="#1a1a1a", dark="#e8e8e8"),
    "faint": Colour(light="#5f6368", dark="#a3a8b0"),
    "line": Colour(light="#d5d8dc", dark="#3a3f47"),
    "faster": Colour(light="#235fc6", dark="#6d9bf0"),
    "slower": Colour(light="#d07c00", dark="#fea620", hatch="////"),
}
"""Of what surrounds them: background, text, notes, thin lines; and of what got faster or slower."""
