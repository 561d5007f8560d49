"""Source lines as people read them."""

from nsysflow.report.source_lines import line_at


def test_host_code_is_before_the_line_of_the_launch_after_it() -> None:
    assert line_at("host", "", "train.py:42 in step") == "before train.py:42"
    assert line_at("sync", "cudaStreamSynchronize", "a.py:1 in f") == "a.py:1 in f"
    assert line_at("host", "", "") == ""


def test_a_line_without_a_function_stays_as_it_is() -> None:
    assert line_at("host", "", "train.py:42") == "before train.py:42"
