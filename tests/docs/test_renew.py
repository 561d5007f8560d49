import pytest

from tests.docs.renew import renewed

PRINTED = "loop · step 3 ms\n\nFindings\n  1  save 2 ms\n\nKernels\n  7 us  add\n  5 us  mul\n"


@pytest.mark.parametrize(
    ("shown", "today"),
    [
        ("loop · step 4 ms\n", PRINTED),  # all of it is shown
        ("loop · step 4 ms\n…\n", "loop · step 3 ms\n…\n"),
        ("…\n  5 us  mul\n", "…\n  5 us  mul\n"),
        ("…\n  1  save 1 ms\n…\n  8 us  add\n…\n", "…\n  1  save 2 ms\n…\n  7 us  add\n…\n"),
    ],
)
def test_a_page_keeps_what_it_leaves_out(shown: str, today: str) -> None:
    assert renewed(shown, PRINTED) == today
