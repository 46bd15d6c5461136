// The second opinion on a round: its events, one after another, each compared with what the rules make of those before.
import { bitmap, bytes } from './bytes.js';
import { differ, differEach } from './report.js';
import * as rules from './rules.js';
import { digest, signer } from './signing.js';
import { placeOf } from './sources.js';

const NOTHING = '0x' + '0'.repeat(64);
const STATES = { RoundOpened: 'open', RoundClosed: 'closed', CommitteeDrawn: 'voting', CommitteeRedrawn: 'closed',
  RoundTallied: 'tallied', RoundSettled: 'settled', RoundVoided: 'void' };
const SILENT = { state: 'drawn', commitment: NOTHING, accept: '0x0', fraud: '0x0', reasons: '0x', salt: NOTHING,
  evidence_root: NOTHING, bits: 0, paid: 0n };

/** The checks that `fold` makes, as sentences. */
export const CLAIMS = {
  work: 'Submissions: of the node’s own jobs, signed (EIP-712) with its key, accepted under the opening block’s hash',
  draws: 'Draws: the seed is the hash of its block, the jurors are those that it draws from the eligible slots',
  votes: 'Votes: each revealed one is the one that was committed to',
  tallies: 'Tallies: each job by itself, with a quorum, or drawn again for want of one',
  pay: 'Pay: units × price of accepted jobs, jurors’ fees by their agreement with the verdict',
  credits: 'Credits: each movement is what one settlement owed, to the owner of its node',
};

const bit = (job) => 1n << BigInt(job);
const bitsOf = (leaves) => leaves.reduce((bits, { job }) => bits | bit(job), 0n);
const seated = (tale) => tale.seats.filter((seat) => seat.attempt === tale.attempt);
const seatOf = (tale, juror, changes = {}) =>
  Object.assign(seated(tale).find((seat) => seat.juror === Number(juror)) ?? {}, changes);
const voters = (tale) => seated(tale).filter((seat) => seat.state === 'revealed');
const quorate = (tale) => voters(tale).length >= rules.quorumOf(seated(tale).length);
const judge = (tale, job) => Object.assign(job, { verdict: rules.verdictIn(tale.accepted, tale.fraud, job.job) });
const due = (node, amount) => `${amount} wei to node ${node}`;
const owe = (tale, node, amount) => amount && tale.dues.push(due(node, amount));

/**
 * Returns what a round came to by its events, and by check how much was checked and what differs from the rules. Jobs,
 * seats and payments are facts as the ledger writes them.
 * @param {object[]} events  of the round, decoded, in the order of the chain
 * @param {object} context   what the chain says besides: see `contextOf`
 */
export function fold(events, context, { chainId, contracts }) {
  const checks = Object.fromEntries(Object.keys(CLAIMS).map((name) => [name, { made: 0, differences: [] }]));
  const submitted = context.appeal ? bit(context.appeal.job) : 0n;
  const tale = { ...context, checks, chainId, rounds: contracts.Rounds, beacon: NOTHING, state: 'closed', attempt: 0,
    submitted, accepted: 0n, fraud: 0n, consumed: 0n, appealed: 0n, jobs: new Map(),
    holders: [], parts: [], seats: [], dues: [], payments: [] };
  for (const log of events) {
    const compare = (name, what, told, found) => {
      checks[name].made += 1;
      checks[name].differences.push(...differ(`${what} (${log.name} at ${placeOf(log)})`, told, found));
    };
    FOLD[log.name]?.(tale, log.payload, compare, log);
    tale.state = STATES[log.name] ?? tale.state;
  }
  checks.credits.differences.push(...differ('credits still owed', [], tale.dues));
  return tale;
}

const FOLD = {
  RoundOpened: (tale, said, compare, log) =>
    Object.assign(tale, { holders: rules.nodesOf(said.assignments), beacon: log.block_hash }),

  Submitted(tale, said, compare, log) {
    const [leaves, node, batch] = [rules.leavesOf(said.leaves), Number(said.node), Number(said.batch)];
    const domain = { name: 'Assize Rounds', chainId: tale.chainId, contract: tale.rounds };
    const signed = digest(domain, 'Submission', [said.round, said.node, said.beacon, said.leaves, bytes(said.raw)]);
    const own = leaves.every(({ job }) => tale.holders[job] === node && !tale.jobs.has(job));
    compare('work', 'signer, own jobs', [signer(signed, said.signature), own], [tale.keyAt(node, log), true]);
    for (const leaf of leaves) tale.jobs.set(leaf.job, { ...leaf, node, batch, verdict: 'submitted', credited: 0n });
    tale.submitted |= bitsOf(leaves);
    tale.parts.push({ ...said, leaves });
  },

  CommitteeDrawn(tale, { attempt, seed, seed_block, jurors }, compare, log) {
    const size = tale.appeal ? tale.terms.appeal_seats : tale.terms.committee;
    const slots = rules.draw(seed, attempt, tale.slotCount, tale.eligible.get(placeOf(log)), size);
    if (tale.eligible.has(placeOf(log))) compare('draws', 'attempt, seed, slots of jurors', [attempt, seed,
      ...jurors.map(tale.slotOf)], [String(tale.attempt), tale.seeds.get(Number(seed_block))?.hash, ...slots]);
    const seats = jurors.map((juror, place) => ({ ...SILENT, attempt: tale.attempt, juror: Number(juror), place }));
    tale.seats.push(...seats);
  },

  VoteCommitted: (tale, { juror, commitment }) => seatOf(tale, juror, { state: 'committed', commitment }),

  VoteRevealed(tale, said, compare) {
    const [seat, { reasons, evidence_root, salt }] = [seatOf(tale, said.juror), said];
    compare('votes', `vote of juror ${said.juror}`, seat.commitment, rules.commitment(tale.chainId, tale.rounds, said));
    const [accept, fraud] = [said.accept, said.fraud].map((each) => bitmap(BigInt(each)));
    const state = rules.abstains(said) ? 'abstained' : 'revealed';
    Object.assign(seat, { state, accept, fraud, reasons, evidence_root, salt });
  },

  RoundTallied(tale, said, compare) {
    const found = rules.majority(voters(tale), tale.submitted, rules.quorumOf(seated(tale).length));
    compare('tallies', 'quorum, jobs accepted, jobs of fraud', [true, said.accepted, said.fraud],
      [quorate(tale), found.accepted, found.fraud]);
    Object.assign(tale, found);
    tale.jobs.forEach((job) => judge(tale, job));
    for (const { leaves, beacon } of tale.parts)
      if (bitsOf(leaves) & found.accepted & ~found.fraud) compare('work', 'beacon', beacon, tale.beacon);
  },

  CommitteeRedrawn(tale, said, compare) {
    compare('tallies', 'quorum, attempt', [quorate(tale), Number(said.attempt)], [false, tale.attempt + 1]);
    tale.attempt += 1;
  },

  AppealOpened: (tale, said) => (tale.appealed |= bit(said.job)),

  AppealedJobSettled(tale, said, compare) {
    const [job, place, code] = [tale.jobs.get(Number(said.job)), BigInt(said.job), BigInt(said.verdict)];
    tale.accepted = (tale.accepted & ~bit(place)) | ((code & 1n) << place);
    tale.fraud = (tale.fraud & ~bit(place)) | ((code >> 1n) << place);
    const [units, pay] = payOf(tale, [judge(tale, job)]);
    compare('pay', 'node, units, pay', [said.node, said.units, said.paid], [String(job.node), units, pay]);
    owe(tale, Object.assign(job, { credited: pay }).node, pay);
  },

  SubmissionSettled(tale, said, compare) {
    const told = [said.accepted, said.fraud, said.void_jobs].map(BigInt);
    const part = tale.parts.find(({ leaves }) => bitsOf(leaves) & (told[0] | told[1] | told[2])) ?? { leaves: [] };
    const leaves = part.leaves.filter(({ job }) => !(tale.appealed & bit(job)));
    const [jobs, [units, pay]] = [bitsOf(leaves), payOf(tale, leaves)];
    const found = [jobs & tale.accepted, jobs & tale.fraud, jobs & ~(tale.accepted | tale.fraud)];
    compare('pay', 'node, batch, units, pay, jobs accepted, of fraud, void',
      [said.node, said.batch, said.units, said.paid, ...told], [part.node, part.batch, units, pay, ...found]);
    for (const leaf of leaves) [, tale.jobs.get(leaf.job).credited] = payOf(tale, [leaf]);
    owe(tale, said.node, pay);
  },

  JurorSettled(tale, said, compare) {
    const [seat, fee] = [seatOf(tale, said.juror), BigInt(tale.terms.juror_fee)];
    const { bits, paid } = tale.state === 'tallied' ? rules.feeOf(seat, tale, fee) : { bits: 0, paid: fee };
    compare('pay', 'vote, bits, fee', [seat.state, Number(said.bits), said.paid], ['revealed', bits, paid]);
    Object.assign(seat, { bits, paid });
    owe(tale, said.juror, paid);
  },

  CreditsEarned(tale, { owner, node, amount }, compare, { block_number, log_index, tx_hash }) {
    const place = tale.dues.indexOf(due(node, amount));
    compare('credits', `owed, owner of node ${node}`, [true, owner], [place >= 0, tale.nodes.get(Number(node))?.owner]);
    tale.dues = tale.dues.filter((_, index) => index !== place);
    tale.payments.push({ block_number, log_index, tx_hash, owner, node: Number(node), amount });
  },

  JobsConsumed: (tale, said) => (tale.consumed |= BigInt(said.jobs)),
  RoundVoided: (tale) => tale.jobs.forEach((job) => Object.assign(job, { verdict: 'void' })),
};

/** Returns the units that leaves are paid for by a round's verdict, and their pay. */
function payOf(tale, leaves) {
  const units = rules.unitsPaid(leaves, tale.accepted & ~tale.fraud, BigInt(tale.terms.max_units));
  return [units, units * BigInt(tale.terms.price_per_unit)];
}

/** Returns the differences between the ledger's facts of a round and those of the fold. */
export function compareFacts(tale, facts) {
  const bitmaps = ['submitted', 'accepted', 'fraud', 'consumed', 'appealed'].map((name) => [name, bitmap(tale[name])]);
  const { round, state, attempt, beacon } = tale;
  const jobs = [...tale.jobs.values()].sort((one, other) => one.job - other.job);
  const seats = tale.seats.sort((one, other) => one.attempt - other.attempt || one.juror - other.juror);
  const payments = facts.payments.filter(({ node }) => node); // the others are grants to appellants
  const lists = [['job', facts.jobs, jobs], ['juror', facts.seats, seats], ['node', payments, tale.payments]];
  return differEach('round', facts.round, { round, state, attempt, beacon, ...Object.fromEntries(bitmaps) }).concat(
    lists.flatMap(([name, told, found]) => [
    ...differ(`number of entries by ${name}`, told.length, found.length),
    ...found.flatMap((each, index) => differEach(`${name} ${each[name]}`, told[index], each))]));
}
