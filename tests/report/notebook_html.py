"""HTML as a reader sees it."""

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

VOID = ("<br>", "<br/>")


def tree(html: str) -> Element:
    """The HTML as a tree. Each tag that is not closed is an error."""
    return ElementTree.fromstring(html.replace(*VOID))


def words(html: str) -> str:
    """All that can be read, without styles."""
    root = tree(html)
    for style in root.iter("style"):
        style.text = ""
    return " ".join(" ".join(root.itertext()).split())


def boxes(html: str) -> list[Element]:
    """The boxes of pictures, without those of legends."""
    pictures = [
        each for each in tree(f"<div>{html}</div>").iter("svg") if each.get("role") == "img"
    ]
    return [found for each in pictures for found in each.iter("rect")]
