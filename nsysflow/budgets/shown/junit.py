"""JUnit XML: a test case per budget; an error if it is too noisy to judge, as that fails too."""

import re
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET

from nsysflow.budgets.judging import Judged
from nsysflow.budgets.shown.words import sentence
from nsysflow.compare.captures import Capture

_NOT_XML: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot hold, not even escaped."""

_ELEMENT: Final = {"crossed": "failure", "too noisy": "error"}


def junit_xml(judged: Sequence[Judged], captures: Sequence[Capture]) -> str:
    """The file's text."""
    verdicts = [each.verdict for each in judged]
    counts = {
        "tests": str(len(judged)),
        "failures": str(verdicts.count("crossed")),
        "errors": str(verdicts.count("too noisy")),
    }
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(suites, "testsuite", {"name": "nsysflow check", **counts})
    where = _clean(", ".join(each.name for each in captures))
    for each in judged:
        case = ET.SubElement(suite, "testcase", name=_clean(each.budget.text), classname=where)
        if each.verdict == "within":
            continue
        said = _clean(sentence(each, len(captures)))
        failed = ET.SubElement(case, _ELEMENT[each.verdict], type=each.verdict, message=said)
        failed.text = _clean("\n".join(culprit.what for culprit in each.culprits))
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
