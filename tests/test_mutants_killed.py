"""What `make mutate` says in the end: of the changes that were tried, how many a test noticed."""

from __future__ import annotations

import subprocess
import sys

from tests.support.mutants_killed import table, tried

RESULTS = """\
    turnwise.training.losses.x_centred__mutmut_1: killed
    turnwise.training.losses.x_centred__mutmut_2: survived
    turnwise.training.losses.x_fold_tail__mutmut_1: timeout
    turnwise.training.losses.x_fold_tail__mutmut_2: killed
    turnwise.judges.parsing.xǁReaderǁread__mutmut_1: no tests
    turnwise.judges.parsing.xǁReaderǁread__mutmut_2: segfault
    turnwise.judges.parsing.xǁReaderǁread__mutmut_3: not checked
    turnwise.judges.parsing.xǁReaderǁread__mutmut_4: skipped
"""
"""As mutmut 3.8.1 prints them."""


def test_each_module_has_its_share_and_all_have_one_together() -> None:
    assert table(tried(RESULTS.splitlines())) == [
        "turnwise.judges.parsing: 0 of 2 killed (0.0%), 0 survived, 1 without a test, 1 could not be played",
        "turnwise.training.losses: 3 of 4 killed (75.0%), 1 survived",
        "together: 3 of 6 killed (50.0%), 1 survived, 1 without a test, 1 could not be played",
    ]


def test_only_what_was_asked_for_is_counted() -> None:
    assert list(tried(RESULTS.splitlines(), "turnwise.judges.*")) == [
        "turnwise.judges.parsing.xǁReaderǁread__mutmut_1",
        "turnwise.judges.parsing.xǁReaderǁread__mutmut_2",
    ]


def test_where_nothing_was_tried_no_share_is_made_up() -> None:
    assert table(tried(["    turnwise.a.x_b__mutmut_1: not checked"])) == ["no change was tried"]


def test_the_command_names_what_was_not_killed_before_the_counts() -> None:
    command = [sys.executable, "-m", "tests.support.mutants_killed", "turnwise.training.losses*"]
    done = subprocess.run(command, input=RESULTS, capture_output=True, encoding="utf-8", timeout=60, check=True)
    assert done.stdout.splitlines() == [
        "turnwise.training.losses.x_centred__mutmut_2: survived",
        "turnwise.training.losses: 3 of 4 killed (75.0%), 1 survived",
        "together: 3 of 4 killed (75.0%), 1 survived",
    ]
