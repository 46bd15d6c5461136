"""Machine code for the few loops that neither torch nor numpy runs in one pass, compiled by numba on first use.

No compiler is needed on the host. Compiled code is cached beside the source, or in the user's cache directory if that
is not writable (``NUMBA_CACHE_DIR`` names another), so a machine compiles once; without a writable directory every
process compiles anew. Importing numba and loading the cache takes half a second, so a module of kernels is imported
by the first call that needs it, through ``kernels``.

Each function is compiled for one signature and refuses others. Arithmetic is IEEE, in the order written: without
``fastmath`` and without contraction of a product and a sum, so the bits are numpy's.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from protocol.files import lock

Function = TypeVar("Function", bound=Callable[..., Any])


@functools.cache
def kernels(name: str) -> Any | None:
    """Returns the module of this full ``name``, or ``None`` if numba does not load on this host."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return None
    return importlib.import_module(name)


def compiled(signature: str) -> Callable[[Function], Function]:
    """Compiles a function for ``signature``, in numba's notation, unless the cache holds it already."""

    def compile_for_signature(function: Function) -> Function:
        dispatcher = _dispatcher(function)
        with _locked(dispatcher.stats.cache_path):
            dispatcher.compile(signature)
        dispatcher.disable_compile()
        kernel: Function = dispatcher
        return kernel

    return compile_for_signature


def inlined(function: Function) -> Function:
    """Marks a function that compiled functions of the same file call."""
    import numba

    called: Function = numba.njit(**_OPTIONS)(function)
    return called


_OPTIONS = {"nogil": True, "error_model": "numpy"}


def _dispatcher(function: Callable[..., Any]) -> Any:
    import numba

    try:
        return numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # no directory to cache compiled code in
        return numba.njit(**_OPTIONS)(function)


@contextlib.contextmanager
def _locked(directory: str | None) -> Iterator[None]:
    """Lets one process at a time compile into ``directory``; processes that waited find the result cached."""
    if directory is None:
        yield
        return
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    with lock(path / "compiling.lock", seconds=math.inf):
        yield
