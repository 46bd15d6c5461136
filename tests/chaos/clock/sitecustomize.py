"""Sets the clock of the process that finds this on its path: hours off, as far as a program can tell."""

import os
import time

_SECONDS = float(os.environ["ASSIZE_CHAOS_CLOCK_SECONDS"])
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _SECONDS
time.time_ns = lambda: _time_ns() + int(_SECONDS * 1e9)
