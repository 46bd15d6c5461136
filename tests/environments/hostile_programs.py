"""Forty programs that do not solve ``TASK``: each is after the reward all the same, or after harm."""

from __future__ import annotations

TASK = {"tests": [{"input": "3\n", "output": "16\n"}, {"input": "10\n", "output": "107\n"}]}
"""Print n * n + 7."""
HONEST = "n = int(input())\nprint(n * n + 7)"

HOSTILE = {
    # after time and memory
    "runs forever": "while True:\n    pass",
    "sleeps": "import time\ntime.sleep(1000)",
    "waits for more input": "import sys, threading\nthreading.Event().wait()",
    "leaves a thread behind": (
        "import threading, time\nthreading.Thread(target=lambda: time.sleep(1000)).start()\nprint(16)"
    ),
    "starts a thousand threads": (
        "import threading, time\nfor _ in range(1000):\n    threading.Thread(target=time.sleep, args=(1000,)).start()"
    ),
    "takes ten gigabytes": "block = bytearray(10 * 2**30)\nprint(16)",
    "takes memory bit by bit": "blocks = []\nwhile True:\n    blocks.append(bytearray(2**20))",
    "takes shared memory": (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "for _ in range(100):\n    print(libc.shmget(0, ctypes.c_size_t(2**30), 0o1600))"
    ),
    "takes memory in nameless files": (
        "import os\nheld = []\nwhile True:\n    held.append(os.memfd_create('m'))\n    os.write(held[-1], b'x' * 2**22)"
    ),
    "prints a gigabyte": "for _ in range(1024):\n    print('x' * 2**20)",
    "writes to the result without end": "import os\nwhile True:\n    for fd in range(3, 32):\n        try:\n"
    "            os.write(fd, b'x' * 65536)\n        except OSError:\n            pass",
    "fills the disk": "with open('/tmp/full', 'wb') as file:\n    while True:\n        file.write(b'x' * 2**20)",
    "fills the disk with small files": "import itertools\nfor at in itertools.count():\n"
    "    open(f'/tmp/{at}', 'wb').write(b'x' * 2**16)",
    "recurses to the end": "import sys\nsys.setrecursionlimit(10**9)\ndef f():\n    return f()\nf()",
    "recurses in C": "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6):\n    x = [x]\nrepr(x)",
    "prints a huge number": "import sys\nsys.set_int_max_str_digits(0)\nprint(9 ** (9 ** 9))",
    "matches a regular expression without end": "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')",
    "is a huge constant": "x = 9 ** 9 ** 9 ** 9",
    "is nested deeper than a parser": "print(" + "(" * 10_000 + "16" + ")" * 10_000 + ")",
    "is no program": "The answer is 16, and then 107.",
    # after other processes
    "forks without end": "import os\nfor _ in range(5000):\n    os.fork()",
    "forks from C": "import ctypes\nlibc = ctypes.CDLL(None)\nfor _ in range(5000):\n    libc.fork()",
    "starts a shell": "import os\nos.system('echo 16')",
    "kills all it may": "import os\nos.kill(-1, 9)",
    "kills its parent": "import os\nos.kill(os.getppid(), 9)\nos.kill(1, 9)\nprint(16)",
    "traces another process": "import ctypes\nprint(ctypes.CDLL(None).ptrace(16, 1, 0, 0))",
    # after files and the network
    "reads what processes there are": "import os\nprint(os.listdir('/proc'))",
    "reads passwords": "print(open('/etc/passwd').read())",
    "reads the environment": "import os\nprint(dict(os.environ))",
    "reads the driver": "print(open('/driver.py').read())",
    "looks for the tests": "import glob\nprint([open(p).read() for p in glob.glob('/work/**/*.py', recursive=True)])",
    "links to a file outside": "import os\nos.symlink('/etc/shadow', '/tmp/link')\nprint(open('/tmp/link').read())",
    "writes to the interpreter": "import os\nopen(os.__file__, 'a').write('print(16)')",
    "calls home": "import socket\nsocket.create_connection(('1.1.1.1', 80), 1).send(b'hello')",
    # after the verdict
    "ends at once": "import os\nos._exit(0)",
    "ends as if all were well": "import sys\nprint('all tests pass')\nsys.exit(0)",
    "equals everything": (
        "class Same(str):\n    def __eq__(self, other):\n        return True\n"
        "    def __hash__(self):\n        return 0\n"
        "    def __str__(self):\n        return self\nprint(Same('anything'))"
    ),
    "forges the driver's lines": (
        "import os\nfor fd in range(1, 32):\n    try:\n"
        '        os.write(fd, b\'{"output": "16", "passed": true}\\n{"reward": 1}\\n\' * 2)\n'
        "    except OSError:\n        pass\nos._exit(0)"
    ),
    "patches the driver": (
        'import sys, json, gc\njson.dumps = lambda *a, **k: \'{"output": true, "error": null, "reward": 1}\'\n'
        "frame = sys._getframe()\nwhile frame:\n    frame.f_globals['_write'] = print\n    frame = frame.f_back"
    ),
    "searches memory for the output": (
        "import gc, sys\nfound = [str(o) for o in gc.get_objects() if isinstance(o, dict) and 'output' in o]\n"
        "frame = sys._getframe()\nwhile frame:\n    found += [str(v) for v in frame.f_locals.values()]\n"
        "    frame = frame.f_back\nprint(found)"
    ),
}
