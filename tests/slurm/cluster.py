"""A SLURM of several nodes on this host, with all its state in one folder; it needs root and no systemd.

Every node is a `slurmd` of its own under the same host name. The CPUs are pretended, so programs that run here should
sleep and not compute.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

#: Commands without which nothing can be tested.
PROGRAMS = ("setpriv", "munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
#: Daemons are not on everybody's path.
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/local/sbin"

# No accounting: sacct does not work, as on many small clusters, and squeue remembers jobs for MinJobAge.
_CONFIG = """
ClusterName=tests
SlurmctldHost={host}
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller_port}
SlurmctldPidFile={root}/slurmctld.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdPidFile={root}/slurmd-%n.pid
SlurmdLogFile={root}/slurmd-%n.log
SlurmdSpoolDir={root}/spool-%n
StateSaveLocation={root}/state
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
MaxArraySize={max_array_size}
MinJobAge=3600
KillWait=5
InactiveLimit=0
ReturnToService=1
SlurmdParameters=config_overrides
SlurmdTimeout=300
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not_here() -> str | None:
    """Return why no SLURM can be started on this machine, or None."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"{', '.join(missing)} missing; on Debian: apt-get install slurm-wlm munge"
    return None if os.geteuid() == 0 else "SLURM's daemons start programs as other users, so they need root"


class SlurmCluster:
    """A running SLURM; end it with `close`.

    Args:
        root: Folder for configuration, state and logs; of root, and nobody else may write there.
        num_nodes: They are called n1, n2 ...
        cpus_per_node: Pretended.
        max_array_size: An array's largest index is one less.
    """

    def __init__(self, root: Path, *, num_nodes: int, cpus_per_node: int = 4, max_array_size: int = 1001) -> None:
        self.root = root
        self.num_nodes = num_nodes
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: list[IO[bytes]] = []
        self._hurried: set[tuple[str, int, int]] = set()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))},
            "PATH": _PATH,
            "SLURM_CONF": str(root / "slurm.conf"),
        }
        for folder in ("munge", "state"):
            (root / folder).mkdir(mode=0o755)
        host, ports = socket.gethostname(), _free_ports(num_nodes + 1)
        nodes = "\n".join(
            f"NodeName=n{number} NodeHostname={host} Port={port} CPUs={cpus_per_node} RealMemory=4000 State=UNKNOWN"
            for number, port in enumerate(ports[1:], 1)
        )
        config = _CONFIG.format(
            host=host, root=root, controller_port=ports[0], max_array_size=max_array_size, nodes=nodes
        )
        (root / "slurm.conf").write_text(config.lstrip())
        try:
            self._start_all()
        except BaseException:
            self.close()
            raise

    def _start_all(self) -> None:
        munge = self.root / "munge"
        key = munge / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        self._start(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge / 'socket'}",
            f"--pid-file={munge / 'pid'}", f"--seed-file={munge / 'seed'}", f"--log-file={munge / 'log'}",
        )  # fmt: skip
        self.wait_for(lambda: (munge / "socket").exists(), seconds=10, what="munged")
        self._start("slurmctld", "-D", "-i")
        for number in range(1, self.num_nodes + 1):
            self.start_node(f"n{number}")
        self.wait_for(lambda: self.node_states().count("IDLE") == self.num_nodes, seconds=30, what="all nodes idle")

    def _start(self, *command: str, name: str | None = None) -> None:
        log = (self.root / f"{name or command[0]}.out").open("ab")
        self._logs.append(log)
        # It ends with this process, however that ends: a killed test run leaves no SLURM behind.
        tied = ("setpriv", "--pdeathsig", "TERM", *command)
        self._daemons[name or command[0]] = subprocess.Popen(
            tied, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )

    def start_node(self, name: str) -> None:
        """Start the daemon of a node."""
        (self.root / f"spool-{name}").mkdir(exist_ok=True)
        self._start("slurmd", "-D", "-N", name, name=f"slurmd-{name}")

    def run(self, *command: str, check: bool = True) -> str:
        """Run one of SLURM's commands and return what it printed."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def node_states(self) -> list[str]:
        """Return the state of each node: IDLE, ALLOCATED, DOWN ..."""
        text = self.run("scontrol", "show", "nodes", "--oneliner", check=False)
        return [state.rstrip("*") for state in re.findall(r"State=([A-Z*]+)", text)]

    def task_states(self, job_id: str) -> dict[int, str]:
        """Return the state of each array task of a job by its index."""
        text = self.run("squeue", "--noheader", "--array", "--states=all", f"--jobs={job_id}", "--format=%K %T")
        rows = [line.split() for line in text.splitlines()]
        return {int(index): state for index, state in rows if index.isdecimal()}

    def restarts(self, job_id: str, index: int) -> int:
        """Return how often an array task was started anew."""
        text = self.run("scontrol", "show", "job", f"{job_id}_{index}", "--oneliner")
        (count,) = re.findall(r"Restarts=(\d+)", text)
        return int(count)

    def hurry(self, job_id: str, index: int) -> None:
        """Let a requeued task start in three seconds; SLURM makes it wait for two minutes (cred_expire in slurm.conf).

        In the same second its node would refuse it, since the credentials of the start before were just revoked.
        """
        restarts = self._restarts_of_waiting(job_id, index)
        if restarts is None or (job_id, index, restarts) in self._hurried:
            return
        self._hurried.add((job_id, index, restarts))
        self.run("scontrol", "update", f"JobId={job_id}_{index}", "StartTime=now+3", check=False)

    def _restarts_of_waiting(self, job_id: str, index: int) -> int | None:
        """Return how often a task was started before, or None where it does not wait for its time."""
        text = self.run("scontrol", "show", "job", f"{job_id}_{index}", "--oneliner", check=False)
        return int(re.findall(r"Restarts=(\d+)", text)[0]) if "Reason=BeginTime" in text else None

    def node_of(self, job_id: str, index: int) -> str:
        """Return the node that a task runs on."""
        return self.run("squeue", "--noheader", f"--jobs={job_id}_{index}", "--format=%N").strip()

    def has_steps(self, node: str) -> bool:
        """Say whether processes of a job run on a node: each carries the node's name in its environment."""
        mark = f"SLURMD_NODENAME={node}".encode()
        return any(mark in variables for _, variables in self._processes())

    def kill_on(self, node: str, text: str) -> None:
        """Kill the processes of jobs on a node whose command line holds a text."""
        mark, found = f"SLURMD_NODENAME={node}".encode(), 0
        for pid, variables in self._processes():
            if mark in variables and text.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "):
                os.kill(pid, signal.SIGKILL)
                found += 1
        assert found, f"no process on {node} holds {text!r}"

    def address_of(self, node: str) -> str:
        """Return the address by which SLURM reaches a node."""
        (address,) = re.findall(r"NodeAddr=(\S+)", self.run("scontrol", "show", "node", node))
        return address

    def wait_until_clean(self, *, seconds: float = 20) -> None:
        """Wait until no process of any job is left; `sleep` of an ended script may take two seconds."""
        nodes = [f"n{number}" for number in range(1, self.num_nodes + 1)]
        self.wait_for(lambda: not any(map(self.has_steps, nodes)), seconds=seconds, what="the end of all processes")

    def _processes(self) -> list[tuple[int, list[bytes]]]:
        """Return the processes that carry this SLURM's configuration in their environment, with that environment."""
        mark, found = f"SLURM_CONF={self.root / 'slurm.conf'}".encode(), []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if mark in variables:
                found.append((int(entry.name), variables))
        return found

    def active_jobs(self) -> str:
        """Return what squeue lists as pending or running."""
        return self.run("squeue", "--noheader", "--array")

    def wait_for(self, condition: Callable[[], bool], *, seconds: float, what: str) -> None:
        """Wait until something is true, and fail by name, with what the controller says, where it is not."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                log = self.root / "slurmctld.log"
                said = "\n".join(log.read_text().splitlines()[-30:]) if log.exists() else "(no log of slurmctld)"
                raise AssertionError(f"{what} did not happen within {seconds} s; {self.active_jobs()}\n{said}")
            time.sleep(0.1)

    def wait_until_idle(self, *, seconds: float) -> None:
        """Wait until nothing is pending, running or completing."""
        self.wait_for(lambda: not self.active_jobs().strip(), seconds=seconds, what="the end of all jobs")

    def cancel_everything(self) -> None:
        """End what a test left, so that the next one starts on idle nodes."""
        self.run("scancel", "--user=root", check=False)
        self.wait_until_idle(seconds=60)

    def close(self) -> None:
        """End all jobs and daemons; nothing of this SLURM runs afterwards."""
        if "slurmctld" in self._daemons:
            self.run("scancel", "--user=root", check=False)
        ended = reversed(list(self._daemons.values()))
        for process in ended:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for log in self._logs:
            log.close()
        self._kill_steps()

    def _kill_steps(self) -> None:
        """Kill the shepherds of jobs that outlived their daemon; each carries this configuration in its environment."""
        for pid, _ in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON objects, or nothing where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
