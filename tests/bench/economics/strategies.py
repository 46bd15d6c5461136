"""Every strategy that is played. One more is one class, listed in ``STRATEGIES``."""

from __future__ import annotations

from dataclasses import replace

from eth_utils.crypto import keccak

from protocol.chain.structs import Role, RunTerms, Verdict
from protocol.wire.assignments import Listing, pack_assignments
from tests.bench.economics.playing import watch
from tests.bench.economics.strategy import ABSTAINS, EIGHTH, FIFTH, SILENT, THIRD, Move, Strategy, same, share, splits
from tests.bench.economics.terms import MARGIN, PROTOCOL, RUN, TOKEN, TRAP_RATE, TRAPS_PER_NEEDED
from tests.bench.economics.world import JURORS, PROVIDERS, WATCHER, Quality, World
from tests.model.market import MAX_COMMITTEE
from tests.model.parties import COORDINATOR, REQUESTER, TRAINER, address_of
from tests.model.round import Round


class Honest(Strategy):
    """As the documented daemons are."""

    name = "honest"
    hostile = False


class Lazy(Strategy):
    """Accepts everything unread, in first committees and in trials."""

    name = "lazy"

    def votes(self, world: World, judging: Round, juror: int, honest: Move) -> Move:
        return same(judging, Verdict.ACCEPTED)


class LazyTrapped(Lazy):
    """Lazy, while the requester plants faults and appeals, at its own cost, whatever a juror accepted of them."""

    name = "lazy, with traps"
    traps = TRAPS_PER_NEEDED * TRAP_RATE


class LazyWatched(Lazy):
    """Lazy, while somebody honest checks every job of a round after its tally."""

    name = "lazy, watched"
    watched = True


class LazyHalf(LazyWatched):
    """The same, when half of all validators are lazy; trials have lazy jurors as well."""

    name = "half lazy, watched"
    jurors = len(JURORS) // 2


class LazyMost(LazyWatched):
    """The same, when nearly all validators are lazy."""

    name = "most lazy, watched"
    jurors = len(JURORS) - EIGHTH


class Abstaining(Strategy):
    name = "always abstain"

    def votes(self, world: World, judging: Round, juror: int, honest: Move) -> Move:
        return ABSTAINS


class Unavailable(Strategy):
    name = "always unavailable"

    def votes(self, world: World, judging: Round, juror: int, honest: Move) -> Move:
        return same(judging, Verdict.UNAVAILABLE)


class SilentThird(Strategy):
    """A third of the validators never votes; they keep their bonds above the least one."""

    name = "silent third"
    jurors = THIRD

    def votes(self, world: World, judging: Round, juror: int, honest: Move) -> Move:
        return SILENT


class LateThird(Strategy):
    """A third of the validators commits and never reveals."""

    name = "third that hides its votes"
    jurors = THIRD

    def votes(self, world: World, judging: Round, juror: int, honest: Move) -> Move:
        return replace(honest, reveals=False)


class Withholding(Strategy):
    """Signs good work and hands it to no store, then appeals."""

    name = "withhold"
    jurors, workers = EIGHTH, 1
    receipts = False

    def appeals(self, world: World, round: Round) -> list[tuple[str, int]]:
        return [(PROVIDERS[0], job) for job in _own(world, round) if round.verdicts[job] != Verdict.ACCEPTED]


class WithholdingWithStores(Withholding):
    """Its stores give receipts, serve its own jurors only, and everybody on appeal."""

    name = "withhold, with the stores"
    stores = True
    hole = "jurors that rightly called a file unavailable have a strike each once a trial is shown it"

    def serves(self, world: World, judging: Round, job: int, juror: int) -> bool:
        return judging.appeal is not None or world.is_held(juror)


class WithholdingAfterTheDraw(Strategy):
    """Submits junk that no store has: a committee of its own accepts it, every other one finds it unavailable."""

    name = "withhold after the draw"
    jurors, workers = FIFTH, 1
    receipts = False
    hole = "junk that only a committee of its own gets to see costs nothing: to any other it is unavailable"

    def works(self, world: World) -> Quality:
        return Quality.FRAUD

    def votes(self, world: World, judging: Round, juror: int, honest: Move) -> Move:
        return replace(honest, verdicts={**(honest.verdicts or {}), **_accepting(world, judging)})


class HidingFromTheTrial(Strategy):
    """Cheats, and appeals the fraud verdict; it would hide the file, but the run's stores have it."""

    name = "hide from the trial"
    jurors, workers = FIFTH, 1

    def works(self, world: World) -> Quality:
        return Quality.FRAUD

    def votes(self, world: World, judging: Round, juror: int, honest: Move) -> Move:
        return replace(honest, verdicts={**(honest.verdicts or {}), **_accepting(world, judging)})

    def appeals(self, world: World, round: Round) -> list[tuple[str, int]]:
        return [(PROVIDERS[0], job) for job in _own(world, round) if round.verdicts[job] == Verdict.FRAUD]


class HidingFromTheTrialWithStores(HidingFromTheTrial):
    """Its stores serve the file to so few of the trial that neither side has a majority."""

    name = "hide from the trial, with the stores"
    stores = True

    def serves(self, world: World, judging: Round, job: int, juror: int) -> bool:
        return not judging.appeal or splits(world, judging, juror)


class JunkThenTruth(Withholding):
    """No store gives a receipt for junk, and the true bytes come too late for one."""

    name = "junk then truth"


class JunkThenTruthWithStores(JunkThenTruth):
    """Its stores serve junk to a majority of the committee, and the true bytes to the others and to the trial."""

    name = "junk then truth, with the stores"
    stores = True
    hole = WithholdingWithStores.hole

    def serves(self, world: World, judging: Round, job: int, juror: int) -> bool:
        first = [seat.juror for seat in judging.seats[: judging.threshold]]
        return judging.appeal is not None or juror not in first


class PoisonRequester(Strategy):
    """Opens runs of its own at the least windows and fees, in which honest validators could not vote at all.

    Terms below the minimums are refused, and so are rounds of a run that only its own validators serve.
    """

    name = "poison requester"
    jurors, workers = FIFTH, 1
    others = (address_of("poisoner"),)

    def begins(self, world: World) -> None:
        world.do(self.others[0], "token", "drip", self.others[0], 50_000 * TOKEN)
        world.do(self.others[0], "credits", "buy", 50_000 * TOKEN)

    def comes_first(self, world: World) -> int:
        seats = world.random.choice(range(3, MAX_COMMITTEE + 1, 2))
        again = seats + 2 if seats + 2 <= MAX_COMMITTEE else 0
        least = replace(
            RUN,
            coordinator=self.others[0],
            trainer=self.others[0],
            juror_fee=PROTOCOL.market.min_juror_fee,
            price_per_unit=0,
            committee=seats,
            appeal_seats=again,
            work_seconds=1,
            draw_seconds=60,
            commit_seconds=PROTOCOL.market.min_commit_seconds,
            reveal_seconds=PROTOCOL.market.min_reveal_seconds,
            challenge_seconds=60 if again else 0,
        )
        for wrong in ({"commit_seconds": 1}, {"reveal_seconds": 1}, {"juror_fee": 0}):
            below = replace(least, **wrong)  # type: ignore[arg-type]
            refused = world.attempt(self.others[0], "market", "open", below, keccak(text="weights"), "")
            assert refused is not None
        return self._leads(world, least)

    def _leads(self, world: World, terms: RunTerms) -> int:
        """Tries the run; returns the one that the next round is of."""
        run, node = self._opened(world, terms, JURORS[: self.jurors])
        assignments = pack_assignments([Listing(node, 1)])
        refused = world.attempt(self.others[0], "rounds", "open", run, 0, 0, assignments)
        assert refused is not None
        assert refused.name == "TooFewValidators"
        return 1

    def _opened(self, world: World, terms: RunTerms, served_by: list[str]) -> tuple[int, int]:
        run = world.open_run(terms, self.others[0], 200 * TOKEN, served_by)
        node = next(node for node in world.nodes(Role.WORKER) if node.owner == PROVIDERS[0])
        world.do(node.owner, "market", "join", run, node.number, terms.rules_hash)
        return run, node.number


class ServedPoison(PoisonRequester):
    """Every validator serves its runs, as none could tell; each round is one of a new run, and its jurors accept."""

    name = "poison requester, served"
    reads = False
    hole = "seats that nobody honest could fill are strikes, though in its own runs alone"

    def votes(self, world: World, judging: Round, juror: int, honest: Move) -> Move:
        return same(judging, Verdict.ACCEPTED)

    def _leads(self, world: World, terms: RunTerms) -> int:
        return self._opened(world, terms, JURORS)[0]


class HidingCoordinator(Strategy):
    """The run's coordinator keeps the files of honest workers to itself; another store of the run serves them."""

    name = "hiding coordinator"
    jurors = 0
    others = (REQUESTER, COORDINATOR, TRAINER)

    def keeps(self, world: World, owner: str) -> bool:
        return True


class HidingCoordinatorWithStores(HidingCoordinator):
    """No other store does: the coordinator has the rollouts, and nobody is paid."""

    name = "hiding coordinator, with the stores"
    stores = True
    hole = "nobody but the stores has the file that they gave a receipt for: honest work is unpaid"

    def serves(self, world: World, judging: Round, job: int, juror: int) -> bool:
        return False


class TakingBack(HidingCoordinatorWithStores):
    """It lets the jury judge; then it appeals what was accepted, and hides it from the trial."""

    name = "pay taken back, with the stores"
    hole = "a trial that cannot read costs the appellant nothing, and takes back the pay of accepted work"

    def serves(self, world: World, judging: Round, job: int, juror: int) -> bool:
        return judging.appeal is None

    def appeals(self, world: World, round: Round) -> list[tuple[str, int]]:
        return [(REQUESTER, job) for job in sorted(round.jobs_with(Verdict.ACCEPTED))]


class ColludingMajority(WithholdingAfterTheDraw):
    """Discards blocks until a first committee is its own, which accepts its junk and is right about all else."""

    name = "colluding majority of one committee"
    discards = 64

    def likes(self, world: World, judging: Round, jurors: list[int]) -> bool:
        return judging.appeal is not None or share(world, jurors) > len(jurors) // 2


class ColludingMajorityWatched(ColludingMajority):
    """The same, while somebody honest checks every job of a round after its tally."""

    name = "colluding majority, watched"
    watched = True


class CondemningMajority(ColludingMajority):
    """As a majority it condemns everybody else's work."""

    name = "condemning majority of one committee"

    def votes(self, world: World, judging: Round, juror: int, honest: Move) -> Move:
        if share(world, [seat.juror for seat in judging.seats]) < judging.threshold:
            return honest
        return Move({**dict.fromkeys(judging.submitted, Verdict.FRAUD), **_accepting(world, judging)})


class ColludingTrial(Strategy):
    """Appeals a right verdict a round, discards blocks until the trial is its own, and overturns it."""

    name = "colluding majority of a trial"
    jurors, workers = FIFTH, 1
    discards = 512

    def likes(self, world: World, judging: Round, jurors: list[int]) -> bool:
        return judging.appeal is None or share(world, jurors) > len(jurors) // 2

    def appeals(self, world: World, round: Round) -> list[tuple[str, int]]:
        others = [job for job in sorted(round.submitted) if job not in _own(world, round)]
        return [(PROVIDERS[0], others[0])] if round.verdicts[others[0]] == Verdict.ACCEPTED else []

    def votes(self, world: World, judging: Round, juror: int, honest: Move) -> Move:
        captured = share(world, [seat.juror for seat in judging.seats]) >= judging.threshold
        return same(judging, Verdict.FRAUD) if judging.appeal and captured else honest


class SlotSquatter(Strategy):
    """Holds every free validator slot with a node whose key is revoked: never drawn, never fined, bonds refundable."""

    name = "slot squatter"
    jurors = 0
    others = (address_of("squatter"),)
    slots = 256 - len(JURORS)
    above = 0
    """What it posts for each slot beyond the required bond."""

    def begins(self, world: World) -> None:
        squatter, bond = self.others[0], PROTOCOL.registry.validator_bond
        world.do(squatter, "token", "drip", squatter, 2 * self.slots * (bond + self.above))
        for i in range(self.slots):
            assert world.register(squatter, Role.VALIDATOR, f"squatter {i}", 1) is None
            node = len(world.protocol.registry.nodes)
            world.do(squatter, "registry", "revoke_key", node)
            if self.above:
                world.do(squatter, "registry", "top_up", node, self.above)

    def comes_first(self, world: World) -> int:
        newcomer = address_of("newcomer")
        world.do(newcomer, "token", "drip", newcomer, 2 * PROTOCOL.registry.validator_bond)
        node = world.contest(newcomer, f"newcomer {world.now}")
        self.answers(world, node)
        world.wait(world.now + PROTOCOL.registry.activation_delay)
        world.refused_newcomers += world.attempt(newcomer, "registry", "displace", node) is not None
        return 1

    def answers(self, world: World, newcomer: int) -> None:
        """What it does when somebody contests one of its slots."""


class MatchingSquatter(SlotSquatter):
    """The same, and matches every newcomer's bond."""

    name = "slot squatter, matching"
    hole = "who locks a quarter of a bond more for each contest keeps newcomers out"

    def answers(self, world: World, newcomer: int) -> None:
        registry = world.protocol.registry
        holder = registry.nodes[registry.slots[registry.nodes[newcomer].slot]]
        missing = registry.nodes[newcomer].bond - holder.bond
        world.do(self.others[0], "registry", "top_up", holder.number, missing)


class EvictingNewcomer(SlotSquatter):
    """Fills the house with bonds above those of honest validators, then evicts one of these while a round goes on."""

    name = "evicting newcomer"
    above = 2 * MARGIN
    discards = 1

    def comes_first(self, world: World) -> int:
        world.contest(self.others[0], f"evictor {world.now}")
        world.wait(world.now + PROTOCOL.registry.activation_delay)
        return 1

    def likes(self, world: World, judging: Round, jurors: list[int]) -> bool:
        """Evicts between the close of a round and its draw."""
        for contest in list(world.protocol.registry.contests.values()):
            world.do(self.others[0], "registry", "displace", contest.newcomer)
        return True


class Watcher(Strategy):
    """Honest: checks every job of a round after its tally; a third of the validators accepts everything unread."""

    name = "watcher"
    jurors, careless = 0, THIRD
    others = (WATCHER,)

    def appeals(self, world: World, round: Round) -> list[tuple[str, int]]:
        return watch(world, self, round)


class AppealingEverything(Strategy):
    """Appeals every verdict there is, right or wrong."""

    name = "appeal everything"
    others = (WATCHER,)

    def appeals(self, world: World, round: Round) -> list[tuple[str, int]]:
        return [(WATCHER, job) for job in sorted(round.submitted)]


class WorkingAtTheBound(Strategy):
    """Makes work that honest jurors' own rounding tells apart, appeals its verdict, and has its jurors vote against it.

    Assumed: each honest juror finds such a job accepted or void with equal odds.
    """

    name = "work at the bound"
    jurors, workers = EIGHTH, 1

    def works(self, world: World) -> Quality:
        return Quality.AT_THE_BOUND

    def votes(self, world: World, judging: Round, juror: int, honest: Move) -> Move:
        if not judging.appeal:
            return replace(honest, verdicts={**(honest.verdicts or {}), **_unread(world, judging)})
        against = judging.appeal.against
        return same(judging, Verdict.VOID if against == Verdict.ACCEPTED else Verdict.ACCEPTED)

    def appeals(self, world: World, round: Round) -> list[tuple[str, int]]:
        return [(PROVIDERS[0], job) for job in _own(world, round)]


class ConfirmedAtTheBound(WorkingAtTheBound):
    """The same, where honest trial jurors whose figures are close to a bound vote for the verdict appealed against."""

    name = "work at the bound, confirmed"
    confirms = True


def _own(world: World, round: Round) -> list[int]:
    """Jobs of a round that the holder's workers submitted."""
    return [job for job, node in enumerate(round.assignees) if world.is_held(node)]


def _unread(world: World, judging: Round) -> dict[int, Verdict]:
    """The holder's jobs of a round, unavailable: no trial fines that."""
    return dict.fromkeys(_own(world, judging), Verdict.UNAVAILABLE)


def _accepting(world: World, judging: Round) -> dict[int, Verdict]:
    """The holder's jobs among those judged, accepted."""
    if judging.appeal:
        own = {judging.appeal.job} if world.is_held(judging.appeal.node) else set()
    else:
        own = set(_own(world, judging))
    return dict.fromkeys(own, Verdict.ACCEPTED)


STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Honest(),
        Lazy(),
        LazyTrapped(),
        LazyWatched(),
        LazyHalf(),
        LazyMost(),
        Abstaining(),
        Unavailable(),
        SilentThird(),
        LateThird(),
        Withholding(),
        WithholdingWithStores(),
        WithholdingAfterTheDraw(),
        HidingFromTheTrial(),
        HidingFromTheTrialWithStores(),
        JunkThenTruth(),
        JunkThenTruthWithStores(),
        PoisonRequester(),
        ServedPoison(),
        HidingCoordinator(),
        HidingCoordinatorWithStores(),
        TakingBack(),
        ColludingMajority(),
        ColludingMajorityWatched(),
        CondemningMajority(),
        ColludingTrial(),
        SlotSquatter(),
        MatchingSquatter(),
        EvictingNewcomer(),
        Watcher(),
        AppealingEverything(),
        WorkingAtTheBound(),
        ConfirmedAtTheBound(),
    )
}
