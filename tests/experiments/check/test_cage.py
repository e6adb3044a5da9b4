"""What strangers' code may not do while it is checked: attacks, each harmless and bounded by itself."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.check import cage
from experiments.check.cage import confine
from experiments.check.cuda.host_code import recorder
from experiments.records.request import UsageError
from tests.experiments.check.helpers import MULTIPLY, check_file
from tests.experiments.check.test_reports import CASES

pytest.importorskip("triton")
SOUND = CASES["sound in Triton"].files["kernel.py"]
SLEEP = "71.25"  # seconds that children of attacks sleep: how they are found


@pytest.fixture
def confined(tmp_path_factory):
    """Skips where the kernel has not all that confines a process."""
    one = cage.Cage("nothing", tmp_path_factory.mktemp("scratch"))
    one.end()
    if one.missing:
        pytest.skip(f"this kernel has no {', '.join(one.missing)}")


@pytest.fixture
def attack(tmp_path) -> Callable[[str], str]:
    """`attack(code)`: what a check says of a file that executes this, and says what became of it."""

    def run(code: str) -> str:
        path = tmp_path / "project" / "attack.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"import os, socket, subprocess\nfrom pathlib import Path\n{code}\n", encoding="utf-8")
        with pytest.raises(UsageError) as refused:
            check_file(path)
        assert not [each for each in cage._open if path.name in each.what]
        return str(refused.value)

    return run


def sleepers() -> list[int]:
    """The processes that an attack has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if SLEEP.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def wait_until(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


@pytest.mark.parametrize(
    "code",
    [
        "(Path({0!r}) / 'new').write_text('written')",
        "(Path({0!r}) / 'kept').open('a').write('written')",
        "(Path({0!r}) / 'kept').unlink()",
        "(Path({0!r}) / 'kept').rename('moved')",
        "(Path({0!r}) / 'new').mkdir()",
        "(Path({0!r}) / 'new').symlink_to('kept')",
        "os.truncate(Path({0!r}) / 'kept', 0)",
        "os.utime(Path({0!r}) / 'kept', (1, 1))",
        "os.system('echo written > {0}/new') and os.open('{0}/new', os.O_RDONLY)",
    ],
)
def test_files_outside_are_neither_written_nor_deleted(confined, attack, tmp_path, code):
    kept = tmp_path / "own" / "kept"
    kept.parent.mkdir()
    kept.write_text("kept")
    before = kept.stat()
    said = attack(code.format(str(kept.parent)))
    assert "PermissionError" in said or "FileNotFoundError" in said, said
    assert os.listdir(kept.parent) == ["kept"] and kept.read_text() == "kept"
    assert kept.stat().st_mtime == before.st_mtime


def test_modes_stay_as_they_are(confined, attack, tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("kept")
    kept.chmod(0o640)
    assert "SystemExit" in attack(f"os.chmod({str(kept)!r}, 0o777); raise SystemExit('done')")
    assert kept.stat().st_mode & 0o777 == 0o640


def test_no_connection_and_no_secret(confined, attack, tmp_path, monkeypatch):
    """Neither sockets, nor the environment of this process, its memory's copy of it included, nor private folders."""
    monkeypatch.setenv("SECRET_OF_THE_TEST", "hidden")
    (tmp_path / "private").write_text("hidden")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        assert "PermissionError" in attack(f"socket.create_connection(('127.0.0.1', {port}), 1)")
        with pytest.raises(BlockingIOError):
            server.accept()
    text = attack("raise ValueError('found: ' + str(dict(os.environ)) + open('/proc/self/environ').read())")
    assert "found" in text and "SECRET_OF_THE_TEST" not in text
    assert "PermissionError" in attack(f"open('/proc/{os.getpid()}/environ').read()")
    assert "PermissionError" in attack(f"open({str(tmp_path / 'private')!r}).read()")


@pytest.mark.parametrize("namespaces", [True, False])
def test_children_are_limited_and_end_with_the_check(confined, attack, monkeypatch, namespaces):
    if not namespaces:
        monkeypatch.setattr(confine, "enter_namespaces", lambda: False)
    assert "none" in attack(f"[subprocess.Popen(['sleep', {SLEEP!r}], start_new_session=True) for _ in range(5)]")
    assert wait_until(lambda: not sleepers())
    monkeypatch.setattr(cage, "MAX_PROCESSES", 8)
    code = f"[subprocess.Popen(['sleep', {SLEEP!r}], start_new_session=True) for _ in range(20)][0].wait()"
    assert "started more than 8 processes" in attack(code)
    assert wait_until(lambda: not sleepers())


def test_children_end_with_the_checker(confined, tmp_path):
    """Also where it is killed."""
    checker = os.fork()
    if not checker:
        cage.Cage("x", tmp_path).call(cage.run_program, ["sleep", SLEEP], tmp_path, 60.0, tmp_path / "out")
        os._exit(1)
    try:
        assert wait_until(lambda: bool(sleepers()))
    finally:
        os.kill(checker, signal.SIGKILL)
        os.waitpid(checker, 0)
    assert wait_until(lambda: not sleepers())


def test_code_that_cannot_be_confined_runs_if_it_is_trusted(confined, tmp_path, monkeypatch):
    monkeypatch.setattr(confine, "_restrict_files", lambda *_: False)
    monkeypatch.setattr(cage.policy, "trusted", False)
    with cage.session(), pytest.raises(UsageError, match="no Landlock, so it could write to any file; pass --trust"):
        cage.Cage("x", tmp_path)
    with cage.session(trusted=True) as missing:
        assert cage.Cage("x", tmp_path).missing == ["Landlock"] and missing == {"Landlock"}
    assert not cage.policy.trusted


def test_time_and_memory_are_limited(confined, attack, monkeypatch):
    assert "MemoryError" in attack("bytearray(100 << 30)")
    monkeypatch.setattr(cage, "SECONDS", 0.5)
    assert "did not end within 0.5 s" in attack("while True: pass")
    own = cage._resident_bytes(os.getpid())
    monkeypatch.setattr(cage, "SECONDS", 20)
    monkeypatch.setattr(cage, "MAX_BYTES", own + (64 << 20))
    size = own + (256 << 20)
    code = f"import mmap, time\nkept = mmap.mmap(-1, {size})\nfor at in range(0, {size}, 4096): kept[at] = 1\n"
    assert "GiB of memory" in attack(f"{code}time.sleep(9)")


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "raise KeyboardInterrupt", "exit(0)"])
def test_a_file_that_ends_the_process_is_not_sound(confined, invoke, tmp_path, capfd, end):
    """Nor is one that prints a verdict, as its output goes nowhere."""
    path = tmp_path / "project" / "kernel.py"
    path.parent.mkdir()
    path.write_text(f"import os\nprint('kernel.py: sound')\nos.write(1, b'kernel.py: sound')\n{end}\n")
    result = invoke("check", path)
    assert result.exit_code == 2 and result.said and "sound" not in result.said
    assert "sound" not in "".join(capfd.readouterr())


def test_a_patched_checker_finds_the_fault_all_the_same(confined, tmp_path):
    patches = """
import gemm_ref, gemm_ref.correct, gemm_ref.ptx
import experiments.check.checker, experiments.check.report, experiments.check.subject, experiments.check.cage
gemm_ref.checked_run = gemm_ref.correct.checked_run = lambda *_, **__: gemm_ref.Accuracy(0.0, 0.0)
gemm_ref.correct.check = experiments.check.subject.attempt = lambda *_, **__: None
experiments.check.checker.Checker.run = lambda self: self.report
experiments.check.report.Report.word = experiments.check.report.Word.SOUND
experiments.check.cage.Cage.checked = experiments.check.cage.Cage._fail = lambda *_: None
"""
    path = tmp_path / "kernel.py"
    path.write_text(SOUND.replace("tl.store(c_ptr", "acc += 1\n    tl.store(c_ptr", 1) + patches, encoding="utf-8")
    assert not check_file(path, ("33x35x39",)).sound


@pytest.mark.parametrize(
    "answer",
    [
        "[]",
        "['done', {}]",
        "['ask', {'kernel': 7}]",
        "['done', 'x' * 9]",
        "['usage', {'text': '\\x1b[2J sound'}]",
        "['usage', {'text': '\\x1b[2J', 'line': 1}]",
    ],
)
def test_what_is_no_answer_is_refused(confined, attack, answer):
    said = attack(f"import experiments.check.cage as cage\nwhile True: cage._served.send({answer}, [])")
    assert "attack.py" in said or "\N{REPLACEMENT CHARACTER}" in said
    assert "\x1b" not in said


def test_host_code_in_cuda_is_confined(confined, tmp_path, monkeypatch):
    """A static initialiser writes, connects, starts children and never ends; its kernel is judged by its source."""
    monkeypatch.setattr(recorder, "_SECONDS", 0.5)
    marker = tmp_path / "written"
    attacks = f"""
#include <sys/socket.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
static int attack = [] {{
  FILE* file = fopen("{marker}", "w");
  if (file || socket(AF_INET, SOCK_STREAM, 0) >= 0) return 1;
  for (int i = 0; i < 5; ++i) if (!fork()) execlp("sleep", "sleep", "{SLEEP}", nullptr);
  for (;;) pause();
  return 0;
}}();
int main() {{
  float *a, *b, *c;
  multiply<<<dim3(2, 2), dim3(16, 16)>>>(a, b, c, 32, 32, 32);
}}
"""
    path = tmp_path / "project" / "kernel.cu"
    path.parent.mkdir()
    path.write_text(MULTIPLY + attacks, encoding="utf-8")
    check_file(path, ("19x21x5",))
    assert not marker.exists() and wait_until(lambda: not sleepers())


@pytest.mark.parametrize("name", ["{}", "../../elsewhere/secret.txt"])
def test_compilers_read_no_other_files(confined, run_text, tmp_path, name):
    secret = tmp_path / "elsewhere" / "secret.txt"
    secret.parent.mkdir()
    secret.write_text("hidden words of another file\n")
    with pytest.raises(UsageError, match="secret.txt: Permission denied") as refused:
        run_text(f'#include "{name.format(secret)}"\n{MULTIPLY}')
    assert "hidden" not in str(refused.value)
    assert run_text(f'#include "secret.h"\n{MULTIPLY}', include=(str(secret.parent),), files={"../secret.h": ""}).sound


@pytest.mark.parametrize("folder", [".", "own"])
def test_no_home_is_read(confined, tmp_path, monkeypatch, folder):
    """Neither for a file that lies in the home itself, nor for one that imports from far above."""
    home = tmp_path / "home"
    path, key = home / folder / "kernel.py", home / ".ssh" / "key"
    for each in (path, key):
        each.parent.mkdir(parents=True, exist_ok=True)
    key.write_text("hidden words of another file\n")
    monkeypatch.setenv("HOME", str(home))
    path.with_name("beside.py").write_text("import triton\n")
    path.write_text(f"import beside\n{SOUND}")
    assert check_file(path, ("33x35x39",)).sound
    path.write_text(f"if False:\n    from ... import nothing\nopen({str(key)!r}).read()\n")
    with pytest.raises(UsageError, match="PermissionError"):
        check_file(path)
    path = path.with_suffix(".cu")
    path.with_name("same.h").write_text("#pragma once\n")
    path.write_text(f'#include "same.h"\n{MULTIPLY}')
    assert check_file(path, ("19x21x5",)).sound
    path.write_text(f'#include "{os.path.relpath(key, path.parent)}"\n{MULTIPLY}')
    with pytest.raises(UsageError, match="key: Permission denied") as refused:
        check_file(path)
    assert "hidden" not in str(refused.value)


def test_compilers_are_limited(confined, run_text, monkeypatch, tmp_path):
    """In what they print of a header that includes itself twice, in time, and in what they write."""
    with pytest.raises(UsageError, match="(?s)nested depth.*lines more"):
        run_text(f'#include "x.h"\n{MULTIPLY}', files={"src/x.h": '#include "x.h"\n' * 2})
    with pytest.raises(UsageError, match="does not compile"):
        run_text(MULTIPLY, flags=f"-MMD -MF {tmp_path / 'written'}")
    assert not (tmp_path / "written").exists()
    monkeypatch.setattr(cage, "SECONDS", 0.02)
    with pytest.raises(UsageError, match="the compiler of kernel.cu did not end within 0.02 s"):
        run_text(MULTIPLY)


def test_neighbours_that_are_no_text_are_left_out(run_text):
    found = run_text(MULTIPLY, files={"src/._kernel.cu": "\0\0binary", "src/other.cu": '#include "kernel.cu"\n'})
    assert found.sound and "._kernel.cu" in " ".join(map(str, found.notes))


def test_folders_that_a_shell_would_execute_are_refused(tmp_path):
    path = tmp_path / f"`touch {tmp_path.name}-marker`" / "kernel.cu"
    path.parent.mkdir()
    path.write_text(MULTIPLY)
    with pytest.raises(UsageError, match="rename"):
        check_file(path, ("19x21x5",))
    assert not Path(f"{tmp_path.name}-marker").exists()


def test_names_break_no_line_and_no_page(invoke, tmp_path):
    with_newline = tmp_path / "a\nsound.py"
    with_newline.write_text("")
    result = invoke("check", with_newline)
    assert result.exit_code == 2 and "\nsound" not in result.output
    (tmp_path / "x.cu").write_text("__global__ void multiply(\x1b[2Jsound")
    assert "\x1b" not in invoke("check", tmp_path / "x.cu").output
    page, name = tmp_path / "page.html", "'\"><img src=x onerror=alert(1)>.py"
    (tmp_path / name).write_text("'</pre><script>alert(2)</script>'")
    assert invoke("check", tmp_path / name, "--html", page).exit_code == 2
    text = page.read_text(encoding="utf-8")
    assert "<img" not in text and "<script>alert" not in text and "&lt;img" in text
