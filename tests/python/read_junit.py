"""Reads a JUnit report with Python's own XML parser and prints its counts."""

import json
import sys
import xml.etree.ElementTree as tree

suites = tree.parse(sys.argv[1]).getroot()
failures = {}
cases = 0
for suite in suites.iter("testsuite"):
    own = suite.findall("testcase")
    cases += len(own)
    assert int(suite.get("tests")) == len(own)
    assert int(suite.get("failures")) == sum(1 for case in own if case.find("failure") is not None)
    assert int(suite.get("skipped")) == sum(1 for case in own if case.find("skipped") is not None)
    for case in own:
        found = case.findall("failure")
        if found:
            failures[f"{case.get('classname')}/{case.get('name')}"] = len(found)
print(json.dumps({"cases": cases, "failures": failures}))
