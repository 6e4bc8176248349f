"""Children of a forked program as forks of it: what it has imported already, they need not (programs.py).

A supervisor starts two frontends and the engine's parent as new interpreters, 5 s of CPU and nearly all of it imports;
`ferry check` starts one, 3 s. That the real way works, tests/frontends and tests/deploy/test_wheels.py
try with servers that do not fork.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from app.cli.trials import model_trials
from app.log_output import standard_streams

#: What the children import, and their parent does not.
IMPORTED = (
    "app.cli.trials.trial_process",
    "app.frontends.engine.engine_listener",
    "app.frontends.engine.engine_forks",
    "app.frontends.frontend.frontend_server",
    "app.model_server.options",
)

_MODULES = {
    "app.frontends.engine.engine_process",
    "app.frontends.frontend.frontend_process",
    "app.model_server.engine_process",
    "app.model_server.frontend_process",
}


class _ForkingPopen(subprocess.Popen[Any]):
    """Forks where a new interpreter would run one of the programs above."""

    def _execute_child(self, *given: Any) -> None:
        # Python 3.11 to 3.13: args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags,
        # shell, six files, restore_signals, gid, gids, uid, umask, start_new_session, process_group
        args, files, environment, (session, group) = given[0], given[4], given[6], given[-2:]
        stdin, our_stdin, our_stdout, stdout, our_stderr, stderr = given[10:16]
        if not _forks(args):
            super()._execute_child(*given)  # type: ignore[misc] # private
            return
        every = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # one for the child is not for us
        self.pid = os.fork()
        if not self.pid:
            if session:
                os.setsid()
            elif group != -1:
                os.setpgid(0, group)
            become(args, (stdin, stdout, stderr), files, environment, every)
        signal.pthread_sigmask(signal.SIG_SETMASK, every)
        self._child_created = True
        for its, ours in ((stdin, our_stdin), (stdout, our_stdout), (stderr, our_stderr)):
            if -1 not in {its, ours}:
                os.close(its)


def _forks(args: Any) -> bool:
    if isinstance(args, str | bytes) or args[0] != sys.executable:
        return False
    return (args[-2] == "-m" and args[-1] in _MODULES) or model_trials._PROGRAM in args


def fork_children() -> None:
    """From now on this process starts those programs as forks."""
    subprocess.Popen = _ForkingPopen  # type: ignore[misc] # asyncio and others look it up here


def become(
    command: Sequence[str],
    streams: Sequence[int],
    files: Collection[int],
    environment: Mapping[str, str] | None,
    mask: Iterable[int],
) -> NoReturn:
    """Runs a program as a new interpreter would, and ends the process.

    streams: standard input, output and error; -1 for that of this process. files: they stay open.
    """
    code = 1
    try:
        _restore_signals(mask)
        for number, file in enumerate(streams):
            if file != -1:
                os.dup2(file, number)
        for file in map(int, os.listdir("/proc/self/fd")):
            if file > 2 and file not in files:
                with suppress(OSError):  # that of the list itself
                    os.close(file)
        _begin_streams()
        atexit._clear()  # what the parent wants to do at its end
        if environment is not None:
            os.environ.clear()
            os.environ.update(environment)
        name_process(command)
        run(command[command.index("-c" if "-c" in command else "-m") :])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def run(words: Sequence[str]) -> None:
    """Runs `-m MODULE` or `-c PROGRAM` with its arguments in this process."""
    how, what, *arguments = words
    sys.argv = [what if how == "-m" else how, *arguments]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - as python -c


#: What the parent wrote its lines with: a file that is closed later would be another one, with the same number.
_left: list[object] = []


def _begin_streams() -> None:
    """Standard output and error as a new interpreter has them: the parent's log has files of its own, now closed."""
    _left.extend(standard_streams._writers.values())
    standard_streams._writers.clear()
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__


def _restore_signals(mask: Iterable[int]) -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def name_process(words: Sequence[str]) -> None:
    """Replaces the command line of this process; what it has no room for is cut off (proc(5), arg_start)."""
    begin, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    line = b"\0".join(word.encode() for word in words)[: end - begin - 1]
    ctypes.memmove(begin, line.ljust(end - begin, b"\0"), end - begin)
