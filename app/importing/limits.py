"""What the child process of an import may do: compute, read, and write into its staging folder.

- No network: a filter of system calls (seccomp) denies sockets but those of Unix, any connecting, and io_uring.
- No writing elsewhere, where the kernel has Landlock.
- Memory, sizes of files, core dumps: resource limits.
- It is the first to end when memory runs out, and ends with its parent.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# linux/prctl.h and linux/seccomp.h
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 22, 38, 2
_RET_ALLOW, _RET_ERRNO, _RET_KILL = 0x7FFF0000, 0x00050000, 0x80000000

# linux/bpf_common.h: load a word at a place, jump if equal or greater or equal, return.
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06

# Places of the system call's number, the architecture and the first argument in seccomp_data (little-endian).
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16

#: System calls from here on are of x86_64's other interface, x32.
_X32 = 0x40000000

#: Same numbers on all architectures.
_IO_URING_SETUP = 425


#: linux/landlock.h: rights to write a file, remove, make anything, move (from the second version), truncate (third).
_WRITE_FILE = 1 << 1
_WRITES = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
_MOVE, _TRUNCATE = 1 << 13, 1 << 14

#: Landlock's system calls: the same numbers on all architectures. `create` tells its version for this flag.
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT, _TELL_VERSION, _PATH_BENEATH = 444, 445, 446, 1, 1


class _Machine(NamedTuple):
    """An architecture: its AUDIT_ARCH, and the numbers of system calls."""

    architecture: int
    socket: int
    connect: int


_MACHINES = {"x86_64": _Machine(0xC000003E, 41, 42), "aarch64": _Machine(0xC00000B7, 198, 203)}


def limit_this_process(memory_bytes: int) -> None:
    """Sets the limits of resources, which hold from now on."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_DATA, memory_bytes)
    _limit(resource.RLIMIT_FSIZE, memory_bytes)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with suppress(OSError):
        os.nice(5)


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def cut_network() -> str:
    """Denies sockets to this process and all that it starts. Returns why that is not possible; empty if it is done."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return f"there is no filter of system calls for {platform.machine()}"
    libc = ctypes.CDLL(None, use_errno=True)
    program = _filter(machine)
    text = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(text))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, described):
        return f"the kernel takes no filter of system calls: {os.strerror(ctypes.get_errno())}"
    return ""


def _filter(machine: _Machine) -> bytes:
    """The filter, a program of BPF: jumps say how many instructions they skip."""
    denied = _RET_ERRNO | errno.EACCES
    instructions = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, machine.architecture),
        (_RETURN, 0, 0, _RET_KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, denied),
        (_EQUAL, 1, 0, machine.connect),
        (_EQUAL, 0, 1, _IO_URING_SETUP),
        (_RETURN, 0, 0, denied),
        (_EQUAL, 0, 3, machine.socket),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 1, 0, int(socket.AF_UNIX)),
        (_RETURN, 0, 0, denied),
        (_RETURN, 0, 0, _RET_ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *each) for each in instructions)


def write_only_below(folder: Path) -> None:
    """Lets this process, and all that it starts, write below this folder and to devices alone, where Landlock is."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_LANDLOCK_CREATE, None, 0, _TELL_VERSION)
    if version < 1:
        return
    rights = _WRITES | (_MOVE if version > 1 else 0) | (_TRUNCATE if version > 2 else 0)
    rules = libc.syscall(_LANDLOCK_CREATE, struct.pack("Q", rights), 8, 0)
    if rules < 0:
        return
    for place, allowed in ((folder, rights), (Path("/dev"), _WRITE_FILE)):
        beneath = os.open(place, os.O_PATH)
        libc.syscall(_LANDLOCK_ADD, rules, _PATH_BENEATH, struct.pack("=Qi", allowed, beneath), 0)
        os.close(beneath)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.syscall(_LANDLOCK_RESTRICT, rules, 0)
    os.close(rules)
