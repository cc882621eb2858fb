"""Runs a package's tests and writes how each ended. Its text is put into the sandbox; nothing imports it.

Nothing that it writes is believed by itself: code of an agent runs in the same process.
"""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
ARGUMENTS = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "-o", "required_plugins=", "--tb=short", "-W", "ignore"]


class Recorder:
    def __init__(self, results):
        self.results, self.ended = results, {}

    def pytest_runtest_logreport(self, report):
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = getattr(crash, "message", None) or str(report.longrepr)
            self.ended[report.nodeid] = ("failed", said.strip().split("\n")[0][:200])
        elif report.when == "call" and report.passed and report.nodeid not in self.ended:
            self.ended[report.nodeid] = ("passed", "")
        if report.when == "teardown" and report.nodeid in self.ended:
            how, said = self.ended[report.nodeid]
            self.results.write(json.dumps([report.nodeid, how, said]) + "\n")


def main():
    with open(os.path.join(HERE, "asked.json")) as file:  # noqa: PTH118, PTH123
        asked = json.load(file)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.chdir(os.path.join(HERE, "repository"))  # noqa: PTH118
    sys.path[:0] = [asked["pytest"]]
    sys.path += [os.path.abspath(each) for each in asked["path"]]  # noqa: PTH100
    import pytest

    with open(os.path.join(HERE, "results.jsonl"), "w") as results:  # noqa: PTH118, PTH123
        pytest.main([*ARGUMENTS, "--continue-on-collection-errors", *asked["tests"]], plugins=[Recorder(results)])


if __name__ == "__main__":
    main()
