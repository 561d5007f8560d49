"""Names that reports hold, and what may be printed of them."""

import json

from nsysflow.base.names import printable_json


def test_json_holds_no_letter_that_controls_a_terminal_and_reads_the_same() -> None:
    names = [chr(number) for number in range(0x20, 0x100)]
    text = printable_json(json.dumps(names, ensure_ascii=False))
    assert text.isprintable() or {*filter(lambda each: not each.isprintable(), text)} == {
        "\xa0",
        "\xad",
    }
    assert json.loads(text) == names
