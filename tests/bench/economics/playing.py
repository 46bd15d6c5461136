"""One round of a history, with its appeals, from opening to the last payment: documented daemons, and a strategy."""

from __future__ import annotations

from protocol.chain.structs import Consumption, Role, State, Submission, Verdict
from protocol.wire import auth
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves
from tests.bench.economics.strategy import SILENT, Move, Strategy, hostile, same
from tests.bench.economics.terms import BAD_JOBS, JOBS, JOBS_PER_WORKER, UNITS
from tests.bench.economics.world import AT, OUTSIDER, WATCHER, Quality, World, key_of
from tests.model.judging import ABSTENTION
from tests.model.parties import BEACON, COORDINATOR, EVIDENCE, REQUESTER, SALT, TRAINER
from tests.model.round import Round, Seat, bitmap, committee_slots
from tests.model.transaction import NOBODY
from validator.recheck.prediction import Prediction, objection, predict

ANYBODY = COORDINATOR
"""Makes the calls that anyone may make."""


def play(world: World, strategy: Strategy) -> Round:
    """Plays one round; returns it as it ended."""
    world.restore_bonds()
    run = strategy.comes_first(world)
    number = _work(world, strategy, run)
    conduct(world, strategy, [number])
    round = _rounds(world)[number]
    if round.state is State.VOID:
        world.do(ANYBODY, "rounds", "free", number, round.assignments)
        return round
    early = world.random.random() < 0.5
    if early:
        _consume(world, round)
    _appeal(world, strategy, round)
    _settle(world, round)
    if not early:
        _consume(world, round)
    return round


# Opening and submitting


def _work(world: World, strategy: Strategy, run: int) -> int:
    """Opens a round in which all jobs are submitted; returns its number."""
    terms, registry = world.protocol.market.runs[run].terms(world.now), world.protocol.registry
    listed = [
        node
        for node in world.nodes(Role.WORKER)
        if node.number in world.protocol.market.runs[run].joined and registry.listable(node, world.now)
    ]
    assignments = pack_assignments([Listing(node.number, JOBS_PER_WORKER) for node in listed])
    world.do(terms.coordinator, "rounds", "open", run, 0, 0, assignments)
    round = _rounds(world)[len(_rounds(world))]
    parts = []
    for node in listed:
        jobs = [job for job, owner in enumerate(round.assignees) if owner == node.number]
        for job in jobs:
            world.works[round.number, job] = _quality(world, strategy, node.owner)
        leaves = pack_leaves([Leaf(job, UNITS, BEACON) for job in jobs])
        message = auth.submission(AT.chain_id, AT.rounds, round.number, node.number, BEACON, leaves, "")
        signature = key_of(node.key).sign_typed(message)
        parts.append(Submission(node.number, BEACON, leaves, "", signature))
    world.do(terms.coordinator, "rounds", "submit", round.number, assignments, parts)
    return round.number


def _quality(world: World, strategy: Strategy, owner: str) -> Quality:
    if owner in world.held:
        return strategy.works(world)
    share = strategy.traps or BAD_JOBS
    cheats = owner == OUTSIDER and world.random.random() < share * JOBS / JOBS_PER_WORKER
    return Quality.FRAUD if cheats else Quality.GOOD


# Judging


def conduct(world: World, strategy: Strategy, numbers: list[int]) -> None:
    """Leads rounds or trials of appeals side by side from their draw to their verdict, or to the end without one."""
    while live := [number for number in numbers if _rounds(world)[number].state in (State.CLOSED, State.VOTING)]:
        for number in live:
            _draw(world, strategy, _rounds(world)[number])
        moves = {number: _commit(world, strategy, _rounds(world)[number]) for number in live}
        for number in sorted(live, key=lambda number: not _rounds(world)[number].revealing):
            _reveal(world, _rounds(world)[number], moves[number])
        for number in live:
            _tally(world, _rounds(world)[number])


def _draw(world: World, strategy: Strategy, judging: Round) -> None:
    for _ in range(strategy.discards):
        seed = world.hash_of(judging.close_block)
        slots = committee_slots(seed, judging.attempt, judging.slot_count, judging.eligible, judging.committee)
        if strategy.likes(world, judging, [world.protocol.registry.seated(slot, world.now) for slot in slots]):
            break
        world.discarded[judging.close_block] += 1
    world.do(ANYBODY, "rounds", "draw", judging.number)
    jurors = [seat.juror for seat in judging.seats]
    world.captured |= hostile(world, strategy, jurors) >= judging.threshold
    world.seats.update(world.protocol.registry.nodes[juror].owner for juror in jurors)


def _commit(world: World, strategy: Strategy, judging: Round) -> list[tuple[Seat, Move]]:
    """All seats commit that do; returns what each of them does."""
    moves = [(seat, _move(world, strategy, judging, seat.juror)) for seat in judging.seats]
    for seat, move in moves:
        if move.commits:
            commitment = world.protocol.rounds.commitment(judging, seat.juror, *_ballot(judging, move), EVIDENCE, SALT)
            world.do(_key(world, seat), "rounds", "commit", judging.number, commitment)
    return moves


def _move(world: World, strategy: Strategy, judging: Round, juror: int) -> Move:
    owner = world.protocol.registry.nodes[juror].owner
    move = honest_move(world, strategy, judging, juror)
    if owner in world.held:
        move = strategy.votes(world, judging, juror, move)
    elif owner in strategy.apart:
        move = same(judging, Verdict.ACCEPTED)
    elif not strategy.reads:
        move = SILENT
    world.checks[owner] += move.read
    return move


def honest_move(world: World, strategy: Strategy, judging: Round, juror: int) -> Move:
    """As the daemon votes: unavailable what it cannot read, and what it finds of the rest."""
    verdicts, home = {}, judging.appeal.round if judging.appeal else judging.number
    for job in sorted(judging.submitted):
        if not _readable(world, strategy, judging, job, juror):
            world.hidden.add((home, job))
            verdicts[job] = Verdict.UNAVAILABLE
        elif judging.appeal and strategy.confirms and world.works[home, job] is Quality.AT_THE_BOUND:
            verdicts[job] = judging.appeal.against
        else:
            verdicts[job] = world.seen(home, job, juror)
    return Move(verdicts, read=sum(verdict != Verdict.UNAVAILABLE for verdict in verdicts.values()))


def _readable(world: World, strategy: Strategy, judging: Round, job: int, juror: int) -> bool:
    """What stores gave a receipt for, they serve; without receipts everybody votes unavailable."""
    node = judging.appeal.node if judging.appeal else judging.assignees[job]
    if not strategy.keeps(world, world.protocol.registry.nodes[node].owner):
        return True
    return strategy.serves(world, judging, job, juror) if strategy.stores else strategy.receipts


def _ballot(judging: Round, move: Move) -> tuple[int, int, bytes]:
    if not move.verdicts:
        return 0, 0, ABSTENTION
    accept = {job for job, verdict in move.verdicts.items() if verdict & 1}
    fraud = {job for job, verdict in move.verdicts.items() if verdict & 2}
    return bitmap(accept), bitmap(fraud), b"\x01" * len(judging.submitted - (accept - fraud))


def _reveal(world: World, judging: Round, moves: list[tuple[Seat, Move]]) -> None:
    if not any(move.commits and move.reveals for _, move in moves):
        return
    if not judging.revealing:
        world.wait(judging.deadline + 1)
    for seat, move in moves:
        if move.commits and move.reveals:
            ballot = _ballot(judging, move)
            world.do(_key(world, seat), "rounds", "reveal", judging.number, *ballot, EVIDENCE, SALT)


def _tally(world: World, judging: Round) -> None:
    """Where the last reveal was no tally: an appeal's never is."""
    if judging.state is not State.VOTING:
        return
    if not judging.voted:
        committed = any(seat.commitment is not None for seat in judging.seats)
        world.wait(judging.deadline + judging.terms.reveal_seconds * (committed and not judging.revealing) + 1)
    world.do(ANYBODY, "rounds", "tally", judging.number)


def _key(world: World, seat: Seat) -> str:
    key = world.protocol.registry.nodes[seat.juror].key
    assert key != NOBODY
    return key


# Appeals and payment


def _appeal(world: World, strategy: Strategy, round: Round) -> None:
    """The holder's appeals first, then those of workers whose good work was not accepted."""
    if not round.terms.appeal_seats:
        return
    wanted = strategy.appeals(world, round) + honest_appeals(world, round)
    if strategy.traps:
        wanted += sprung(world, round)
    if strategy.watched:
        wanted += watch(world, strategy, round)
    trials: list[int] = []
    for appellant, job in wanted:
        if job not in round.appealed:
            world.do(appellant, "rounds", "appeal", round.number, job, 0, round.batches[0])
            trials.append(len(_rounds(world)))
    conduct(world, strategy, trials)


def honest_appeals(world: World, round: Round) -> list[tuple[str, int]]:
    """What owners of honest workers appeal: good work that was not accepted, where an honest trial leaves a gain."""
    registry, found = world.protocol.registry, []
    for job, node in enumerate(round.assignees):
        owner, wrong = registry.nodes[node].owner, round.verdicts[job] != Verdict.ACCEPTED
        good = world.works[round.number, job] is Quality.GOOD and (round.number, job) not in world.hidden
        if wrong and good and owner not in world.held:
            spared = world.protocol.rounds.terms.fraud_slash if round.verdicts[job] == Verdict.FRAUD else 0
            pay = UNITS * round.terms.price_per_unit
            if pay + spared + _predicted(world, round, job, Verdict.ACCEPTED).profit > 0:
                found.append((owner, job))
    return found


def sprung(world: World, round: Round) -> list[tuple[str, int]]:
    """Planted faults that a juror accepted, which the requester appeals even where the verdict is right."""
    planted = [job for job in sorted(round.submitted) if world.works[round.number, job] is Quality.FRAUD]
    votes = [seat.vote.verdicts for seat in round.seats if seat.vote and seat.votes]
    return [(REQUESTER, job) for job in planted if any(vote[job] == Verdict.ACCEPTED for vote in votes)]


def watch(world: World, strategy: Strategy, round: Round) -> list[tuple[str, int]]:
    """Checks every job as `assize recheck` does, and appeals as it decides to."""
    found, nobody = [], 0
    for job in sorted(round.submitted):
        readable = _readable(world, strategy, round, job, nobody)
        world.checks[WATCHER] += readable
        truth = world.seen(round.number, job, nobody) if readable else Verdict.UNAVAILABLE
        prediction = _predicted(world, round, job, truth)
        doubt = "near its bound" if world.works[round.number, job] is Quality.AT_THE_BOUND else None
        if objection(prediction, doubt, 0, prediction.deposit) is None:
            found.append((WATCHER, job))
    return found


def _predicted(world: World, round: Round, job: int, truth: Verdict) -> Prediction:
    votes = [seat.vote.verdicts[job] for seat in round.seats if seat.vote and seat.votes]
    consumed = job in round.consumed
    return predict(round.verdicts[job], truth, votes, consumed, round.terms, world.protocol.rounds.terms)


def _settle(world: World, round: Round) -> None:
    world.wait(round.deadline)
    world.do(ANYBODY, "rounds", "settle", round.number, 0, round.assignments, round.batches[0])
    if round.state is State.TALLIED:
        world.do(ANYBODY, "rounds", "finish", round.number, round.assignments)


def _consume(world: World, round: Round) -> None:
    """The trainer trains on what is accepted, soon after the tally or after all appeals."""
    run = world.protocol.market.runs[round.run]
    jobs = bitmap(round.jobs_with(Verdict.ACCEPTED))
    if jobs and run.requester not in world.held:
        world.do(TRAINER, "market", "publish", round.run, run.version + 1, BEACON, [Consumption(round.number, jobs)])


def _rounds(world: World) -> dict[int, Round]:
    return world.protocol.rounds.rounds
