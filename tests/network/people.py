"""People at their hosts: they type the commands of the READMEs, and tell one another addresses, coins and files."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.e2e.walks import BASH, Terminal, blocks, checkout, commands, terminal
from tests.network.ground import Ground, Site

ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}\b")
PATIENT = """
patiently() {
    local code=0; command "$@" || code=$?
    if [ $code != 3 ] || [ "$2 $3" = "coordinator status" ]; then return $code; fi
    echo "$@" >> ~/again; sleep 1; command "$@"
}
assize() { patiently assize "$@"; }
python() { patiently python "$@"; }
"""
"""A person types a command again that did not get through, once."""
IN_FOLDER = 'cd "$0" && exec bash --norc --noprofile -e'
LONG_SECONDS = 600.0


@dataclass
class Count:
    """Commands typed by all people, said as they are typed."""

    say: Callable[[str], None]
    typed: int = 0

    def type(self, who: str, block: str) -> None:
        """Counts and says the commands of a block."""
        for command in commands(block):
            self.typed += 1
            self.say(f"{who}$ {command.splitlines()[0][:140]}")


@dataclass
class Person:
    """Someone at a host, with a checkout of this repository in the home folder.

    ``words`` are put for others in what the READMEs say, such as another name.
    """

    ground: Ground
    host: str
    opened: ExitStack
    count: Count
    words: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        site = self.site
        if not (site.folder / "assize").exists():
            checkout(site.folder / "assize")
        self.first = self.terminal("first")

    @property
    def site(self) -> Site:
        """The host."""
        return self.ground.sites[self.host]

    def terminal(self, name: str) -> Terminal:
        """Opens one more terminal."""
        site = self.site
        words = (*site.entering, "bash", "-c", IN_FOLDER, str(site.home / "assize")) if self.ground.separate else BASH
        opened = self.opened.enter_context(
            terminal(site.folder / "assize", f"{self.host}-{name}", site.environment(), words)
        )
        opened.types(PATIENT)
        return opened

    @property
    def typed_again(self) -> int:
        """Commands that were typed a second time."""
        place = self.site.folder / "again"
        return len(place.read_text().splitlines()) if place.exists() else 0

    def says(self, readme: str, heading: str, number: int) -> str:
        """Returns a block of a README, in this person's words."""
        return self.own(blocks(f"{readme}/README.md", heading)[number])

    def own(self, block: str) -> str:
        """Returns a block in this person's words."""
        for word, other in self.words.items():
            block = block.replace(word, other)
        if not self.ground.separate:
            block = block.replace("0.0.0.0", self.ground.plan.own(self.host))
            for name, address in self.ground.plan.names().items():
                block = block.replace(name, address)
        return block

    def types(self, block: str, seconds: float = LONG_SECONDS) -> str:
        """Types a block and waits until all of it is done; returns what was shown."""
        self.count.type(self.host, block)
        return self.first.finishes(block, seconds)

    def begins(self, block: str, name: str, until: str = "", seconds: float = LONG_SECONDS) -> Terminal:
        """Types a block, whose last command goes on, in a terminal of its own; waits until something is shown."""
        opened = self.terminal(name)
        opened.finishes('export PATH="$PWD/.venv/bin:$PATH"')
        self.count.type(self.host, block)
        opened.types(block)
        opened.waits_for(until, seconds)
        return opened

    def receives(self, giver: Person, file: str) -> None:
        """Has one file copied from another host, as by scp."""
        self.count.typed += 1
        self.count.say(f"{giver.host}$ scp {file} {self.host}:")
        whole = giver.site.folder / "assize" / file
        shutil.copyfile(whole, self.site.folder / "assize" / whole.name)


def address_in(shown: str) -> str:
    """Returns the last address that was shown."""
    return ADDRESS.findall(shown)[-1]


def clocked(began: float) -> Callable[[str], None]:
    """Returns a function that prints a line with the seconds since ``began``."""

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)

    return say
