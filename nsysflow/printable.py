"""Text of others, safe to print."""


def printable(text: str) -> str:
    """The text without line breaks and escapes: names come from the profiled program, and must not
    control a terminal."""
    return "".join(letter if letter.isprintable() else "·" for letter in text)
