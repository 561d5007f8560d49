from nsysflow.report.text import summary
from tests.report.handmade import MS, device, results, valued, with_findings


def test_no_name_and_no_finding_can_become_markup() -> None:
    row = {"path": "<b>a|b\n*c*</b> _d_ e_f", "depth": 1, "busy_ns": MS}
    page = summary(results(accounting=[device(MS)], phases=[row]))
    assert r"| \<b\>a\|b·\*c\*\</b\> \_d\_ e_f |" in page
    page = summary(with_findings(valued(title="</details> | *x*", change=("`if` <b>",))))
    assert r"First: save 5.00 ms (10 %): \</details\> \| \*x\*" in page
    assert r"| \</details\> \| \*x\* | \`if\` \<b\> |" in page


def test_without_gpu_work_it_says_so_and_ends() -> None:
    page = summary(results())
    assert page.startswith("# run.sqlite\n\n**No GPU work")
    assert "##" not in page
    assert "<details>" not in page
