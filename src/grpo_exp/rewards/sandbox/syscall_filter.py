"""A seccomp filter: system calls that honest programs do without and that escape the other limits.

What it refuses, and why:

- new namespaces and mounts: a namespace of its own makes a program root in it, with file systems in memory that no
  limit counts and far more of the kernel to attack;
- anonymous files, System V and POSIX message queues and shared memory: memory that belongs to no process;
- socket families besides Unix and IP: a network namespace does not separate them all (vsock reaches the host);
- looking into other processes, kernel keys, BPF, io_uring and the like: attack surface.

The filter is classic BPF as seccomp(2) and linux/filter.h describe it; the numbers are those of the kernel's tables.
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data, low halves
#: CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET} of linux/sched.h; CLONE_NEWTIME is not settable by clone(2).
_NEW_NAMESPACES = 0x7E020000
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_X32_BIT = 0x40000000


@dataclass(frozen=True, slots=True)
class _Machine:
    """Numbers of one architecture.

    Args:
        token: AUDIT_ARCH_* of linux/audit.h.
        clone: Number of clone(2); its first argument holds the flags.
        socket: Number of socket(2).
        refused: Numbers by name.
    """

    token: int
    clone: int
    socket: int
    refused: dict[str, int]


#: Numbers that all architectures share.
_NEW_CALLS = {
    "pidfd_getfd": 438, "memfd_secret": 447, "io_uring_setup": 425, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsmount": 432, "mount_setattr": 442,
}  # fmt: skip
_MACHINES = {
    "x86_64": _Machine(
        0xC000003E, 56, 41,
        {
            "unshare": 272, "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "ptrace": 101,
            "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "memfd_create": 319, "shmget": 29,
            "msgget": 68, "semget": 64, "mq_open": 240, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
            "keyctl": 250, "add_key": 248, "request_key": 249, "open_by_handle_at": 304, "kexec_load": 246,
        },
    ),
    "aarch64": _Machine(
        0xC00000B7, 220, 198,
        {
            "unshare": 97, "setns": 268, "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "ptrace": 117,
            "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "memfd_create": 279, "shmget": 194,
            "msgget": 186, "semget": 190, "mq_open": 180, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282,
            "keyctl": 219, "add_key": 217, "request_key": 218, "open_by_handle_at": 265, "kexec_load": 104,
        },
    ),
}  # fmt: skip
_CLONE3 = 435


def is_known_machine() -> bool:
    """Tell whether the system call numbers of this machine are known here."""
    return platform.machine() in _MACHINES


def build_filter() -> bytes:
    """Build the program for the kernel: an array of `struct sock_filter`."""
    machine = _MACHINES[platform.machine()]
    program = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_JUMP_EQUAL, machine.token, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    if platform.machine() == "x86_64":
        program += [_step(_JUMP_GREATER_EQUAL, _X32_BIT, 0, 1), _step(_RETURN, _KILL)]
    # clone3 keeps its flags where a filter cannot read them; on "no such call" the C library falls back to clone.
    program += [_step(_JUMP_EQUAL, _CLONE3, 0, 1), _step(_RETURN, _ERROR | errno.ENOSYS)]
    for number in [*machine.refused.values(), *_NEW_CALLS.values()]:
        program += [_step(_JUMP_EQUAL, number, 0, 1), _step(_RETURN, _ERROR | errno.EPERM)]
    program += [
        _step(_JUMP_EQUAL, machine.clone, 0, 3),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_JUMP_ANY_BIT, _NEW_NAMESPACES, 0, 4 + len(_FAMILIES)),
        _step(_RETURN, _ERROR | errno.EPERM),
        _step(_JUMP_EQUAL, machine.socket, 0, 2 + len(_FAMILIES)),
        _step(_LOAD, _FIRST_ARGUMENT),
        *(_step(_JUMP_EQUAL, family, len(_FAMILIES) - index, 0) for index, family in enumerate(_FAMILIES)),
        _step(_RETURN, _ERROR | errno.EAFNOSUPPORT),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Pack one instruction; the jumps count instructions to skip."""
    return struct.pack("=HBBI", code, if_true, if_false, operand)
