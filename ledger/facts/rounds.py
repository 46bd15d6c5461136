"""Rounds: submissions, jobs, committees and votes."""

from __future__ import annotations

from ledger.facts.fact import NO_WORD, Bitmap, Fact, Hex, Wide, fact


@fact("round")
class Round(Fact):
    """A round, or the trial of an appeal: then ``parent`` is the round appealed against, 0 otherwise.

    ``beacon`` is the hash of its opening block; committee to ``challenge_seconds`` are the run's terms as they stood
    then, and ``eligible`` the validator slots that may be drawn (an appeal's lack the first committee's, a redraw's
    those that did not vote).
    The present attempt's draw starts at ``close_block``, whose hash is ``close_hash``. Bit b of ``settled_batches`` is
    batch b.
    ``accepted`` and ``fraud`` are as appeals have left them, a job in both is unavailable; ``appeals`` of the
    ``appealed`` jobs are pending.

    Credits: ``reserve`` was set aside at the opening, an appeal's by its deposit; ``reserved`` is left of it.
        round    reserve = paid + released + reserved
        appeal   reserve = paid + paid_out + reserved
    """

    round: int
    run: int
    parent: int
    step: Wide
    policy_version: int
    state: str
    jobs: int
    slot_count: int
    committee: int
    appeal_seats: int
    max_units: Wide
    price_per_unit: Wide
    juror_fee: Wide
    draw_seconds: int
    commit_seconds: int
    reveal_seconds: int
    challenge_seconds: int
    assignments: Hex
    open_block: int
    beacon: Hex
    opened_at: int
    deadline: int
    close_block: int = 0
    close_hash: Hex = NO_WORD
    eligible: Bitmap = 0
    attempt: int = 0
    batches: int = 0
    settled_batches: Bitmap = 0
    submitted: Bitmap = 0
    accepted: Bitmap = 0
    fraud: Bitmap = 0
    consumed: Bitmap = 0
    appealed: Bitmap = 0
    appeals: int = 0
    reserve: Wide = 0
    paid: Wide = 0
    paid_out: Wide = 0
    released: Wide = 0
    reserved: Wide = 0


@fact("round", "first_job")
class Submission(Fact):
    """One worker's signed part of a batch, and what it came to once ``settled``, jobs that were appealed left out.

    A node may sign several parts of one batch; ``first_job`` tells them apart, as no job is submitted twice.
    """

    round: int
    first_job: int
    batch: int
    node: int
    beacon: Hex
    leaves: Hex
    uri: str
    signature: Hex
    tx_hash: Hex
    settled: bool = False
    accepted: Bitmap = 0
    fraud: Bitmap = 0
    void: Bitmap = 0
    units: Wide = 0
    paid: Wide = 0


@fact("round", "job")
class Job(Fact):
    """One submitted job: what was claimed in the submission of ``first_job``. ``credited`` is what was paid for it.

    ``verdict`` is submitted until the round is tallied or void, then accepted, fraud or void, as appeals have left it.
    ``appeal`` is the number of its appeal, ``trained`` the version that was trained on it; 0 where there is none.
    """

    round: int
    job: int
    first_job: int
    node: int
    batch: int
    units: Wide
    root: Hex
    verdict: str = "submitted"
    credited: Wide = 0
    appeal: int = 0
    trained: int = 0


@fact("round", "attempt")
class Committee(Fact):
    """The draw of one attempt: ``jurors`` are the seated validators, uint32 each, big-endian, in the order drawn."""

    round: int
    attempt: int
    seed_block: int
    seed: Hex
    jurors: Hex


@fact("validator")
class Service(Fact):
    """One validator's record: seats in committees and what it did with them; amounts in wei.

    ``seats`` = revealed + abstained + silent; ``silent`` are also those that may still vote. ``agreed`` is the sum of
    their bits. ``overturned`` counts slashes for a vote that an appeal contradicted, ``absent`` those for not voting.
    ``struck`` counts strikes, in all runs, those that are past too.
    """

    validator: int
    owner: str
    seats: int = 0
    revealed: int = 0
    abstained: int = 0
    silent: int = 0
    agreed: int = 0
    absent: int = 0
    overturned: int = 0
    struck: int = 0
    paid: Wide = 0


@fact("round", "attempt", "juror")
class Seat(Fact):
    """A juror's seat in one attempt, its commitment, its vote, and what it earned.

    ``state`` is drawn, committed, revealed or abstained. ``bits`` agreed with the verdict, of the jobs submitted.
    ``struck`` is 1 if it has a strike: for not voting, or for what an appeal's committee could read and it could not.
    """

    round: int
    attempt: int
    juror: int
    place: int
    state: str = "drawn"
    commitment: Hex = NO_WORD
    accept: Bitmap = 0
    fraud: Bitmap = 0
    reasons: Hex = b""
    evidence_root: Hex = NO_WORD
    salt: Hex = NO_WORD
    bits: int = 0
    struck: int = 0
    paid: Wide = 0
