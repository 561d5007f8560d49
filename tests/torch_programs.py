"""Programs that use torch, run in forks of one process that has imported it.

Importing torch and starting its profiler takes 4 s of CPU time, a fork 0.2 s.
"""

import atexit
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

_SERVER: Final = """
import atexit, json, os, sys
import torch, torch.profiler
import torch._inductor.config  # the profiler imports it when it starts: 1.8 s
for line in iter(sys.stdin.readline, ""):
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    os._exit(0)
asked = json.loads(line)
os.chdir(asked["folder"])
os.environ.clear()
os.environ.update(asked["environment"])
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(os.open(asked["out"], os.O_WRONLY | os.O_CREAT), 1)
os.dup2(os.open(asked["err"], os.O_WRONLY | os.O_CREAT), 2)
exit_code = 0
try:
    exec(compile(asked["code"], "<string>", "exec"), {"__name__": "__main__"})
except SystemExit as end:
    exit_code = end.code or 0
atexit._run_exitfuncs()
sys.stdout.flush()
os._exit(exit_code)  # Python would free torch's 2 000 modules, which takes a second
"""


def run_with_torch(
    code: str, folder: Path, environment: dict[str, str]
) -> "subprocess.CompletedProcess[str]":
    """What `python -c code` does in `folder`, with torch imported already."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    out, err = (folder.parent / f"{folder.name}.{name}" for name in ("out", "err"))
    asked = {"code": code, "folder": str(folder), "environment": environment}
    server.stdin.write(json.dumps(asked | {"out": str(out), "err": str(err)}) + "\n")
    server.stdin.flush()
    exit_code = int(server.stdout.readline())
    said = (out.read_text(), err.read_text())
    out.unlink()
    err.unlink()
    return subprocess.CompletedProcess(["python", "-c", code], exit_code, *said)


@cache
def _server() -> "subprocess.Popen[str]":
    """The process to fork. It ends when its stdin is closed."""
    pipe = subprocess.PIPE
    server = subprocess.Popen([sys.executable, "-c", _SERVER], stdin=pipe, stdout=pipe, text=True)
    atexit.register(server.communicate)
    return server
