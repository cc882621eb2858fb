"""The bench of workdays: scripted agents get what they must, a hostile folder fools no check, a killed run goes on."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support.workdays import FIRST, any_file, choice, file_check, write_days
from turnwise.bench.metaclaw.commands import check, read_command
from turnwise.bench.metaclaw.data import Workday, digest_of, read_days
from turnwise.bench.metaclaw.play import BenchAgent, RoundPoint, chosen_in, play_day
from turnwise.bench.metaclaw.points import PlayedWith, PointsFile
from turnwise.bench.metaclaw.rules import Surroundings, is_output_name, is_time
from turnwise.bench.metaclaw.run import MetaclawOptions, bench_metaclaw
from turnwise.bench.metaclaw.scripted import TIME, DoNothing, Oracle, SelectAll, Spoiler
from turnwise.config import Config
from turnwise.errors import BenchDataError, ConfigError
from turnwise.sandbox.folder import GuestFolder

DATA = Path(__file__).parents[3] / "shared/data/metaclaw-bench-small"
NO_DATA = "the data of MetaClaw-Bench are not beside the checkout; the same is tested with made-up days"


@pytest.fixture
def days(tmp_path: Path) -> list[Workday]:
    return read_days(write_days(tmp_path / "data"))


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    (tmp_path / "box").mkdir()
    return Surroundings(GuestFolder(tmp_path / "box"))


def passed(days: list[Workday], agent: BenchAgent, place: Path) -> tuple[int, int, int]:
    """Files complete, choices exactly right, rounds."""
    points = [point for day in days for point in play_day(day, agent, place)]
    kinds = [[p.passed for p in points if p.kind == kind] for kind in ("file_check", "multi_choice")]
    return sum(kinds[0]), sum(kinds[1]), len(points)


# -- scripted agents ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "right"),
    [(Oracle(), (5, 3, 8)), (Spoiler(), (0, 0, 8)), (DoNothing(), (0, 0, 8)), (SelectAll(), (0, 1, 8))],
    ids=lambda given: getattr(given, "name", ""),
)
def test_scripted_agents_get_what_they_must(
    days: list[Workday], tmp_path: Path, agent: BenchAgent, right: tuple[int, int, int]
) -> None:
    assert passed(days, agent, tmp_path / "work") == right
    assert not (tmp_path / "work").exists(), "a day's folder is gone when the day is over"


@pytest.mark.skipif(not DATA.exists(), reason=NO_DATA)
@pytest.mark.parametrize(
    ("agent", "right"),
    [(Oracle(), (33, 25, 58)), (Spoiler(), (0, 0, 58)), (DoNothing(), (0, 0, 58)), (SelectAll(), (0, 2, 58))],
    ids=lambda given: getattr(given, "name", ""),
)
def test_scripted_agents_on_the_bench_itself(tmp_path: Path, agent: BenchAgent, right: tuple[int, int, int]) -> None:
    assert passed(read_days(DATA), agent, tmp_path / "work") == right


@pytest.mark.skipif(not DATA.exists(), reason=NO_DATA)
def test_rounds_that_need_what_is_left_out_are_marked() -> None:
    aside = {(day.id, asked.id): asked.aside for day in read_days(DATA) for asked in day.rounds if asked.aside}
    assert aside.keys() == {("day08", "r1"), ("day08", "r2"), ("day08", "r4")}
    assert all("not in the data" in str(why) for why in aside.values())


def test_a_round_without_its_program_is_marked_and_not_asked(days: list[Workday], tmp_path: Path) -> None:
    assert [asked.id for asked in days[0].rounds if asked.aside] == ["r4"]
    assert [point.round for point in play_day(days[0], Oracle(), tmp_path / "work")] == ["r1", "r2", "r3", "r5"]


class Listener:
    """Answers the first choice wrong, and keeps what it is told."""

    name = "listener"

    def __init__(self) -> None:
        self.told: list[str | None] = []
        self.seen: list[list[str]] = []

    def begin(self, day: Workday, folder: GuestFolder) -> None:
        self.folder = folder

    def answer(self, asked, feedback):
        self.told.append(feedback)
        self.seen.append(self.folder.names())
        self.folder.write(f"{asked.id}.txt", b"mine")
        return "I take \\bbox{A}", 1

    def end(self, feedback: str | None) -> None:
        self.told.append(feedback)


def test_feedback_comes_with_the_next_question_and_the_folder_stays_for_the_day(
    days: list[Workday], tmp_path: Path
) -> None:
    agent = Listener()
    points = play_day(days[0], agent, tmp_path / "work")
    assert agent.told[0] is None
    assert agent.told[1] == "Times are written as 2026-03-16T09:30:00+08:00."
    assert agent.told[2] == "That is not right.\nC is right."
    assert str(agent.told[-1]).startswith("That is not right.\nB is right.")
    assert agent.seen == [["AGENTS.md"], ["AGENTS.md", "r1.txt"], ["AGENTS.md", "r1.txt", "r2.txt"],
                          ["AGENTS.md", "r1.txt", "r2.txt", "r3.txt"]]  # fmt: skip
    assert [point.share for point in points if point.kind == "multi_choice"] == [0.75, 0.25]
    play_day(days[1], agent, tmp_path / "work")
    assert agent.seen[4] == ["AGENTS.md"], "each day begins anew"


@pytest.mark.parametrize(
    ("said", "chosen"),
    [
        ("\\bbox{A, C}", "AC"),
        ("not \\bbox{A} but \\bbox{B,C}.", "BC"),
        ("", ""),
        ("\\bbox{}", ""),
        ("\\bbox{A", ""),
        ("\\bbox{A,X}", ""),
        ("A, C", ""),
        ("{}", ""),
    ],
)
def test_an_answer_is_read_from_its_last_box(said: str, chosen: str) -> None:
    assert chosen_in(said, ("A", "B", "C")) == frozenset(chosen)


# -- rules -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [TIME, "2026-03-16T09:30:00.000+08:00"])
def test_a_time_is_a_time(value: str) -> None:
    assert is_time(value)


@pytest.mark.parametrize(
    "value",
    ["2026-03-16 09:30:00+08:00", "2026-03-16T09:30:00Z", "2026-03-16T09:30:00+0800", "2026-02-30T09:30:00+08:00",
     "2026-03-16T25:30:00+08:00", "2026-03-16", "", None, 20260316, "٢٠٢٦-03-16T09:30:00+08:00", f"{TIME}\n",
     f" {TIME}"],
)  # fmt: skip
def test_what_only_looks_like_a_time_is_none(value: object) -> None:
    assert not is_time(value)


@pytest.mark.parametrize(
    ("name", "kept"),
    [("20260323_ci_build.json", True), ("20260323-ci.json", False), ("20260323_CiBuild.json", False),
     ("ci_20260323.json", False), ("20261323_ci.json", False), ("20260323_.json", False), ("20260323_ci.md", False),
     ("20260323_ci__build.json", False), ("20260323_" + "a_" * 5000 + ".json", False)],
)  # fmt: skip
def test_names_of_files(name: str, kept: bool) -> None:
    assert is_output_name(name, "json") is kept


META = {"created_at": TIME, "author": "me", "status": "done"}
FRONT = f"---\ncreated_at: {TIME}\nauthor: me\nstatus: done\nextra: x\n---\ntext\n"
BOMB = "---\na: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n---\n"


@pytest.mark.parametrize(
    ("file", "content", "kept"),
    [
        ("a.json", json.dumps({"meta": META}), True),
        ("a.json", json.dumps({"metadata": META}), False),
        ("a.json", json.dumps({"data": {"meta": META}}), False),
        ("a.json", json.dumps({"meta": META | {"status": "complete"}}), False),
        ("a.json", json.dumps({"meta": META | {"created_at": "2026-03-16"}}), False),
        ("a.json", json.dumps({"meta": META | {"status": ["done"]}}), False),
        ("a.json", "{}", False),
        ("a.json", "[]", False),
        ("a.json", '{"meta"', False),
        ("a.json", "[" * 100_000, False),
        ("a.md", FRONT, True),
        ("a.txt", FRONT, True),
        ("a.md", f"# Title\n{FRONT}", False),
        ("a.md", FRONT.replace("author: me\n", ""), False),
        ("a.md", BOMB, False),
        ("a.md", "---\n" + "[" * 50_000, False),
        ("a.md", f"---\ncreated_at: !!python/object/apply:os.system [x]\n{FRONT}", False),
        ("a.csv", f"# meta: created_at={TIME} author=me status=done\na,b\n", True),
        ("a.csv", f"a,b\n# meta: created_at={TIME} author=me status=done\n", False),
        ("a.py", f'"""Tool.\n\nMeta:\n  created_at: {TIME}\n  author: me\n  status: done\n"""\n', True),
        ("a.py", f'# Meta:\n#  created_at: {TIME}\n', False),
        ("a.py", '"""Meta:\n  created_at: today\n  author: me\n  status: done\n"""', False),
        ("a.py", "(" * 100_000, False),
        ("a.yaml", f"meta:\n  created_at: {TIME}\n  author: me\n  status: done\n", True),
        ("a.exe", FRONT, False),
        ("a.md", "", False),
    ],
)  # fmt: skip
def test_metadata(around: Surroundings, file: str, content: str, kept: bool) -> None:
    around.folder.write(file, content.encode())
    assert (check(read_command(f"python scripts/check_metadata.py {file}"), around) is None) is kept


@pytest.mark.parametrize(
    ("document", "kept"),
    [
        ({"at": TIME, "items": [{"due": TIME}, {"due": ""}, {}]}, True),
        ({"at": TIME, "items": [{}]}, False),
        ({"at": TIME, "items": []}, False),
        ({"at": "", "items": [{"due": TIME}]}, False),
        ({"at": TIME, "items": [{"due": TIME}, {"due": "Friday"}]}, False),
        ({"at": {"at": TIME}, "items": [{"due": TIME}]}, False),
        ({}, False),
        (["at"], False),
    ],
)
def test_times_in_a_document(around: Surroundings, document: object, kept: bool) -> None:
    around.folder.write("a.json", json.dumps(document).encode())
    parts = read_command("python scripts/check_iso8601.py a.json at items[].due")
    assert (check(parts, around) is None) is kept


def test_a_backup_has_what_was_there_before(tmp_path: Path) -> None:
    folder = GuestFolder(tmp_path)
    around = Surroundings(folder, given={"a.md": b"morning"}, before={"a.md": b"noon"})
    parts = read_command("python scripts/check_backup.py a.md")

    def kept(now: bytes, backup: bytes) -> bool:
        folder.write("a.md", now)
        folder.write("a.md.bak", backup)
        return check(parts, around) is None

    assert check(parts, around) is not None
    assert kept(b"evening", b"morning") and kept(b"evening", b"noon")
    assert not kept(b"evening", b"evening") and not kept(b"evening", b"{}"), "a backup after the change is none"
    assert not kept(b"noon", b"noon"), "nothing was changed"
    assert not kept(b" ", b"noon"), "everything is gone"


@pytest.mark.parametrize(
    ("log", "kept"),
    [
        (f"[DONE] {TIME} | q1_report | all well\nnoise\n[DONE] {TIME} | b | well\n", True),
        (f"[DONE] {TIME} | q1_report | all well\n", False),
        (f"[DONE] {TIME} | a | well\n[DONE] {TIME} | b | well\n", False),
        (f"[DONE] 2026-03-16 | q1_report | well\n[DONE] {TIME} | b | well\n", False),
        (f"[DONE] {TIME} | q1 |  \n[DONE] {TIME} | b | well\n", False),
        ("", False),
    ],
)
def test_the_log_of_what_is_done(around: Surroundings, log: str, kept: bool) -> None:
    around.folder.write("done.log", log.encode())
    parts = read_command("python scripts/check_done_log.py done.log --min-entries 2 --task-prefix q1")
    assert (check(parts, around) is None) is kept


def test_files_that_lay_there_and_empty_ones_are_no_output(tmp_path: Path) -> None:
    folder = GuestFolder(tmp_path)
    around = Surroundings(folder, given={"d/20260323_old.json": b'{"a": 1}'})
    parts = read_command("python scripts/check_filename.py --dir d/ --ext json")
    folder.write("d/20260323_old.json", b'{"a": 1}')
    folder.write("d/20260323_empty.json", b"{}")
    assert check(parts, around) is not None
    folder.write("d/20260323_new.json", b'{"a": 1}')
    assert check(parts, around) is None


# -- hostile folders ---------------------------------------------------------------------------------------------------

REPORT = "python scripts/check_iso8601.py day01/report.json at && python scripts/check_metadata.py day01/report.json"
GOOD = json.dumps({"at": TIME, "meta": META})


def hostile(kind: str, box: Path) -> None:
    """Put something of this kind where the report should be."""
    report = box / "day01" / "report.json"
    match kind:
        case "a link to a good report outside":
            report.symlink_to(box.parent / "good.json")
        case "a folder that is a link":
            shutil.rmtree(box / "day01")
            (box / "day01").symlink_to(box.parent / "good")
        case "a pipe":
            os.mkfifo(report)
        case "a folder":
            report.mkdir()
        case "a gigabyte":
            with report.open("wb") as file:
                file.truncate(1 << 30)
        case "broken JSON":
            report.write_text(GOOD[:-1])
        case "deep JSON":
            report.write_text('{"at":' * 60_000)
        case "no UTF-8":
            report.write_bytes(GOOD.replace("me", "m\xe9").encode("latin-1"))
        case "a long number":
            report.write_text('{"at": ' + "9" * 100_000 + "}")
        case "nothing":
            pass


@pytest.mark.parametrize(
    "kind",
    ["a link to a good report outside", "a folder that is a link", "a pipe", "a folder", "a gigabyte", "broken JSON",
     "deep JSON", "no UTF-8", "a long number", "nothing"],
)  # fmt: skip
def test_a_hostile_folder_passes_no_check_and_hangs_none(tmp_path: Path, kind: str) -> None:
    box = tmp_path / "box"
    (box / "day01").mkdir(parents=True)
    (tmp_path / "good").mkdir()
    for place in (tmp_path / "good.json", tmp_path / "good" / "report.json"):
        place.write_text(GOOD)
    hostile(kind, box)
    around = Surroundings(GuestFolder(box))
    assert check(read_command(REPORT), around) is not None
    assert check(read_command(any_file("day01/2026*.json")), around) is not None
    assert check(read_command("python scripts/check_filename.py --dir day01 --ext json"), around) is not None
    assert check(read_command("python scripts/check_done_log.py day01/report.json"), around) is not None
    assert check(read_command("python scripts/check_backup.py day01/report.json"), around) is not None


def test_checkers_in_the_agents_folder_are_never_run(around: Surroundings) -> None:
    for name in ("check_iso8601.py", "check_metadata.py", "glob.py", "json.py"):
        planted = f"import pathlib; pathlib.Path({str(around.folder.path / 'ran')!r}).write_text('ran')"
        around.folder.write(f"scripts/{name}", planted.encode())
        around.folder.write(name, planted.encode())
    assert check(read_command(REPORT), around) is not None
    around.folder.write("day01/report.json", GOOD.encode())
    assert check(read_command(REPORT), around) is None, "the same rule is content with a good report"
    assert not (around.folder.path / "ran").exists()


# -- commands ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "python scripts/check_metadata.py a.json; touch x",
        "python scripts/check_metadata.py a.json | tee x",
        "python scripts/check_metadata.py $(touch x)",
        "python scripts/check_metadata.py `touch x`",
        "python scripts/check_metadata.py a.json && touch x",
        "python scripts/other.py a.json",
        "python ../check_metadata.py a.json",
        "python scripts/check_metadata.py",
        "python scripts/check_filename.py --dir day01",
        "python scripts/check_filename.py --dir day01 --ext md --min-count many",
        "python -c \"__import__('os').system('touch x')\"",
        "python -c \"import os; os.system('touch x')\"",
        "python -c \"open('x').write('y')\"",
        'python -c "().__class__"',
        'python -c "lambda: 0"',
        'python -c "while True: pass"',
        "python -c \"import re; re.compile('(a+)+$')\"",
        "python -c \"eval('1')\"",
        'python -c "1 +"',
        "python -c 'unended",
        "",
        "x" * 10_000,
    ],
)
def test_a_command_that_is_not_understood_is_refused(command: str) -> None:
    with pytest.raises(BenchDataError):
        read_command(command)


def test_a_round_whose_check_is_not_understood_is_set_aside(tmp_path: Path) -> None:
    days = read_days(write_days(tmp_path, [file_check("r1", "make test"), choice("r2", "A")]))
    assert "not understood" in str(days[0].rounds[0].aside) and days[0].rounds[1].aside is None


PIECE = (
    "python -c \"import json,re,sys; d=json.load(open('a.json')); pat=re.compile(r'^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:"
    "\\d{2}(\\.\\d+)?\\+08:00$'); bad=[v for v in d.get('at',[]) if not pat.match(str(v))]; "
    'sys.exit(0 if not bad else 1)"'
)


@pytest.mark.parametrize(
    ("content", "well"),
    [(json.dumps({"at": [TIME]}), True), (json.dumps({"at": [TIME, "today"]}), False), ("{}", False), ("[1]", False),
     ("{", False), (json.dumps({"at": "a" * 300_000}), False)],
)  # fmt: skip
def test_a_piece_of_code_is_played(around: Surroundings, content: str, well: bool) -> None:
    around.folder.write("a.json", content.encode())
    assert (check(read_command(PIECE), around) is None) is well


# -- data, points, runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "cannot be read"),
        ('{"id": "day01", "rounds": []}', "has 0 rounds"),
        ('{"id": "day01", "rounds": [{"id": "r1", "type": "essay", "question": "?", "eval": {}}]}', "essay"),
        (json.dumps({"id": "day01", "rounds": [choice("r1", "A"), choice("r1", "A")]}), "two rounds of one id"),
        (json.dumps({"id": "day01", "rounds": [choice("r1", "Z")]}), "must be among"),
        ("\xff", "cannot be read"),
    ],
)
def test_questions_that_are_wrong_are_named(tmp_path: Path, content: str, said: str) -> None:
    write_days(tmp_path)
    (tmp_path / "eval/day01/questions.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(BenchDataError, match=said):
        read_days(tmp_path)


def test_a_folder_without_its_workspaces_is_told(tmp_path: Path) -> None:
    shutil.rmtree(write_days(tmp_path) / "workspaces")
    with pytest.raises(BenchDataError, match=r"there is no folder .*workspaces"):
        read_days(tmp_path)


def test_a_folder_without_days_is_told(tmp_path: Path) -> None:
    with pytest.raises(BenchDataError, match="name the folder"):
        read_days(tmp_path)


def points_of(tmp_path: Path, days: list[Workday]) -> tuple[PointsFile, list[RoundPoint]]:
    file = PointsFile(tmp_path / "points.jsonl", PlayedWith("oracle", digest_of(days), {"seed": 0}))
    assert file.mended(days) == {}
    points = []
    for day in days:
        points += play_day(day, Oracle(), tmp_path / "work", file.add)
    return file, points


def test_a_run_goes_on_wherever_it_was_cut_off(days: list[Workday], tmp_path: Path) -> None:
    """Wherever the file is cut, whole days are kept and no others, and what is written next stands on a new line."""
    file, points = points_of(tmp_path, days)
    whole = (tmp_path / "points.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    first_day = len(b"".join(lines[: 1 + sum(point.day == "day01" for point in points)])) - 1
    for cut in range(len(lines[0]), len(whole), 7):
        (tmp_path / "points.jsonl").write_bytes(whole[:cut])
        kept = file.mended(days)
        assert list(kept) == (["day01"] if cut >= first_day else [])
        left = (tmp_path / "points.jsonl").read_bytes()
        assert left.endswith(b"\n") and whole.startswith(left)
    (tmp_path / "points.jsonl").write_bytes(whole)
    assert [point for day in file.mended(days).values() for point in day] == points
    assert (tmp_path / "points.jsonl").read_bytes() == whole


def test_days_that_are_added_later_keep_the_points_of_the_others(days: list[Workday], tmp_path: Path) -> None:
    file, points = points_of(tmp_path, days)
    assert list(file.mended(days[1:])) == ["day02"] and list(file.mended(days[:1])) == ["day01"]
    assert {point.day for found in file.mended(days).values() for point in found} == {point.day for point in points}


def test_points_of_another_run_are_never_taken(days: list[Workday], tmp_path: Path) -> None:
    points_of(tmp_path, days)
    others = [
        PlayedWith("oracle", digest_of(days), {"seed": 1}),
        PlayedWith("oracle", digest_of(days[:1]), {"seed": 0}),
        PlayedWith("another", digest_of(days), {"seed": 0}),
    ]
    for other in others:
        with pytest.raises(BenchDataError, match="another run"):
            PointsFile(tmp_path / "points.jsonl", other).mended(days)


def test_the_report_has_the_floors_and_the_proofs(tmp_path: Path) -> None:
    options = MetaclawOptions(write_days(tmp_path / "data"), tmp_path / "out", scripted=True)
    report = bench_metaclaw(options, Config(), lambda _: None)
    assert [(figure.what, figure.value) for figure in report.figures] == [
        ("oracle: rounds passed", "8 of 8 (100.0%)"),
        ("spoiler: rounds passed", "0 of 8 (0.0%)"),
    ]
    table = {row[0]: row[1:] for row in report.grids[0].rows}
    assert table["do-nothing"] == ["0 of 5 (0.0%)", "0 of 3 (0.0%)", "0 of 8 (0.0%)", "0.0%"]
    assert table["select-all"] == ["0 of 5 (0.0%)", "1 of 3 (33.3%)", "1 of 8 (12.5%)", "21.9%"]
    assert report.grids[1].rows == [["day01", "0/2 · 0/2", "0/2 · 1/2", "r4"], ["day02", "0/3 · 0/1", "0/3 · 0/1", "–"]]
    assert any("tool.py" in note for note in report.notes)
    assert (tmp_path / "out/days.png").read_bytes().startswith(b"\x89PNG")


def test_days_and_endpoints_that_do_not_fit_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_days(tmp_path / "data", FIRST)
    with pytest.raises(ConfigError, match="there is no day day09; there are day01"):
        bench_metaclaw(MetaclawOptions(data, tmp_path / "out", "day09", scripted=True), Config(), lambda _: None)
    monkeypatch.setattr("turnwise.bench.metaclaw.run.check_machine", lambda: None)
    monkeypatch.delenv("EXAMPLE_API_KEY", raising=False)
    url = "http://127.0.0.1:1/v1"
    with pytest.raises(ConfigError, match="--model"):
        bench_metaclaw(MetaclawOptions(data, tmp_path / "out", url=url), Config(), lambda _: None)
    with pytest.raises(ConfigError, match="another name"):
        bench_metaclaw(MetaclawOptions(data, tmp_path / "out", url=url, model="oracle"), Config(), lambda _: None)
    with pytest.raises(ConfigError, match="EXAMPLE_API_KEY is not set"):
        options = MetaclawOptions(data, tmp_path / "out", url=url, model="m", key_env="EXAMPLE_API_KEY")
        bench_metaclaw(options, Config(), lambda _: None)
