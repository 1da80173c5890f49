"""Runs the command in children of one process that has loaded its libraries, where the start of Python is not tested."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

LONG = 60.0
LOADED = ("botocore.client", "botocore.session", "chipwatch.commands.run", "chipwatch.commands.parser",
          "google.cloud.monitoring_v3", "rich.console")  # fmt: skip
PLUGINS = ("chipwatch.collectors", "chipwatch.processors", "chipwatch.sinks", "chipwatch.advisors")
"""Modules, and groups of entry points, that are loaded once: half of the CPU time of a short run."""


class Forked:
    """
    A process that forks one child for each command in `folder`, as `subprocess.run` would start it.

    It loads all plugins, or only `modules`; `env` is what the loader of programs needs to know before.
    """

    def __init__(self, folder, modules=(), env=None):
        self.folder, self._modules, self._env = folder, modules, env

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked", *self._modules],
            cwd=Path(__file__).parents[1],
            env=self._env and os.environ | self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(LONG)
        self._process.stdout.close()

    def run(self, words, env, text="", folder=None):
        """Run to the end in `folder`, with `text` on standard input; return what subprocess.run returns."""
        with tempfile.TemporaryDirectory() as temporary:
            streams = Path(temporary)
            (streams / "0").write_text(text)
            self._process.stdin.write(json.dumps([words, env, str(folder or self.folder), temporary]) + "\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            out, err = ((streams / name).read_text() for name in "12")
        return subprocess.CompletedProcess(words, code, out, err)


def serve():
    """Run what each line of standard input says, one after the other; print the exit codes."""
    for name in sys.argv[1:] or LOADED:
        import_module(name)
    for group in PLUGINS if not sys.argv[1:] else ():
        for point in entry_points(group=group):
            with suppress(ImportError):  # the command says so itself
                point.load()
    for line in sys.stdin:
        words, env, cwd, folder = json.loads(line)
        if not (child := os.fork()):
            _be(words, env, cwd, folder)
        guard = threading.Timer(LONG, os.kill, (child, signal.SIGKILL))
        guard.start()
        _, status = os.waitpid(child, 0)
        guard.cancel()
        guard.join()
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _be(words, env, cwd, folder):
    from chipwatch.__main__ import main

    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for number, flags in enumerate((os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT)):
        os.dup2(os.open(f"{folder}/{number}", flags, 0o600), number)
    sys.stdin, sys.stdout, sys.stderr = (open(n, "w" if n else "r", closefd=False) for n in range(3))  # noqa: SIM115
    sys.stderr.reconfigure(errors="backslashreplace", line_buffering=True)
    sys.argv[1:] = words
    sys.path[1:1] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    time.tzset()
    for name in ("callers", "reading"):
        if module := sys.modules.get(f"chipwatch.jobs.verdict.{name}"):
            module.STARTED = time.monotonic()  # the verdict counts its time limit from the start of the program
    code = 1
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001  # as Python would end
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
