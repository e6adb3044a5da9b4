"""What `check` reports of files as they are published: reports.txt has each file, and what is said of it.

A case of reports.txt has a name (#), options ($), files with their lines indented (@; the first is checked), and the
report (>): the beginning of the headline, the launch, sizes, faults, and each code with its values. A file
that is like that of another case has only the lines that are replaced (-), and what takes their place (+). One that is
from a folder of the repo is read there.

`python -m tests.experiments.check.test_reports` writes the reports again: read what changed in them.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from experiments.check import cost
from experiments.check.report import Word
from experiments.records.request import UsageError
from gemm_ref.build import CACHE, digest, write_whole
from tests.experiments.check.helpers import check_file
from tests.imports import ROOT

FILE = Path(__file__).with_name("reports.txt")


class Case(NamedTuple):
    """The files of a project, the options of a check, and the lines of its report."""

    written: list[str]  # its lines of reports.txt, without the report
    options: list[str]
    files: dict[str, str]
    report: list[str]

    def check(self, project: Path) -> list[str]:
        """Returns the lines of the report on the first file, after writing all files to a folder.

        Python files are where they were in earlier runs, since what Triton has compiled is cached by file.
        """
        if next(iter(self.files)).endswith(".py"):
            project = CACHE / "checked-by-tests" / digest(*self.files.values())
        for name, text in self.files.items():
            write_whole(project / name, text)
        given = [option.split("=", 1) for option in self.options]
        sizes = [value for key, value in given if key == "size"]
        options = {key: (value,) if key == "define" else value for key, value in given if key != "size"}
        try:
            found = check_file(project / next(iter(self.files)), sizes, **options)
        except UsageError as error:
            first, _, rest = str(error).partition("\n")
            after = rest.rpartition("\n\n")[2].splitlines()  # what nvcc says ends with an empty line and a count
            return [f"refused: {line}" for line in (first, *after) if "detected in the compilation" not in line]
        head = "faulty" if found.word is Word.FAULTY else re.split("; elsewhere|: right", found.headline)[0]
        messages = [*found.why, *found.limits, *found.notes]
        values = [json.dumps({key: str(value) for key, value in each.values.items()}) for each in messages]
        said = [f"{each.code.name} {text}" for each, text in zip(messages, values, strict=True)]
        faults = sorted({f"{fault.kind.name} at {fault.file}:{fault.line}" for fault in found.faults})
        how = re.sub(" at 0x[0-9a-f]+", "", found.how)  # of an object
        return [head, how, f"right at {found.right_runs or 'no size'}", *faults, *said]


def read_cases() -> dict[str, Case]:
    """Returns the cases of reports.txt by name."""
    cases: dict[str, Case] = {}
    for block in re.split(r"^# ", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name, *lines = block.splitlines()
        files: dict[str, list[str]] = {}
        for line in lines:
            if line.startswith("@ "):
                files[line[2:]] = []
            elif not line.startswith(("$ ", "> ")):
                files[[*files][-1]].append(line)
        options, report = ([line[2:] for line in lines if line.startswith(sign)] for sign in ("$ ", "> "))
        texts = dict(read_file(head, body, cases) for head, body in files.items())
        cases[name] = Case([line for line in lines if not line.startswith("> ")], options, texts, report)
    return cases


def read_file(head: str, body: list[str], cases: dict[str, Case]) -> tuple[str, str]:
    """Returns the path and the text of a file: its own lines, or those of another case's file with replaced ones."""
    if " from " in head:
        name, _, folder = head.partition(" from ")
        return name, (ROOT / folder / name).read_text(encoding="utf-8")
    path, _, other = head.partition(" like ")
    if not other:
        return path, "".join(f"{line[2:]}\n" for line in body)
    text = next(iter(cases[other].files.values()))
    for lines in re.findall(r"((?:-.*\n)+)((?:\+.*\n)*)", "".join(f"{line}\n" for line in body)):
        old, new = (re.sub("^[-+] ?", "", part, flags=re.MULTILINE) for part in lines)
        assert old in text, f"{other} has no {old}"
        text = text.replace(old, new, 1)
    return path, text


CASES = read_cases()


@pytest.mark.parametrize("name", CASES, ids=lambda name: name.partition(":")[0])
def test_the_report_on_a_file(uncounted, tmp_path, name):
    assert CASES[name].check(tmp_path / "project") == CASES[name].report


def main() -> None:
    """Writes reports.txt again, with the reports of today."""
    cost.count = lambda subject, problem, quote: ([], [], "")
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, case) in enumerate(CASES.items()):
            report = case.check(Path(folder) / str(number) / "project")
            lines += [f"# {name}", *case.written, *(f"> {line}" for line in report)]
    FILE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
