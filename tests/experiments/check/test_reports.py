"""What `check` reports of CUDA files as they are published: reports.txt has each file, and what is said of it.

A case of reports.txt has a name (#), options ($), files with their lines indented (@; the first is checked), and the
report (>): the beginning of the headline, the launch, sizes, the kinds of faults, and each code with its values.

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
from tests.experiments.check.helpers import check_file

FILE = Path(__file__).with_name("reports.txt")


class Case(NamedTuple):
    """The files of a project, the options of a check, and the lines of its report."""

    name: str
    options: list[str]
    files: dict[str, str]
    report: list[str]

    def check(self, folder: Path) -> list[str]:
        """Returns the lines of the report on the first file, after writing all files to a folder."""
        for name, text in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        given = [option.split("=", 1) for option in self.options]
        sizes = [value for key, value in given if key == "size"]
        options = {key: (value,) if key == "define" else value for key, value in given if key != "size"}
        try:
            found = check_file(folder / next(iter(self.files)), sizes, **options)
        except UsageError as error:
            first, _, rest = str(error).partition("\n")
            after = rest.rpartition("\n\n")[2].splitlines()  # what nvcc says ends with an empty line and a count
            return [f"refused: {line}" for line in (first, *after) if "detected in the compilation" not in line]
        head = "faulty" if found.word is Word.FAULTY else re.split("; elsewhere|: right", found.headline)[0]
        messages = [*found.why, *found.limits, *found.notes]
        values = [json.dumps({key: str(value) for key, value in each.values.items()}) for each in messages]
        said = [f"{each.code.name} {text}" for each, text in zip(messages, values, strict=True)]
        right = f"right at {found.right_runs or 'no size'}"
        return [head, found.how, right, *sorted({fault.kind.name for fault in found.faults}), *said]


def read_cases() -> list[Case]:
    """Returns the cases of reports.txt."""
    cases: list[Case] = []
    for line in FILE.read_text(encoding="utf-8").splitlines():
        sign, text = line[:2], line[2:]
        if sign == "# ":
            cases.append(Case(text, [], {}, []))
        elif sign == "$ ":
            cases[-1].options.append(text)
        elif sign == "@ ":
            cases[-1].files[text] = ""
        elif sign == "> ":
            cases[-1].report.append(text)
        else:
            cases[-1].files[[*cases[-1].files][-1]] += f"{text}\n"
    return cases


@pytest.mark.parametrize("case", read_cases(), ids=lambda case: case.name)
def test_the_report_on_a_file(uncounted, tmp_path, case):
    assert case.check(tmp_path / "project") == case.report


def write_cases(cases: list[Case]) -> None:
    """Writes reports.txt with these cases."""
    lines = []
    for case in cases:
        lines += [f"# {case.name}", *(f"$ {option}" for option in case.options)]
        for name, text in case.files.items():
            lines += [f"@ {name}", *(f"  {line}".rstrip() for line in text.splitlines())]
        lines += [f"> {line}" for line in case.report]
    FILE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    cost.count = lambda subject, problem, quote: ([], [], "")
    with tempfile.TemporaryDirectory() as folder:
        projects = [(case, Path(folder) / str(number) / "project") for number, case in enumerate(read_cases())]
        write_cases([case._replace(report=case.check(project)) for case, project in projects])
