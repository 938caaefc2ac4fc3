"""The pool of threads in a child that is forked while another thread of the parent is in a region."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, os, threading, time
from polyker.runtime.threads import pool
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
REGION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
region = REGION(pool().parallel_for)
sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)  # int usleep(unsigned): its argument is the context
stop, PARTS = threading.Event(), 64  # more than workers that come at once

def regions():
    while not stop.is_set():
        region(sleep, 1000, 0, PARTS, None)
        time.sleep(0.0007)  # until the worker has gone to sleep: it then claims its part late

def wrong_in_child():
    for _ in range(20):
        ran = []
        function = FUNCTION(lambda _, index: ran.append(index) or 0)
        region(ctypes.cast(function, ctypes.c_void_p), None, 0, PARTS, None)
        if sorted(ran) != list(range(PARTS)):
            return 1
    return 0

thread = threading.Thread(target=regions)
thread.start()
bad = 0
for _ in range(60):
    child = os.fork()
    if child == 0:
        import signal
        signal.alarm(10)
        os._exit(wrong_in_child())
    bad += os.waitpid(child, 0)[1] != 0
stop.set()
thread.join()
print(bad)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_takes_up_no_region_of_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.stdout == "0\n", done.stdout + done.stderr
