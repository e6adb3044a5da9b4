"""Takes from a process, for good, what strangers' code must not do: write, connect, reach other processes.

Linux has three means, and each is used where the kernel has it. Landlock limits which files are read, written and
executed. A seccomp filter rejects system calls: sockets of every kind, and those that change files' modes, owners and
times, which Landlock lets pass. Namespaces of users, processes, networks and IPC hide other processes, and the first
process of such a namespace takes all others with it when it ends. Sources: landlock(7), seccomp(2), namespaces(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)

_NAMESPACES = 0x10000000 | 0x20000000 | 0x40000000 | 0x08000000  # CLONE_NEWUSER, NEWPID, NEWNET and NEWIPC
_DEATH_SIGNAL, _NO_NEW_PRIVILEGES, _SECCOMP, _SUBREAPER, _FILTER = 1, 38, 22, 36, 2  # of prctl
_SIGKILL = 9

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # Landlock's system calls, of every architecture
_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_TRUNCATE, _CONTROL = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _CONTROL
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}  # by the version that has them
_NETWORK_VERSION, _SCOPE_VERSION = 4, 6

# System calls by their numbers on x86-64 and on AArch64. Those of modes and owners do nothing, so that programs which
# set them for their own files go on.
_IGNORED = {
    "chmod": (90, 52),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, 55),
    "fchown": (93, 55),
    "lchown": (94, 55),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
}
_REJECTED = {
    "socket": (41, 198),
    "io_uring_setup": (425, 425),  # which could open sockets by itself
    "utime": (132, 88),
    "utimes": (235, 88),
    "futimesat": (261, 88),
    "utimensat": (280, 88),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "unshare": (272, 97),
    "open_by_handle_at": (304, 265),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
}
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # the column above, and AUDIT_ARCH
_X32 = 0x40000000  # the bit of x86-64's other numbers for the same calls


def is_private(folder: Path) -> bool:
    """Whether a folder is, or has in it, the user's home or everybody's temporary folder, which no project is."""
    return any(each.resolve().is_relative_to(folder) for each in (Path.home(), Path("/tmp")))


def enter_namespaces() -> bool:
    """Puts the process's next children into namespaces of their own; returns whether the kernel allows it.

    The process must have one thread. Its user and group stay the same, without power over anything outside.
    """
    user, group = os.getuid(), os.getgid()
    if _LIBC.unshare(_NAMESPACES):
        return False
    with contextlib.suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def die_with_parent(parent: int) -> None:
    """Ends the process when its parent ends. parent: its id, as the parent sees it."""
    _LIBC.prctl(_DEATH_SIGNAL, _SIGKILL, 0, 0, 0)
    if os.getppid() not in (parent, 0):  # it ended before; 0 is a parent outside of the namespace
        os._exit(1)


def adopt_orphans() -> None:
    """Makes the process the parent of those of its descendants whose parents end."""
    _LIBC.prctl(_SUBREAPER, 1, 0, 0, 0)


def limit(file_bytes: int, data_bytes: int | None) -> None:
    """Limits the bytes of each file that is written and of private memory beyond what the process has."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    if data_bytes is not None:
        status = Path("/proc/self/status").read_text()
        own = int(status.partition("VmData:")[2].split()[0]) << 10
        resource.setrlimit(resource.RLIMIT_DATA, (own + data_bytes, own + data_bytes))


def reduce_environment(kept: dict[str, str]) -> None:
    """Replaces the environment, in Python and in the block of memory that the kernel wrote it to."""
    os.environ.clear()
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    first, last = int(fields[47]), int(fields[48])  # env_start and env_end of proc_pid_stat(5)
    if 0 < first < last:
        ctypes.memset(first, 0, last - first)
    os.environ.update(kept)


def close_files(*kept: int) -> None:
    """Closes all open files but these; what is read and printed goes nowhere."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def restrict(readable: Iterable[Path], writable: Iterable[Path]) -> list[str]:
    """Applies Landlock and the filter of system calls, and drops all privileges; returns what the kernel lacks.

    readable: files and folders that may be read and executed. writable: folders in which everything may be done.
    """
    _LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    lacks = []
    if not _restrict_files(readable, writable):
        lacks.append("Landlock")
    if not _filter_calls():
        lacks.append("seccomp")
    _drop_capabilities()
    return lacks


def _restrict_files(readable: Iterable[Path], writable: Iterable[Path]) -> bool:
    version = _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return False
    rights = next(mask for least, mask in reversed(_RIGHTS.items()) if version >= least)
    attributes = [rights, *([3] * (version >= _NETWORK_VERSION)), *([3] * (version >= _SCOPE_VERSION))]
    given = struct.pack(f"<{len(attributes)}Q", *attributes)
    rules = _LIBC.syscall(_CREATE_RULESET, given, ctypes.c_size_t(len(given)), 0)
    if rules < 0:
        return False
    reading = _EXECUTE | _READ | _LIST
    allowed = [*((path, reading) for path in readable), *((path, rights & ~_CONTROL) for path in writable)]
    for path, mask in [*allowed, (Path(os.devnull), _READ | _WRITE | _TRUNCATE)]:
        with contextlib.suppress(OSError):  # what is not there is not used either
            file = os.open(path, os.O_PATH | os.O_CLOEXEC)
            if not stat.S_ISDIR(os.fstat(file).st_mode):
                mask &= _OF_FILES
            _LIBC.syscall(_ADD_RULE, rules, 1, struct.pack("<Qi", mask & rights, file), 0)
            os.close(file)
    applied = _LIBC.syscall(_RESTRICT_SELF, rules, 0) == 0
    os.close(rules)
    return applied


def _filter_calls() -> bool:
    if platform.machine() not in _MACHINES:
        return False
    column, architecture = _MACHINES[platform.machine()]
    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06  # of classic BPF: words of seccomp_data, jumps, return
    reject, ignore, allow = 0x00050001, 0x00050000, 0x7FFF0000  # the first with EPERM, the second with 0
    steps = [(load, 0, 0, 4), (equal, 1, 0, architecture), (end, 0, 0, reject), (load, 0, 0, 0)]
    steps += [(at_least, 0, 1, _X32), (end, 0, 0, reject)]
    for calls, result in ((_IGNORED, ignore), (_REJECTED, reject)):
        for number in {each[column] for each in calls.values()}:
            steps += [(equal, 0, 1, number), (end, 0, 0, result)]
    steps.append((end, 0, 0, allow))
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(code))
    return bool(_LIBC.prctl(_SECCOMP, _FILTER, program, 0, 0) == 0)


def _drop_capabilities() -> None:
    header, none = struct.pack("<Ii", 0x20080522, 0), bytes(24)  # version 3, of this process
    _LIBC.capset(header, none)
