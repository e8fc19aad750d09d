"""What a hostile program tries, and what it gets. Every test starts from the program's side."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_exp.errors import ConfigError, RunError
from grpo_exp.rewards.sandbox import process_tree
from grpo_exp.rewards.sandbox.bubblewrap import BubblewrapSandbox
from grpo_exp.rewards.sandbox.build import build_sandbox, sandbox_faults
from grpo_exp.rewards.sandbox.interface import End, Job, Limits, Outcome, Sandbox
from grpo_exp.rewards.sandbox.unsafe_subprocess import UnsafeSubprocess

from .programs import Leaks, require_bubblewrap
from .reward_cases import CHECKOUT, is_running

MIB = 2**20
#: Beyond this nothing of ours is slow, and a machine that is busy is not at fault.
SLOW_SECONDS = 15


@pytest.fixture(scope="module", autouse=True)
def _bubblewrap() -> None:
    require_bubblewrap()


def limits(**changes: float) -> Limits:
    values = {
        "wall_seconds": 10.0,
        "cpu_seconds": 10,
        "memory_bytes": 256 * MIB,
        "num_processes": 16,
        "file_bytes": 8 * MIB,
        "output_bytes": MIB,
    }
    return Limits(**(values | changes))  # type: ignore[arg-type]


def run(program: str, stdin: bytes = b"", *, sandbox: Sandbox | None = None, **changes: float) -> Outcome:
    chosen = BubblewrapSandbox() if sandbox is None else sandbox
    return chosen.run(Job("program.py", {"program.py": program}), stdin, limits(**changes))


@pytest.fixture
def nothing_left() -> Callable[[], None]:
    return Leaks().assert_none


@pytest.fixture(params=["bubblewrap", "unsafe_subprocess"])
def each(request: pytest.FixtureRequest) -> Sandbox:
    """Return each sandbox in turn, for what both keep."""
    return build_sandbox(request.param)


# What both keep


def test_program_reads_and_writes(each: Sandbox, nothing_left: Callable[[], None]) -> None:
    outcome = run("print(sum(map(int, input().split())))", b"2 3\n", sandbox=each)
    assert (outcome.end, outcome.stdout) == (End.EXITED, b"5\n")
    nothing_left()


def test_large_input_and_output_do_not_block_each_other(each: Sandbox) -> None:
    text = b"x" * 700_000 + b"\n"
    outcome = run("import sys\nfor line in sys.stdin: print(line, end='')", text, sandbox=each)
    assert (outcome.end, outcome.stdout) == (End.EXITED, text)


def test_program_that_does_not_read_is_no_fault(each: Sandbox) -> None:
    assert run("print(1)", b"x" * 10**6, sandbox=each).stdout == b"1\n"


def test_exit_code_is_seen(each: Sandbox) -> None:
    assert run("raise SystemExit(3)", sandbox=each).end is End.FAILED
    assert run("import os\nos.kill(os.getpid(), 9)", sandbox=each).end is End.FAILED
    assert run("import os\nos._exit(0)", sandbox=each).end is End.EXITED


@pytest.mark.parametrize("program", ["while True: pass", "import time\ntime.sleep(10**6)"])
def test_time_is_limited(program: str, each: Sandbox, nothing_left: Callable[[], None]) -> None:
    started = time.monotonic()
    assert run(program, sandbox=each, wall_seconds=1.0).end is End.TIMEOUT
    assert time.monotonic() - started < SLOW_SECONDS
    nothing_left()


def test_cpu_time_is_limited_too(each: Sandbox) -> None:
    started = time.monotonic()
    assert run("while True: pass", sandbox=each, cpu_seconds=1, wall_seconds=60.0).end is End.TIMEOUT
    assert time.monotonic() - started < SLOW_SECONDS


def test_ignoring_signals_does_not_help(each: Sandbox, nothing_left: Callable[[], None]) -> None:
    program = """
import signal, time
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
time.sleep(1000)
"""
    assert run(program, sandbox=each, wall_seconds=1.0).end is End.TIMEOUT
    nothing_left()


def test_memory_bomb_ends(each: Sandbox) -> None:
    assert run("x = bytearray(10**9)", sandbox=each).end is End.MEMORY
    assert run("x = []\nwhile True: x.append(bytearray(10**6))", sandbox=each).end is End.MEMORY


def test_memory_of_all_processes_together_is_limited(each: Sandbox, nothing_left: Callable[[], None]) -> None:
    """Eight processes of 100 MiB each: every one is below the 256 MiB of a process, together they are not."""
    program = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        x = bytearray(os.urandom(1024) * 1024 * 100)
        time.sleep(1000)
time.sleep(1000)
"""
    started = time.monotonic()
    assert run(program, sandbox=each, wall_seconds=30.0, cpu_seconds=30).end is End.MEMORY
    assert time.monotonic() - started < SLOW_SECONDS
    nothing_left()


def test_pages_that_forks_share_count_once(each: Sandbox) -> None:
    """Five processes see the same 100 MiB: 100 MiB, not 500."""
    program = """
import os, time
x = bytearray(os.urandom(1024) * 1024 * 100)
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        time.sleep(0.5)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
print("done")
"""
    assert run(program, sandbox=each).stdout == b"done\n"


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_endless_output_ends(name: str, each: Sandbox, nothing_left: Callable[[], None]) -> None:
    outcome = run(f"import sys\nwhile True: sys.{name}.write('e' * 10**6)", sandbox=each, wall_seconds=3.0)
    assert outcome.end is (End.OUTPUT if name == "stdout" else End.TIMEOUT)
    assert len(outcome.stdout) <= MIB
    assert len(outcome.stderr) <= 4096
    nothing_left()


def test_large_file_is_refused(each: Sandbox, nothing_left: Callable[[], None]) -> None:
    program = "f = open('big', 'wb')\nwhile True: f.write(b'0' * 10**7)"
    outcome = run(program, sandbox=each)
    assert outcome.end is End.FAILED
    assert b"OSError" in outcome.stderr
    nothing_left()


def test_child_that_keeps_the_pipe_open_is_not_waited_for(each: Sandbox, nothing_left: Callable[[], None]) -> None:
    started = time.monotonic()
    outcome = run("import os, time\nprint(5, flush=True)\nif os.fork() == 0: time.sleep(10**6)", sandbox=each)
    assert (outcome.end, outcome.stdout) == (End.EXITED, b"5\n")
    assert time.monotonic() - started < SLOW_SECONDS
    nothing_left()


DAEMON = """
import os, time
def become_daemon():
    if os.fork(): os._exit(0)
    os.setsid()
    if os.fork(): os._exit(0)
    import ctypes
    ctypes.CDLL(None).prctl(15, b'daemon-of-test', 0, 0, 0)
    for number in range(3): os.close(number)
    while True: time.sleep(1)
for _ in range(3):
    if os.fork() == 0: become_daemon()
time.sleep(ENOUGH)
print('done')
"""


@pytest.mark.parametrize(("enough", "end"), [("0.5", End.EXITED), ("1000", End.TIMEOUT)])
def test_daemons_are_gone(enough: str, end: End, each: Sandbox, nothing_left: Callable[[], None]) -> None:
    program = DAEMON.replace("ENOUGH", enough)
    assert run(program, sandbox=each, wall_seconds=3.0).end is end
    names = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                names.append((entry / "comm").read_text().strip())
            except (FileNotFoundError, ProcessLookupError):
                continue
    assert "daemon-of-test" not in names
    nothing_left()


def test_fork_bomb_is_contained(each: Sandbox, nothing_left: Callable[[], None]) -> None:
    started = time.monotonic()
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    assert run(bomb, sandbox=each, wall_seconds=2.0).end in {End.TIMEOUT, End.PROCESSES}
    assert time.monotonic() - started < SLOW_SECONDS
    nothing_left()


def test_the_kernel_bounds_the_number_of_processes(each: Sandbox) -> None:
    """Forks that stay: with the program itself there are at most 16, long before anybody looks at them."""
    program = """
import os, time
started = time.monotonic()
made = 0
while time.monotonic() - started < 0.5:
    try:
        if os.fork() == 0:
            time.sleep(1000)
        made += 1
    except OSError:
        break
print(made)
"""
    made = int(run(program, sandbox=each).stdout)
    assert 0 < made <= 15


def test_environment_holds_nothing_of_ours(each: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "hunter2")
    outcome = run("import os\nprint(*sorted(os.environ))", sandbox=each)
    assert outcome.stdout.split() == [b"HOME", b"LANG", b"OMP_NUM_THREADS", b"PATH", b"PYTHONHASHSEED", b"TMPDIR"]


def test_folder_is_empty_writable_and_thrown_away(each: Sandbox) -> None:
    program = "import os\nprint(os.listdir(), os.getcwd() == os.path.expanduser('~'))\nopen('a', 'w').write('x')"
    for _ in range(2):
        assert run(program, sandbox=each).stdout == b"[] True\n"


def test_same_program_gives_the_same_output(each: Sandbox) -> None:
    assert len({run("print(set('abcdefgh'))", sandbox=each).stdout for _ in range(3)}) == 1


def test_conversation_ends_when_the_program_does(each: Sandbox, nothing_left: Callable[[], None]) -> None:
    program = "import os\nprint(input().upper(), flush=True)\nprint('last', flush=True)\nos._exit(0)"
    session = each.start(Job("program.py", {"program.py": program}), limits())
    try:
        assert session.exchange(b"hello", seconds=10) == b"HELLO"
        assert session.exchange(None, seconds=10) == b"last"
        assert session.exchange(b"more", seconds=10) is None
    finally:
        assert session.close().end is End.EXITED
    assert session.close().end is End.EXITED
    nothing_left()


def test_silent_program_is_not_waited_for(each: Sandbox, nothing_left: Callable[[], None]) -> None:
    session = each.start(Job("program.py", {"program.py": "input()\ninput()"}), limits())
    started = time.monotonic()
    assert session.exchange(b"hello", seconds=0.5) is None
    assert session.close().end is End.TIMEOUT
    assert time.monotonic() - started < SLOW_SECONDS
    nothing_left()


def test_programs_end_with_the_process_that_started_them(each: Sandbox, tmp_path: Path) -> None:
    """A trainer that is killed leaves nothing behind."""
    name = type(each).__name__
    code = f"""
import sys
from grpo_exp.rewards.sandbox.bubblewrap import BubblewrapSandbox
from grpo_exp.rewards.sandbox.unsafe_subprocess import UnsafeSubprocess
from grpo_exp.rewards.sandbox.interface import Job, Limits
program = "import os, time\\nos.fork()\\nprint('up', flush=True)\\ntime.sleep(1000)"
limits = Limits(1000, 1000, 2**28, 16, 2**20, 2**20)
session = {name}().start(Job("program.py", {{"program.py": program}}), limits)
session.exchange(None, seconds=30)
print("up", flush=True)
session.exchange(None, seconds=1000)
session.exchange(None, seconds=1000)
"""
    # Nobody is left to remove the folder of an unsafe program; pytest does.
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src"), "TMPDIR": str(tmp_path)}
    trainer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
    assert trainer.stdout is not None
    with trainer, trainer.stdout:
        assert trainer.stdout.readline() == b"up\n"
        below = process_tree.descendants(trainer.pid)
        assert len(below) >= 3  # launcher, program, its child
        trainer.send_signal(signal.SIGKILL)
        trainer.wait()
    deadline = time.monotonic() + SLOW_SECONDS
    while any(map(is_running, below)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [process for process in below if is_running(process)]


# What only bubblewrap keeps


@pytest.mark.parametrize(
    "program",
    [
        "import urllib.request\nurllib.request.urlopen('http://192.0.2.1', timeout=2)",
        "import socket\nsocket.create_connection(('127.0.0.1', PORT), timeout=2)",
        "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0grpo-exp-test')",
        "import socket\nsocket.socket(40, socket.SOCK_STREAM)",  # AF_VSOCK: no network namespace holds it back
        "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    ],
)
def test_no_socket_reaches_out(program: str) -> None:
    with socket.socket() as server, socket.socket(socket.AF_UNIX) as local:
        server.bind(("127.0.0.1", 0))
        server.listen()
        local.bind("\0grpo-exp-test")
        local.listen()
        outcome = run(program.replace("PORT", str(server.getsockname()[1])))
    assert outcome.end is End.FAILED
    assert b"Error" in outcome.stderr


def test_honest_sockets_work_inside() -> None:
    program = """
import asyncio, multiprocessing, socket, threading
def serve(server):
    connection, _ = server.accept()
    connection.sendall(b'hi')
    connection.close()
async def wait():
    await asyncio.sleep(0.01)
if __name__ == '__main__':
    a, b = socket.socketpair()
    a.sendall(b'x')
    asyncio.run(wait())
    with multiprocessing.Pool(2) as pool:
        print(b.recv(1), pool.map(abs, [-1, 2]))
"""
    assert run(program).stdout == b"b'x' [1, 2]\n"


@pytest.mark.parametrize(
    "path",
    [
        "/x",
        "/usr/x",
        "/etc/x",
        "/dev/x",
        "/proc/sys/kernel/hostname",
        "/proc/sysrq-trigger",
        "/job/x",
        "/job/program.py",
        "/job/.launcher.py",
        "/srv/x",
        "/sys/x",
        sys.executable,
        f"{sys.base_prefix}/x",
    ],
)
def test_nothing_outside_the_folder_can_be_written(path: str) -> None:
    program = f"try:\n    open({path!r}, 'ab').write(b'x')\nexcept OSError as error:\n    print('refused')"
    assert run(program).stdout == b"refused\n"


def test_files_of_the_host_cannot_be_read(tmp_path: Path) -> None:
    secret = tmp_path / "tests.jsonl"
    secret.write_text("expected outputs")
    secret.chmod(0o644)
    places = [
        str(secret),
        str(CHECKOUT / "tests"),
        str(Path.home() / ".ssh"),
        "/etc/shadow",
        "/etc/passwd",
        "/var",
        "/sys",
    ]
    program = f"import os\nprint([path for path in {places!r} if os.access(path, os.F_OK)])\nprint(os.listdir('/tmp'))"
    assert run(program).stdout == b"[]\n[]\n"


def test_processes_of_the_host_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "hunter2")
    program = """
import os
numbers = sorted(int(name) for name in os.listdir('/proc') if name.isdigit())
print(numbers == [1, os.getpid()], len(numbers))
for number in [1, os.getppid()]:
    for name in ['environ', 'mem', 'fd', 'root', 'cwd', 'maps']:
        path = f'/proc/{number}/{name}'
        try:
            if name == 'mem':
                open(path, 'r+b').close()
            elif name in ('fd', 'root', 'cwd'):
                os.listdir(path)
            else:
                assert b'hunter2' not in open(path, 'rb').read()
                continue
            print('opened', path)
        except PermissionError:
            continue
"""
    assert run(program).stdout == b"True 2\n"


def test_launcher_cannot_be_ended_or_traced() -> None:
    program = """
import ctypes, os, signal
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
    try: os.kill(1, number)
    except PermissionError: pass
libc = ctypes.CDLL(None, use_errno=True)
print(libc.ptrace(16, 1, 0, 0), ctypes.get_errno())
"""
    assert run(program).stdout == b"-1 1\n"  # EPERM


def test_no_new_namespace_mount_or_anonymous_memory() -> None:
    program = """
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
new_user = 0x10000000
print(libc.unshare(new_user), libc.mount(b'tmpfs', b'/box', b'tmpfs', 0, b''), libc.memfd_create(b'x', 0))
print(libc.shmget(0, 4096, 0o1600))
number = {'x86_64': 56, 'aarch64': 220}[platform.machine()]
print(libc.syscall(number, new_user | 17, 0, 0, 0, 0), ctypes.get_errno())
print(libc.syscall(435, 0, 0), ctypes.get_errno())
"""
    assert run(program).stdout == b"-1 -1 -1\n-1\n-1 1\n-1 38\n"  # EPERM, ENOSYS


def test_program_has_no_rights() -> None:
    program = """
import os
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
print(status['CapEff'].strip('\\t\\n0'), status['CapPrm'].strip('\\t\\n0'), status['NoNewPrivs'].strip())
print(os.getuid() == 0, os.getgroups() in ([], [os.getgid()], [65534]))
try: os.setuid(0)
except PermissionError: print('refused')
print(sorted(os.listdir('/proc/self/fd')) == ['0', '1', '2', '3'])
"""
    assert run(program).stdout.split() == [b"1", b"False", b"True", b"refused", b"True"]


def test_folder_is_limited_as_a_whole() -> None:
    """Each file is below the 8 MiB of a file, together they are not: the fourth of 3 MiB does not fit."""
    program = """
for place in ('.', '/dev/shm'):
    try:
        for number in range(10): open(f'{place}/{number}', 'wb').write(b'0' * 3 * 2**20)
    except OSError as error:
        print(number)
"""
    assert run(program).stdout == b"2\n2\n"


def test_processes_are_limited_exactly() -> None:
    """With the first one, 16 processes are allowed: 15 forks."""
    program = """
import os, time
count = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(10)
            os._exit(0)
        count += 1
except BlockingIOError:
    print(count)
"""
    assert run(program).stdout == b"15\n"


def test_fork_bomb_that_eats_memory_is_bounded() -> None:
    """Each process may take 256 MiB, 16 of them 4 GiB; what the bomb ever holds stays near the limit of 256 MiB.

    The host's free memory is sampled from outside; 1 GiB is allowed for what can be written between two looks, and for
    other programs on this machine.
    """
    sample = """
import time
low = 10**18
end = time.monotonic() + 6
while time.monotonic() < end:
    with open('/proc/meminfo') as file:
        low = min(low, next(int(line.split()[1]) for line in file if line.startswith('MemAvailable')) * 1024)
    time.sleep(0.005)
print(low)
"""
    bomb = """
import os
x = []
while True:
    try: os.fork()
    except OSError: pass
    try: x.append(bytearray(2**22))
    except MemoryError: pass
"""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024
    if free < 5 * 2**30:
        pytest.fail(f"{free >> 20} MiB are free, and a broken limit would take 4 GiB; run this where there is more")
    with subprocess.Popen([sys.executable, "-c", sample], stdout=subprocess.PIPE) as sampler:
        outcome = run(bomb, wall_seconds=5.0)
        low = int(sampler.communicate()[0])
    print(f"most memory taken: {(free - low) >> 20} MiB")
    assert outcome.end is End.MEMORY
    assert free - low < 256 * MIB + 2**30


def test_root_and_others_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody but root uses a user namespace; root can try that too, without the limit on processes."""
    monkeypatch.setattr("grpo_exp.rewards.sandbox.bubblewrap.own_user", lambda: None)
    program = """
import os
print(os.getuid(), os.listdir(), os.access('/etc/shadow', os.F_OK))
for path in ('/proc/1/mem', '/x', '/usr/x'):
    try: open(path, 'r+b' if 'mem' in path else 'wb')
    except OSError: print('refused')
"""
    assert run(program).stdout == b"1000 [] False\nrefused\nrefused\nrefused\n"


# When it does not work


def test_missing_bubblewrap_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (fault,) = sandbox_faults("bubblewrap")
    assert "no program bwrap" in fault
    assert "apt-get install bubblewrap" in fault


def fake_bubblewrap(folder: Path, script: str) -> None:
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_old_bubblewrap_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_bubblewrap(tmp_path, "echo bubblewrap 0.4.1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (fault,) = sandbox_faults("bubblewrap")
    assert "bubblewrap 0.4.1" in fault
    assert "0.8 or newer" in fault


def test_forbidden_namespaces_are_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = "bwrap: No permissions to create new namespace"
    fake_bubblewrap(tmp_path, f'[ "$1" = --version ] && echo bubblewrap 0.8.0 && exit\necho "{said}" >&2; exit 1')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (fault,) = sandbox_faults("bubblewrap")
    assert said in fault
    assert "user namespaces" in fault
    with pytest.raises(RunError, match=r"No permissions.*grpo-exp check"):
        run("print(1)")


def test_python_that_does_not_start_is_named() -> None:
    assert sandbox_faults("bubblewrap", python="/nowhere/python")[0].startswith("python=/nowhere/python: ")
    with pytest.raises(ConfigError, match="give its path"):
        run("print(1)", sandbox=UnsafeSubprocess("/nowhere/python"))


def test_another_python_can_be_chosen() -> None:
    code = f"import sys\nprint(sys.executable == {sys.executable!r})"
    assert run(code, sandbox=BubblewrapSandbox(sys.executable)).stdout == b"True\n"


def test_python_that_lies_in_the_temporary_folder() -> None:
    """Programs write into the throw-away folder all the same, and see nothing else of the real /tmp."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)  # programs run as another user
        venv.create(folder, symlinks=True)
        Path(folder, "secret").write_text("x")
        other = Path(tempfile.mkdtemp(dir="/tmp"))
        code = (
            "import os, sys, tempfile\n"
            f"print(sys.prefix == {folder!r}, os.path.exists({str(other)!r}))\n"
            "with tempfile.TemporaryFile() as stream: print(stream.write(b'x'))"
        )
        found = run(code, sandbox=BubblewrapSandbox(f"{folder}/bin/python"))
        other.rmdir()
    assert found.stdout == b"True False\n1\n", found
