"""Virtual environments behind one link: the link is what people and units name, and exchanging it is one rename.

    venv -> venv-20261127T101500
    venv-20261127T101500            the version in use
    venv-20261101T080000            the one before it

An environment that is not behind a link yet is moved aside and becomes the first one. Its scripts name the link, so
that they work as before.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from time import gmtime, strftime

from protocol.errors import Misconfigured, Rejected, accessing

NAME = "assize"
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!]{0,63}")
_MADE = re.compile(r"-\d{8}T\d{6}$")
"""Suffix that ``make_environment`` adds to the name of the link."""
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_OF_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")


def environment_link() -> Path:
    """Returns the environment that this process runs in: the link that names it, where there is one.

    Raises:
        Misconfigured: it runs in none.
    """
    if sys.prefix == sys.base_prefix:
        raise Misconfigured(
            "assize is not installed in a virtual environment of its own: make one, and install it there"
        )
    running = Path(sys.prefix)
    link = running.with_name(_MADE.sub("", running.name))
    return link if link.is_symlink() and link.resolve() == running.resolve() else running


def requirement_of(to: str | None, extras: Iterable[str]) -> str:
    """Returns what pip installs: a wheel, a version by its number, or the newest one. PURE but for looking at the file.

    Raises:
        Misconfigured: the text is neither.
    """
    named = f"{NAME}[{','.join(sorted(extras))}]" if extras else NAME
    if to is None:
        return named
    if to.endswith(".whl"):
        wheel = Path(to).absolute()
        if not wheel.is_file():
            raise Misconfigured(f"cannot read the wheel {to}: no such file")
        return f"{named} @ {wheel.as_uri()}"
    if not _VERSION.fullmatch(to):
        raise Misconfigured(f"invalid version {to[:64]!r}: expected numbers such as 0.3.1, or a file that ends in .whl")
    return f"{named}=={to}"


def extras_in_use() -> list[str]:
    """Returns the extras all of whose packages are installed: those that this installation was made with."""
    return satisfied_extras(distribution(NAME).requires or [], _is_installed)


def satisfied_extras(requires: Iterable[str], is_installed: Callable[[str], bool]) -> list[str]:
    """Returns the extras of these requirements whose packages are all installed. PURE."""
    found: dict[str, bool] = {}
    for requirement in requires:
        extra, package = _OF_EXTRA.search(requirement), _REQUIREMENT.match(requirement)
        if extra is not None and package is not None:
            found[extra[1]] = found.get(extra[1], True) and is_installed(package[1])
    return sorted(extra for extra, whole in found.items() if whole)


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def make_environment(link: Path, requirement: str) -> Path:
    """Makes a new environment beside the one in use and installs into it; nothing is left of one that fails.

    Raises:
        Misconfigured: no folder can be made there.
        Rejected: pip does not install it; the message has its last line.
    """
    made = link.with_name(f"{link.name}-{strftime('%Y%m%dT%H%M%S', gmtime())}")
    with accessing(f"make the environment {made}"):
        made.mkdir()
    try:
        _run_or_refuse([sys.executable, "-m", "venv", str(made)], requirement)
        pip = [str(made / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        _run_or_refuse([*pip, "install", "--quiet", requirement], requirement)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return made


def _run_or_refuse(words: list[str], requirement: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise Rejected(f"cannot install {requirement}: {lines[-1].strip() if lines else 'pip says nothing'}")


def version_in(environment: Path) -> str:
    """Returns the version that an environment has; raises ``Rejected`` if it does not run."""
    words = [str(environment / "bin" / NAME), "version", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    try:
        return str(json.loads(done.stdout)["version"])
    except (ValueError, KeyError, TypeError):
        lines = done.stderr.strip().splitlines()
        raise Rejected(f"the new version does not run: {lines[-1] if lines else 'it says nothing'}") from None


def put_behind_link(link: Path) -> Path:
    """Returns the environment behind a link, which is made for one that is not behind a link yet."""
    with accessing(f"move {link} behind a link"):
        if not link.is_symlink():
            kept = link.with_name(f"{link.name}-{strftime('%Y%m%dT%H%M%S', gmtime(link.stat().st_mtime))}")
            link.rename(kept)
            link.symlink_to(kept.name)
        return link.resolve()


def point_link(link: Path, environment: Path) -> None:
    """Has a link name another environment, at once: readers see the one or the other."""
    incoming = link.with_name(f".{link.name}.incoming")
    with accessing(f"exchange the link {link}"):
        incoming.unlink(missing_ok=True)
        incoming.symlink_to(environment)
        os.replace(incoming, link)


def remove_older(link: Path, kept: Iterable[Path]) -> None:
    """Removes environments that earlier updates made beside a link, except ``kept``."""
    spared = {each.resolve() for each in kept}
    for folder in link.parent.iterdir():
        made = folder.name != link.name == _MADE.sub("", folder.name)
        if made and folder.is_dir() and folder.resolve() not in spared:
            shutil.rmtree(folder, ignore_errors=True)
