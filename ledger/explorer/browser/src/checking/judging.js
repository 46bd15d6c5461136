// The second opinion on a round: its events, one after another, each compared with what the rules make of those before.
import { bitmap } from './bytes.js';
import { differ } from './report.js';
import * as rules from './rules.js';
import { digest, signer } from './signing.js';
import { placeOf } from './sources.js';

const NOTHING = '0x' + '0'.repeat(64);
const SILENT = { state: 'drawn', commitment: NOTHING, accept: '0x0', fraud: '0x0', reasons: '0x', salt: NOTHING,
  evidence_root: NOTHING, bits: 0, paid: 0n };

/** The checks that `fold` makes: what is checked of so many things. */
export const CLAIMS = {
  work: 'submissions: of the node’s own jobs, signed (EIP-712) with its key, accepted under the opening block’s hash',
  draws: 'draws: the seed is the hash of its block, the jurors are those that it draws from the eligible slots',
  votes: 'revealed votes: each is the one that was committed to',
  tallies: 'tallies: each job by itself, with a quorum, or drawn again for want of one',
  pay: 'settlements: units × price of accepted jobs, jurors’ fees by agreement with the verdict',
  credits: 'movements of credits: each is what one settlement owed, to the owner of its node',
};

const bit = (job) => 1n << BigInt(job);
const bitsOf = (leaves) => leaves.reduce((bits, { job }) => bits | bit(job), 0n);
const seated = (tale) => tale.seats.filter((seat) => seat.attempt === tale.attempt);
const seatOf = (tale, juror) => seated(tale).find((seat) => seat.juror === Number(juror)) ?? {};
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
  const [submitted, state] = context.appeal ? [bit(context.appeal.job), 'closed'] : [0n, 'open'];
  const tale = { ...context, checks, chainId, rounds: contracts.Rounds, beacon: NOTHING, state, attempt: 0,
    submitted, accepted: 0n, fraud: 0n, consumed: 0n, appealed: 0n,
    holders: [], parts: [], jobs: new Map(), seats: [], dues: [], payments: [] };
  for (const log of events) {
    const compare = (name, what, told, found) => {
      checks[name].made += 1;
      checks[name].differences.push(...differ(`${what} (${log.name} at ${placeOf(log)})`, told, found));
    };
    FOLD[log.name]?.(tale, log.payload, compare, log);
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
    const signed = digest(domain, 'Submission', [said.round, said.node, said.beacon, said.leaves, said.uri]);
    const own = leaves.every(({ job }) => tale.holders[job] === node && !tale.jobs.has(job));
    compare('work', 'signer, own jobs', [signer(signed, said.signature), true], [tale.keyAt(node, log), own]);
    for (const leaf of leaves) tale.jobs.set(leaf.job, { ...leaf, node, batch, verdict: 'submitted', credited: 0n });
    tale.submitted |= bitsOf(leaves);
    tale.parts.push({ ...said, leaves });
  },

  RoundClosed: (tale) => (tale.state = 'closed'),

  CommitteeDrawn(tale, { attempt, seed, seed_block, jurors }, compare, log) {
    const size = tale.appeal ? tale.terms.appeal_seats : tale.terms.committee;
    const slots = rules.draw(seed, attempt, tale.slotCount, tale.eligible.get(placeOf(log)), size);
    compare('draws', 'attempt, seed, slots of the jurors', [attempt, seed, ...jurors.map(tale.slotOf)],
      [String(tale.attempt), tale.seeds.get(Number(seed_block))?.hash, ...slots]);
    const seats = jurors.map((juror, place) => ({ ...SILENT, attempt: tale.attempt, juror: Number(juror), place }));
    Object.assign(tale, { state: 'voting', seats: [...tale.seats, ...seats] });
  },

  VoteCommitted: (tale, { juror, commitment }) =>
    Object.assign(seatOf(tale, juror), { state: 'committed', commitment }),

  VoteRevealed(tale, said, compare) {
    const [seat, { reasons, evidence_root, salt }] = [seatOf(tale, said.juror), said];
    const found = rules.commitment(tale.chainId, tale.rounds, said);
    compare('votes', `commitment of juror ${said.juror}`, seat.commitment, found);
    const [accept, fraud] = [said.accept, said.fraud].map((each) => bitmap(BigInt(each)));
    const state = rules.abstains(said) ? 'abstained' : 'revealed';
    Object.assign(seat, { state, accept, fraud, reasons, evidence_root, salt });
  },

  RoundTallied(tale, said, compare) {
    const found = rules.majority(voters(tale), tale.submitted, rules.quorumOf(seated(tale).length));
    const told = { accepted: BigInt(said.accepted), fraud: BigInt(said.fraud) };
    compare('tallies', 'quorum, jobs accepted and of fraud', [true, told], [quorate(tale), found]);
    Object.assign(tale, found, { state: 'tallied' });
    for (const job of tale.jobs.values()) judge(tale, job);
    const accepted = tale.parts.filter(({ leaves }) => bitsOf(leaves) & found.accepted & ~found.fraud);
    for (const { node, beacon } of accepted) compare('work', `beacon of node ${node}`, beacon, tale.beacon);
  },

  CommitteeRedrawn(tale, said, compare) {
    compare('tallies', 'quorum, attempt', [quorate(tale), Number(said.attempt)], [false, tale.attempt + 1]);
    Object.assign(tale, { attempt: tale.attempt + 1, state: 'closed' });
  },

  AppealOpened: (tale, said) => (tale.appealed |= bit(said.job)),

  AppealedJobSettled(tale, said, compare) {
    const [job, place, code] = [tale.jobs.get(Number(said.job)), BigInt(said.job), BigInt(said.verdict)];
    tale.accepted = (tale.accepted & ~bit(place)) | ((code & 1n) << place);
    tale.fraud = (tale.fraud & ~bit(place)) | ((code >> 1n) << place);
    const [units, pay] = payOf(tale, [judge(tale, job)]);
    compare('pay', 'node, units, pay', [said.node, said.units, said.paid], [String(job.node), units, pay]);
    job.credited = pay;
    owe(tale, job.node, pay);
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
  RoundSettled: (tale) => (tale.state = 'settled'),
  RoundVoided(tale) {
    tale.state = 'void';
    for (const job of tale.jobs.values()) job.verdict = 'void';
  },
};

/** Returns the units that leaves are paid for by a round's verdict, and their pay. */
function payOf(tale, leaves) {
  const units = rules.unitsPaid(leaves, tale.accepted & ~tale.fraud, BigInt(tale.terms.max_units));
  return [units, units * BigInt(tale.terms.price_per_unit)];
}

/** Returns the differences between the ledger's facts of a round and those of the fold. */
export function compareFacts(tale, facts) {
  const told = { ...facts, round: [facts.round], payments: facts.payments.filter(({ node }) => node) };
  const bitmaps = ['submitted', 'accepted', 'fraud', 'consumed', 'appealed'].map((name) => [name, bitmap(tale[name])]);
  const round = { state: tale.state, attempt: tale.attempt, beacon: tale.beacon, ...Object.fromEntries(bitmaps) };
  const jobs = [...tale.jobs.values()].sort((one, other) => one.job - other.job);
  const seats = tale.seats.sort((one, other) => one.attempt - other.attempt || one.juror - other.juror);
  return Object.entries({ round: [round], jobs, seats, payments: tale.payments }).flatMap(([name, found]) => [
    ...differ(`number of ${name}`, told[name].length, found.length),
    ...found.flatMap((each, index) => Object.keys(each).flatMap((field) =>
      differ(`${field} in ${name} ${index}`, told[name][index]?.[field], each[field]))),
  ]);
}
