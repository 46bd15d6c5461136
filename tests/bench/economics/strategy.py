"""A strategy: what its holder has, and what its nodes do where the documented daemons would do something else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from protocol.chain.structs import Verdict
from tests.bench.economics.world import JURORS, OUTSIDER, PROVIDERS, Quality, World
from tests.model.round import Round


@dataclass(frozen=True, slots=True)
class Move:
    """What a juror does with its seat. No verdicts: an abstention. Bytes of ``read`` jobs were paid for by checking."""

    verdicts: dict[int, Verdict] | None = None
    commits: bool = True
    reveals: bool = True
    read: int = 0


SILENT = Move(commits=False)
ABSTAINS = Move(verdicts={})
EIGHTH, FIFTH, THIRD = len(JURORS) // 8, len(JURORS) // 5, len(JURORS) // 3


class Strategy:
    """Does in everything as the documented daemons do, unless it changes it.

    ``jurors`` and ``workers`` say how many nodes the holder has. ``discards`` is how many blocks its block producer
    throws away at most until a draw is to its liking.
    """

    name: ClassVar[str]
    hostile: ClassVar[bool] = True
    """Whether the holder's seats count towards a hostile majority."""
    jurors: ClassVar[int] = FIFTH
    workers: ClassVar[int] = 0
    others: ClassVar[tuple[str, ...]] = ()
    """Addresses of the holder that own no nodes."""
    discards: ClassVar[int] = 0
    careless: ClassVar[int] = 0
    """Jurors after the holder's that accept everything unread; neither honest nor of the holder."""
    watched: ClassVar[bool] = False
    """Whether somebody honest checks every job of a round after its tally."""
    traps: ClassVar[float] = 0.0
    """Share of all jobs in which a node of the requester's plants a fault, in place of what the outsider does."""
    reads: ClassVar[bool] = True
    """Whether honest jurors can take part in the holder's run in time."""
    confirms: ClassVar[bool] = False
    """Whether honest jurors of a trial vote for the verdict appealed against on work at a bound."""
    receipts: ClassVar[bool] = True
    """Whether the holder's worker hands its files in to the run's stores: nobody reads any without receipts."""
    stores: ClassVar[bool] = False
    """Whether the holder decides what the run's stores serve, or the rules name none: then see ``serves``."""
    hole: ClassVar[str] = ""
    """What is open to it under the present rules: who loses, or what goes unpunished."""

    @property
    def held(self) -> list[str]:
        """Every address of the holder."""
        return [*JURORS[: self.jurors], *PROVIDERS[: self.workers], *self.others]

    @property
    def apart(self) -> list[str]:
        """Owners that are neither honest nor of the holder."""
        return [OUTSIDER, *JURORS[self.jurors : self.jurors + self.careless]]

    def begins(self, world: World) -> None:
        """Before the first round."""

    def comes_first(self, world: World) -> int:
        """Before a round; returns the run that it is of."""
        return 1

    def works(self, world: World) -> Quality:
        """The work on a job of the holder's worker."""
        return Quality.GOOD

    def serves(self, world: World, judging: Round, job: int, juror: int) -> bool:
        """Whether a juror can read the bytes of a job, where the stores are the holder's."""
        return True

    def keeps(self, world: World, owner: str) -> bool:
        """Whether this owner's work is in the holder's hands."""
        return owner in world.held

    def votes(self, world: World, judging: Round, juror: int, honest: Move) -> Move:
        """What a juror of the holder does, which could do as an honest one."""
        return honest

    def appeals(self, world: World, round: Round) -> list[tuple[str, int]]:
        """Whom the holder lets appeal against the verdict on which jobs."""
        return []

    def likes(self, world: World, judging: Round, jurors: list[int]) -> bool:
        """Whether the holder's block producer keeps a block, given the committee that follows from it."""
        return True


def share(world: World, jurors: list[int]) -> int:
    """How many of these seats are the holder's."""
    return sum(world.is_held(juror) for juror in jurors)


def hostile(world: World, strategy: Strategy, jurors: list[int]) -> int:
    """How many of these seats are not honest."""
    owners = {*(strategy.held if strategy.hostile else []), *strategy.apart}
    return sum(world.protocol.registry.nodes[juror].owner in owners for juror in jurors)


def splits(world: World, judging: Round, juror: int) -> bool:
    """Whether a juror is among those who may read: the holder's, and of the honest one less than a majority."""
    honest = [seat.juror for seat in judging.seats if not world.is_held(seat.juror)]
    return world.is_held(juror) or honest.index(juror) < judging.threshold - 1


def same(judging: Round, verdict: Verdict) -> Move:
    """The same verdict on all jobs, unread."""
    return Move(dict.fromkeys(judging.submitted, verdict))
