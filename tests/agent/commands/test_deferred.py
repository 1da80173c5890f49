from __future__ import annotations

import subprocess
import sys

BEGIN = """
import sys, threading
from types import ModuleType
from chipwatch.commands.deferred import FUNCTIONS, WHOLE, defer
defer()
waits = lambda name: type(sys.modules[name]).__name__ == "_Deferred"
assert all(map(waits, (*WHOLE, *FUNCTIONS))), [name for name in (*WHOLE, *FUNCTIONS) if not waits(name)]
"""
USES = {
    "an attribute": "import calendar; assert calendar.timegm((1970, 1, 2, 0, 0, 0)) == 86400; assert not waits('calendar')",
    "a name": "from inspect import signature; assert str(signature(lambda a: 0)) == '(a)'; assert not waits('inspect')",
    "a function by name": "from urllib.request import getproxies; assert waits('urllib.request'); assert getproxies() == {}",
    "a child of a package": "import urllib.request; assert urllib.request.Request('http://host').host == 'host'",
    "a class to derive from": "import tempfile\nclass C(tempfile._TemporaryFileWrapper): pass",
    "an import of all": "from csv import *; assert reader(['a,b']).__next__() == ['a', 'b']",
    "an attribute that is set": "import tempfile; tempfile.tempdir = '/x'; assert tempfile.gettempdir() == '/x'; import tempfile as t; assert t.tempdir == '/x'",
    "an attribute that a test replaces": """
from unittest import mock
with mock.patch("calendar.timegm", return_value=5):
    import calendar
    assert calendar.timegm(()) == 5
assert calendar.timegm((1970, 1, 2, 0, 0, 0)) == 86400
""",
    "a list of its names": "import csv; assert 'reader' in dir(csv)",
    "another load": "import importlib, csv; assert importlib.reload(csv).reader; assert importlib.reload(csv) is sys.modules['csv']",
    "a fork": "import os, csv; pid = os.fork(); pid or os._exit(csv.QUOTE_ALL); assert os.waitpid(pid, 0)[1] == 256",
    "the schema of msgspec": "import msgspec; assert msgspec.inspect.type_info(int); assert msgspec.json.schema(int)",
    "a search": "from importlib.util import find_spec; assert find_spec('zipfile').origin",
    "proxies, none set": """
import os
from urllib.request import getproxies, proxy_bypass
[os.environ.pop(key) for key in [*os.environ] if key.lower().endswith("_proxy")]
if sys.platform == "linux":
    assert getproxies() == {} and not proxy_bypass("a") and waits("urllib.request")
os.environ["HTTPS_proxy"] = "http://p:1"
assert getproxies()["https"] == "http://p:1" and not waits("urllib.request")
""",
    "a program": "import subprocess; assert subprocess.Popen(['true']).wait() == 0; import subprocess as s; assert s.Popen[bytes] and not waits('subprocess')",
    "numbers of botocore": """
import botocore.config
assert waits("botocore.endpoint")
import botocore.endpoint as stand_in
taken = stand_in.DEFAULT_TIMEOUT, stand_in.MAX_POOL_CONNECTIONS
assert stand_in.EndpointCreator
import botocore.endpoint as real
assert taken == (real.DEFAULT_TIMEOUT, real.MAX_POOL_CONNECTIONS) and not waits("botocore.endpoint")
""",
    "a version": "from importlib.metadata import version; import importlib.metadata._meta; assert waits('importlib.metadata'); assert version('msgspec')",
    "a dataclass without a docstring": "import dataclasses\n@dataclasses.dataclass\nclass D:\n  a: int\nassert D.__doc__ == 'D(a: int)'",
    "several threads at once": """
import calendar as module
found = []
threads = [threading.Thread(target=lambda: found.append(module.timegm)) for _ in range(20)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(found) == 20 and len(set(found)) == 1
""",
}


TRACEBACK = """
import os, resource, sys
from chipwatch.commands.deferred import defer
defer()
assert "tokenize" not in sys.modules or type(sys.modules["tokenize"]).__name__ == "_Deferred"
import logging
logging.basicConfig(format="%(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
def fail():
    raise ValueError("why") from OSError("no file")
try:
    fail()
except ValueError:
    logging.exception("it failed")
"""


def test_an_error_is_logged_where_no_file_can_be_opened(tmp_path):
    program = tmp_path / "program.py"  # of `-c` later Pythons have the source
    program.write_text(TRACEBACK)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("it failed\nOSError: no file\n")
    assert done.stderr.endswith("in fail\nValueError: why\n")


EACH = f"""
import os
for name, use in {USES!r}.items():
    pid = os.fork()  # each use meets modules that wait
    if not pid:
        try:
            exec(use, dict(globals()))
        except BaseException as problem:
            os.write(1, f"{{name}}: {{problem!r}}\\n".encode())
        os._exit(0)
    os.waitpid(pid, 0)
print("done")
"""


def test_a_module_that_waits_is_itself_once_it_is_used():
    env = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", BEGIN + EACH], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
