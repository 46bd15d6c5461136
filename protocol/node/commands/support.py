"""``assize support bundle``: packs what somebody who helps needs to see, without secrets.

    versions.json     of this software, Python, the system and every package
    settings.json     per role, each setting: its value where it is a number or one of few words, else only its kind
    doctor.json       results of every role's doctor
    health/ROLE.json  the health file
    metrics/ROLE.txt  what the metrics port answers
    logs/ROLE-N.log   the last MiB of each log file and of the journal of the role's units
    state.json        sizes and ages of the state folder's files, by kind
    left-out.json     what there was and is not in it

Keystores, password files and the profile are never packed. Every text passes ``protocol.node.redaction``, which knows
the values of all settings and variables.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

import typer

from protocol.errors import AssizeError, Misconfigured, accessing
from protocol.files import tail
from protocol.node.activity import HEALTH_FILE
from protocol.node.commands.config import settings_of
from protocol.node.commands.examining import configured_roles, examined
from protocol.node.console import guard
from protocol.node.profile import Profile
from protocol.node.redaction import Redaction, is_local, names_secret, shown_url
from protocol.node.wallet import default_directory

MOST_FILE_BYTES = 1 << 20
MOST_BYTES = 32 << 20
MOST_LOGS = 8
"""Bytes of one file in the bundle, of all of them, and log files of one role."""
JOURNAL_LINES = 20_000
MORE_UNITS = {"worker": ("fleet",), "validator": ("background",)}
"""Units of a role besides those that begin with its name."""
ASKING_SECONDS = 20.0
ORDINARY = frozenset({"PATH", "PWD", "OLDPWD", "SHELL", "LANG", "TERM", "TZ", "SHLVL", "_", "LS_COLORS", "PYTHONPATH"})
"""Variables whose values are no secrets, and whose parts stand in every text."""
KNOWN_SUFFIXES = frozenset({".db", ".sqlite", ".json", ".jsonl", ".log", ".parquet", ".safetensors", ".pt", ".lock"})
WORDS = frozenset({"cpu", "cuda", "debug", "info", "warning", "error", "transformers", "vllm", "password", ""})
"""Values of settings that are shown as they are, besides numbers; many a password file is called ``password``."""

app = typer.Typer(no_args_is_help=True, help="Pack what somebody who helps needs to see, without secrets.")


@app.callback()
def support() -> None:
    """Pack what somebody who helps needs to see, without secrets."""


@app.command()
@guard
def bundle(
    out: Annotated[Path | None, typer.Option("--out", help="File to write; else one in this folder.")] = None,
) -> None:
    """Pack versions, settings, the doctor's results, logs, health and metrics into a file, and list what is in it."""
    place = out or Path(f"assize-support-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.tar.gz")
    if place.exists():
        raise Misconfigured(f"{place} exists: give another --out")
    packed = gather(Profile.current())
    with accessing(f"write {place}"):
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(packed.archive())
    for name, data in packed.files.items():
        print(f"{len(data):>9,}  {name}")
    for what, why in packed.left_out:
        print(f"left out: {what}: {why}")
    print(f"wrote {place}, {place.stat().st_size:,} bytes; read it before you pass it on")


@dataclass
class SupportBundle:
    """The files of a bundle by name, and what was left out of it with the reason."""

    redact: Redaction
    files: dict[str, bytes] = field(default_factory=dict)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    most: int = MOST_BYTES

    def add(self, name: str, text: str) -> None:
        """Adds a text without its secrets, unless the bundle is full; of a long one the end."""
        self._keep(name, self.redact(text))

    def add_json(self, name: str, value: Any) -> None:
        """Adds a value; its texts lose their secrets one by one, so that it stays JSON."""
        self._keep(name, json.dumps(_redacted(value, self.redact), indent=1) + "\n")

    def _keep(self, name: str, text: str) -> None:
        data = text.encode(errors="replace")
        if len(data) > MOST_FILE_BYTES:
            self.left_out.append((name, f"its first {len(data) - MOST_FILE_BYTES:,} bytes"))
            data = data[-MOST_FILE_BYTES:]
        if sum(map(len, self.files.values())) + len(data) > self.most:
            self.left_out.append((name, f"the bundle is full at {self.most:,} bytes"))
            return
        self.files[name] = data

    def archive(self) -> bytes:
        """Returns the gzipped tar, which tells nothing of this machine's users."""
        held = io.BytesIO()
        with tarfile.open(fileobj=held, mode="w:gz") as tar:
            for name, data in self.files.items():
                member = tarfile.TarInfo(f"assize-support/{name}")
                member.size, member.mode = len(data), 0o600
                tar.addfile(member, io.BytesIO(data))
        return held.getvalue()


def gather(profile: Profile) -> SupportBundle:
    """Returns a bundle of every role that is configured here."""
    roles, stated = configured_roles(profile), dict[str, dict[str, tuple[Any, str]]]()
    problems: dict[str, str] = {}
    for role in ("commands", *roles):
        try:
            stated[role] = {key: (found.value, found.place) for key, found in settings_of(role, None)}
        except AssizeError as error:
            problems[role] = str(error)
    packed = SupportBundle(Redaction(dict(_private(profile, stated)), _is_seed_word()))
    packed.files["versions.json"] = (json.dumps(versions(), indent=1) + "\n").encode()  # nothing of it is anyone's own
    shown = {role: {key: described(*found) for key, found in rows.items()} for role, rows in stated.items()}
    packed.add_json("settings.json", {"settings": shown, "problems": problems, "variables": _variables()})
    packed.add_json("doctor.json", {role: examined(role, asks=False) for role in roles})
    for role in roles:
        values = {key: value for key, (value, _) in stated.get(role, {}).items()}
        _add_state(packed, role, values)
        _add_metrics(packed, role, values)
        add_logs(packed, role, values)
    packed.left_out += [("keystores, password files, the profile", "never packed")]
    packed.add_json("left-out.json", [{"what": what, "why": why} for what, why in packed.left_out])
    return packed


def versions() -> dict[str, Any]:
    """Returns the versions of everything that this software runs on."""
    packages = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    system = {"system": platform.platform(), "machine": platform.machine(), "cores": os.cpu_count()}
    with suppress(OSError):
        system["distribution"] = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    return {"python": sys.version, **system, "assize": packages.get("assize"), "packages": packages}


def described(value: Any, place: str) -> dict[str, Any]:
    """Returns a setting as it may be shown: numbers and known words as they are, others by their kind. PURE."""
    source = next(
        (each for each in ("variable", "default", "not set", "profile", "[") if place.startswith(each)), "file"
    )
    return {"value": _kind(value), "from": "profile" if source == "[" else source}


def _kind(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list | tuple | set | frozenset):
        return [_kind(each) for each in value]
    text = str(value)
    if text in WORDS or text.lstrip("-").replace(".", "", 1).isdecimal():
        return text
    if "://" in text:
        return [shown_url(each.strip()) for each in text.split(",")]
    if isinstance(value, Path) or os.sep in text:
        return "a path, there" if Path(text).expanduser().exists() else "a path, not there"
    return "set"


def _private(profile: Profile, stated: Mapping[str, Mapping[str, tuple[Any, str]]]) -> Iterator[tuple[str, str]]:
    """Yields a name and a value of all that is private: settings, variables, passwords, targets, names of keys."""
    numbers = Counter[str]()

    def numbered(name: str) -> str:
        numbers[name] += 1
        return name if numbers[name] == 1 else f"{name} {numbers[name]}"

    for name, value in os.environ.items():
        if name not in ORDINARY:
            for text in _texts(value):
                yield numbered("variable"), text
    for role, rows in stated.items():
        for key, (value, place) in rows.items():
            for text in _texts(value) if place != "default" else ():
                yield numbered(f"{role} {key}"), text
            if key in ("password_file", "urls_file") and value:
                for text in _lines(Path(str(value))):
                    yield numbered(f"{role} {key}"), text
    for text in _texts(profile.content):
        yield numbered("profile"), text
    with suppress(OSError, AssizeError):
        for path in sorted(default_directory().iterdir()):
            yield numbered("keystore"), path.stem
    yield "home", str(Path.home())
    yield "host", platform.node()


def _texts(value: Any) -> Iterator[str]:
    """Yields the texts in a value, and the parts of those with commas."""
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str | Path) and str(value) not in WORDS:
        for part in {str(value), *str(value).split(",")}:
            yield part
            yield from _parts_of_url(part)


def _parts_of_url(text: str) -> Iterator[str]:
    """Yields the user, the password and all that follows the host of a URL: each may be shown without the rest."""
    if "://" in text:
        with suppress(ValueError):
            parts = urlsplit(text.strip())
            host = None if is_local(parts.hostname) else parts.hostname
            yield from filter(None, (host, parts.username, parts.password, *parts.path.split("/"), parts.fragment))
            yield from (value for _, value in parse_qsl(parts.query))


def _lines(path: Path) -> list[str]:
    with suppress(OSError, ValueError):
        return [line.strip() for line in path.read_text()[:MOST_FILE_BYTES].splitlines() if line.strip()]
    return []


def _is_seed_word() -> Any:
    from eth_account.hdaccount.mnemonic import Language, Mnemonic

    return frozenset(Mnemonic(Language.ENGLISH).wordlist).__contains__


def _variables() -> list[str]:
    """Returns the names of our variables that are set."""
    from protocol.node.commands.config import known_variables

    known = known_variables()
    ours = [name for name in os.environ if name.startswith("ASSIZE_")]
    return [*sorted(name for name in ours if name in known), f"{sum(name not in known for name in ours)} others"]


def _redacted(value: Any, redact: Redaction, name: str = "") -> Any:
    """Returns a value for JSON without secrets; texts under a ``name`` such as password are none that is shown."""
    if isinstance(value, Mapping):
        return {redact(str(key)): _redacted(each, redact, str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(each, redact, name) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return "***" if names_secret(name) else redact(str(value))


def _add_state(packed: SupportBundle, role: str, values: Mapping[str, Any]) -> None:
    """Adds the health file, and sizes by kind of file: names of files may be anything."""
    if not (told := values.get("state_dir")):
        return
    folder = Path(str(told)).expanduser()
    with suppress(OSError, ValueError):
        packed.add_json(f"health/{role}.json", json.loads((folder / HEALTH_FILE).read_bytes()))
    sizes, counts = Counter[str](), Counter[str]()
    for path in folder.rglob("*") if folder.is_dir() else ():
        with suppress(OSError):
            if path.is_file() and not path.is_symlink():
                kind = path.suffix if path.suffix in KNOWN_SUFFIXES else "other"
                sizes[kind] += path.stat().st_size
                counts[kind] += 1
    free = shutil.disk_usage(folder).free if folder.is_dir() else None
    packed.add_json(f"state/{role}.json", {"there": folder.is_dir(), "free": free, "bytes": sizes, "files": counts})


def _add_metrics(packed: SupportBundle, role: str, values: Mapping[str, Any]) -> None:
    import httpx

    ports = {role: values.get("metrics_port")}
    ports |= {f"{role}-{part}": values.get(f"{part}_metrics_port") for part in ("api", "precheck")}
    host = str(values.get("metrics_host") or "127.0.0.1")
    for name, port in ports.items():
        if not port:
            continue
        url = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{int(port)}/metrics"
        try:
            with httpx.stream("GET", url, timeout=ASKING_SECONDS, trust_env=False) as answer:
                text = ""
                for piece in answer.iter_text():
                    text += piece
                    if len(text) > MOST_FILE_BYTES:
                        break
            packed.add(f"metrics/{name}.txt", text)
        except httpx.HTTPError as error:
            packed.left_out.append((f"metrics of {name}", type(error).__name__))


def add_logs(packed: SupportBundle, role: str, values: Mapping[str, Any]) -> None:
    """Adds the ends of log files in the state folder and in ``logs`` beside it, and of the journal of the units."""
    found: list[Path] = []
    if told := values.get("state_dir"):
        folder = Path(str(told)).expanduser()
        places = (folder, folder.parent / "logs", folder / "logs")
        found = sorted({path for place in places for path in place.glob("*.log") if _is_own(path)})
        if places[1].is_dir():  # of all roles: those of this one
            found = [path for path in found if path.parent != places[1] or path.stem.startswith(role)]
    if len(found) > MOST_LOGS:
        packed.left_out.append((f"{len(found) - MOST_LOGS} log files of {role}", f"more than {MOST_LOGS}"))
    for number, path in enumerate(found[:MOST_LOGS], 1):
        try:
            packed.add(f"logs/{role}-{number}.log", tail(path, MOST_FILE_BYTES))  # half a line might hide half a secret
        except OSError as error:
            packed.left_out.append((f"log file {number} of {role}", error.strerror or type(error).__name__))
    if journal := _journal(role):
        packed.add(f"logs/{role}-journal.log", journal)


def _is_own(path: Path) -> bool:
    """Returns whether a log is a file, not a link: where others may write, one could lead to anything."""
    return path.is_file() and not path.is_symlink()


def _journal(role: str) -> str:
    """Returns the last lines of the journal of the role's units; nothing where there is no journal."""
    program = shutil.which("journalctl")
    if program is None:
        return ""
    words = [program, "--no-pager", "--quiet", "-o", "short-iso", "-n", str(JOURNAL_LINES)]
    words += [word for unit in (role, *MORE_UNITS.get(role, ())) for word in ("-u", f"assize-{unit}*")]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(words, capture_output=True, timeout=ASKING_SECONDS, check=False, stdin=subprocess.DEVNULL)
        lines = done.stdout[-MOST_FILE_BYTES:].decode(errors="replace")
        return lines if len(done.stdout) <= MOST_FILE_BYTES else lines.partition("\n")[2]
    return ""
