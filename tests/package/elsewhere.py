"""Python as it is on macOS and Windows, as far as Linux can play it: run as a program, it imports and runs tilescope so.

    python -X warn_default_encoding -W error::EncodingWarning elsewhere.py modules
    python … elsewhere.py commands < lines with one JSON list of words each

Modules and functions of Unix alone are taken away once the standard library and what tilescope needs have loaded. A file
that is opened without saying its encoding is an error: on Windows it would be read in another one. `modules` prints, as
JSON, which modules of tilescope want an optional package; `commands` prints the exit statuses.
"""

import contextlib
import importlib
import importlib.util
import io
import json
import os
import pkgutil
import signal
import socket
import sys
import time
import types

UNIX_MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty")
# What os has on Windows too, of the functions that it takes from the system.
OS_OF_WINDOWS = {
    *("abort", "access", "chdir", "chmod", "close", "closerange", "cpu_count", "device_encoding", "dup", "dup2"),
    *(
        "execv",
        "execve",
        "fspath",
        "fstat",
        "fsync",
        "ftruncate",
        "get_blocking",
        "get_inheritable",
        "get_terminal_size",
    ),
    *(
        "getcwd",
        "getcwdb",
        "getlogin",
        "getpid",
        "getppid",
        "isatty",
        "kill",
        "link",
        "listdir",
        "lseek",
        "lstat",
        "mkdir",
    ),
    *("open", "pipe", "putenv", "read", "readlink", "remove", "rename", "replace", "rmdir", "scandir", "set_blocking"),
    *("set_inheritable", "stat", "strerror", "symlink", "system", "times", "truncate", "umask", "unlink", "unsetenv"),
    *("urandom", "utime", "waitpid", "waitstatus_to_exitcode", "write"),
}
# What the standard library itself calls on Linux: it has loaded, and goes on as on Linux.
OS_OF_THE_LIBRARY = {
    "fchmod",
    "get_exec_path",
    "sysconf",
    "confstr",
    "posix_spawn",
    "pread",
    "pwrite",
    "sendfile",
    "statvfs",
}
UNIX_NAMES = {
    "os": [
        name
        for name in dir(os)
        if name.islower()
        and not name.startswith("_")
        and isinstance(getattr(os, name), types.BuiltinFunctionType)
        and name not in OS_OF_WINDOWS | OS_OF_THE_LIBRARY
    ],
    "select": ["epoll", "poll"],
    "signal": [
        *("SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGUSR1", "SIGUSR2"),
        *("SIGXFSZ", "alarm", "pthread_sigmask", "setitimer", "sigtimedwait", "sigwait"),
    ],
    "socket": ["AF_UNIX", "SCM_RIGHTS", "SO_PEERCRED", "SOCK_SEQPACKET"],
    "mmap": ["MAP_PRIVATE", "MAP_SHARED", "PROT_READ", "PROT_WRITE"],
    "time": ["tzset"],
}
OPTIONAL = ("anyio", "cuda", "llvmlite", "nvidia", "numba", "starlette", "torch", "triton", "uvicorn")
LOADED_FIRST = (
    *("asyncio", "concurrent.futures", "ctypes", "multiprocessing", "multiprocessing.connection", "shutil"),
    *("subprocess", "tempfile", "webbrowser", "zipfile", "numpy", "numpy.testing", "ml_dtypes", "click"),
    *("click.shell_completion", "jinja2", "jinja2.ext", "platformdirs", "rich.console", "rich.progress"),
    *("rich.table", "pytest", "hypothesis"),
)


def take_away_unix():
    """From here on Python has no more than on Windows, and no optional package."""
    for name in LOADED_FIRST:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    for name in (*UNIX_MODULES, *OPTIONAL):
        sys.modules[name] = None  # which makes an import of it fail
    for module, names in UNIX_NAMES.items():
        held = importlib.import_module(module)
        for name in names:
            if hasattr(held, name):
                delattr(held, name)
    sys.platform = "darwin"  # "win32" would make the standard library, which has loaded, look for what is not here


def modules_that_want_more():
    """The modules of tilescope that cannot be imported so, and what each of them misses."""
    import tilescope

    wanting = {}
    names = [module.name for module in pkgutil.walk_packages(tilescope.__path__, "tilescope.")]
    for name in names:
        if name == "tilescope.__main__":
            continue
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            wanting[name] = error.name
    return wanting


def statuses(lines):
    """The exit status of every command, which prints to a terminal of Windows' old encoding; and what it said of a failure."""
    from tilescope.cli import run

    found = []
    for line in lines:
        printed = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            status = run(json.loads(line))
        printed.flush()
        found.append([status, printed.buffer.getvalue().decode("cp1252")[-400:] if status not in (0, 1) else ""])
    return found


if __name__ == "__main__":
    take_away_unix()
    assert not hasattr(os, "fork")
    assert not hasattr(os, "register_at_fork")
    assert not hasattr(os, "sched_getaffinity")
    assert not hasattr(signal, "SIGALRM")
    assert not hasattr(socket, "AF_UNIX")
    assert not hasattr(time, "tzset")
    answer = modules_that_want_more() if sys.argv[1] == "modules" else statuses(sys.stdin)
    sys.stdout.write(json.dumps(answer))
