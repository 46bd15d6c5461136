// The second opinion on a round: its events, one after another, each compared with what the rules make of those before.
import { bitmap, count, jobsIn } from './bytes.js';
import { differ } from './report.js';
import * as rules from './rules.js';
import { digest, signer } from './signing.js';
import { placeOf } from './sources.js';

const NOTHING = '0x' + '0'.repeat(64);

const several = (number, word) => `${number} ${word}${Number(number) === 1 ? '' : 's'}`;

/** The checks that `fold` makes: of how many things, and the sentence that says what was checked. */
export const CLAIMS = {
  work: ({ submissions: { length } }) => [length, `${several(length, 'submission')}: only jobs assigned to the node, ` +
    'signed (EIP-712) with the key it had then, and accepted jobs worked under the hash of the opening block.'],
  draws: ({ committees: { length } }) => [length, `${several(length, 'draw')}: the seed is the hash of the seed block, ` +
    'and the jurors are those that it draws from the eligible slots.'],
  commitments: ({ votes }) => [votes, `${several(votes, 'revealed vote')}: each is the one committed to.`],
  tally: ({ tallies, attempt }) => [tallies + attempt, 'The tally, job by job: ' +
    `${several(tallies, 'verdict')} with a quorum, ${several(attempt, 'draw')} without.`],
  pay: ({ settled, fees }) => [settled + fees, `Units × price of ${several(settled, 'settlement')}, fees of ` +
    `${several(fees, 'juror')} by agreement with the verdict, the reserve and what was released of it.`],
  credits: ({ payments: { length } }) => [length, `${several(length, 'movement')} of credits: each is what one ` +
    'settlement owed, to the owner of its node.'],
  consumption: ({ consumed }) => [count(consumed), `${several(count(consumed), 'job')} trained on: each accepted, none twice.`],
};

/**
 * Returns what a round came to by its events, and the differences from the rules by check.
 * @param {object[]} events  of the round, decoded, in the order of the chain
 * @param {object} context   what the chain says besides: terms, nodes, seeds, eligible slots, the appeal if it is one
 */
export function fold(events, context, { chainId, contracts }) {
  const tale = {
    context, chainId, rounds: contracts.Rounds, round: context.round, state: context.appeal ? 'closed' : 'open', holders: [],
    beacon: NOTHING, jobs: new Map(), submissions: [], committees: [], attempt: 0, votes: 0, tallies: 0, settled: 0, fees: 0,
    submitted: 0n, accepted: 0n, fraud: 0n, consumed: 0n, appealed: 0n, reserved: 0n, paid: 0n, dues: [], payments: [],
    differences: Object.fromEntries(Object.keys(CLAIMS).map((name) => [name, []])),
  };
  if (context.appeal) tale.submitted = 1n << BigInt(context.appeal.job);
  for (const log of events)
    FOLD[log.name]?.(tale, log.payload, log, (name, what, told, found) =>
      tale.differences[name].push(...differ(`${what} (${log.name} at ${placeOf(log)})`, told, found)));
  const owed = tale.dues.filter((due) => !due.met).map(({ node, amount }) => ({ node, amount }));
  tale.differences.credits.push(...differ('credits still owed at the end', [], owed));
  return tale;
}

const bit = (job) => 1n << BigInt(job);
const bitsOf = (leaves) => leaves.reduce((bits, leaf) => bits | bit(leaf.job), 0n);
const present = (tale) => tale.committees.at(-1);
const voters = (tale) => [...(present(tale)?.seats.values() ?? [])].filter((seat) => seat.state === 'revealed');
const owe = (tale, node, amount) => amount && tale.dues.push({ node: Number(node), amount });
const settleJob = (tale, job, verdict) => Object.assign(tale.jobs.get(job) ?? {}, { verdict });

const FOLD = {
  RoundOpened(tale, said, log, compare) {
    tale.holders = rules.nodesOf(said.assignments);
    tale.beacon = log.block_hash;
    tale.reserved = BigInt(said.reserved);
    compare('work', 'jobs', said.jobs, String(tale.holders.length));
    compare('pay', 'reserve', tale.reserved, rules.reserveOf(said.jobs, tale.context.terms));
  },

  Submitted(tale, said, log, compare) {
    const [leaves, node] = [rules.leavesOf(said.leaves), Number(said.node)];
    for (const { job, units, root } of leaves) {
      compare('work', `node of job ${job}`, node, tale.holders[job]);
      compare('work', `job ${job} submitted before`, tale.jobs.has(job), false);
      tale.jobs.set(job, { node, batch: Number(said.batch), units, root, verdict: 'submitted', credited: 0n });
    }
    const domain = { name: 'Assize Rounds', chainId: tale.chainId, contract: tale.rounds };
    const signed = digest(domain, 'Submission', [said.round, said.node, said.beacon, said.leaves, said.uri]);
    compare('work', `signer of node ${node}'s submission`, signer(signed, said.signature), tale.context.keyAt(node, log));
    tale.submitted |= bitsOf(leaves);
    tale.submissions.push({ node: said.node, batch: said.batch, beacon: said.beacon, leaves, settled: false });
  },

  RoundClosed(tale, said, log, compare) {
    tale.state = 'closed';
    compare('work', 'jobs submitted', said.submitted, tale.submitted);
  },

  CommitteeDrawn(tale, said, log, compare) {
    const { seeds, slotCount, eligible, slotOf, terms, appeal } = tale.context;
    const seats = Number(appeal ? terms.appeal_seats : terms.committee);
    compare('draws', `hash of block ${said.seed_block}`, said.seed, seeds.get(Number(said.seed_block))?.hash);
    compare('draws', 'attempt', said.attempt, String(tale.attempt));
    const slots = rules.draw(said.seed, said.attempt, slotCount, eligible.get(log.block_number) ?? 0n, seats);
    compare('draws', 'slots of the jurors', said.jurors.map((juror) => slotOf(Number(juror), log)), slots);
    const seat = (juror, place) => [Number(juror), { place, state: 'drawn', commitment: NOTHING, accept: 0n, fraud: 0n,
      reasons: '0x', evidence_root: NOTHING, salt: NOTHING, bits: 0n, paid: 0n }];
    tale.committees.push({ attempt: Number(said.attempt), seats: new Map(said.jurors.map(seat)), seed: said.seed });
    tale.state = 'voting';
  },

  VoteCommitted(tale, said, log, compare) {
    const seat = present(tale).seats.get(Number(said.juror));
    compare('commitments', `state of juror ${said.juror}`, seat?.state, 'drawn');
    Object.assign(seat, { state: 'committed', commitment: said.commitment });
  },

  VoteRevealed(tale, said, log, compare) {
    const seat = present(tale).seats.get(Number(said.juror));
    const found = rules.commitment(tale.chainId, tale.rounds, said);
    compare('commitments', `commitment of juror ${said.juror}`, seat?.commitment, found);
    const { reasons, evidence_root, salt } = said;
    const state = rules.abstains(said) ? 'abstained' : 'revealed';
    Object.assign(seat, { state, accept: BigInt(said.accept), fraud: BigInt(said.fraud), reasons, evidence_root, salt, log });
    tale.votes += 1;
  },

  RoundTallied(tale, said, log, compare) {
    const quorum = rules.quorumOf(present(tale).seats.size);
    const found = rules.majority(voters(tale), tale.submitted, quorum);
    compare('tally', 'votes for a quorum', voters(tale).length >= quorum, true);
    compare('tally', 'accepted', bitmap(BigInt(said.accepted)), bitmap(found.accepted));
    compare('tally', 'fraud', bitmap(BigInt(said.fraud)), bitmap(found.fraud));
    Object.assign(tale, found, { state: 'tallied', tallies: 1 });
    for (const job of tale.jobs.keys()) settleJob(tale, job, rules.verdictIn(found.accepted, found.fraud, job));
    for (const each of tale.submissions.filter(({ leaves }) => bitsOf(leaves) & found.accepted & ~found.fraud))
      compare('work', `beacon of node ${each.node}'s accepted jobs`, each.beacon, tale.beacon);
  },

  CommitteeRedrawn(tale, said, log, compare) {
    compare('tally', 'votes without a quorum', voters(tale).length < rules.quorumOf(present(tale).seats.size), true);
    compare('tally', 'attempt', said.attempt, String(tale.attempt + 1));
    Object.assign(tale, { attempt: tale.attempt + 1, state: 'closed' });
  },

  AppealOpened(tale, said) {
    tale.appealed |= bit(said.job);
  },

  AppealedJobSettled(tale, said, log, compare) {
    const [job, code] = [Number(said.job), BigInt(said.verdict)];
    const { units, node } = tale.jobs.get(job);
    const most = BigInt(tale.context.terms.max_units);
    const counted = code === 1n ? (units < most ? units : most) : 0n;
    const paid = counted * BigInt(tale.context.terms.price_per_unit);
    compare('pay', `node, units and pay of job ${job}`, [said.node, said.units, said.paid], [node, counted, paid].map(String));
    tale.accepted = (tale.accepted & ~bit(job)) | ((code & 1n) << BigInt(job));
    tale.fraud = (tale.fraud & ~bit(job)) | ((code >> 1n) << BigInt(job));
    settleJob(tale, job, rules.verdictIn(tale.accepted, tale.fraud, job)).credited = paid;
    tale.settled += 1;
    owe(tale, node, paid);
  },

  SubmissionSettled(tale, said, log, compare) {
    const stated = BigInt(said.accepted) | BigInt(said.fraud) | BigInt(said.void_jobs);
    const part = tale.submissions.find((each) => bitsOf(each.leaves) & stated && !each.settled);
    const { max_units: most, price_per_unit: price } = tale.context.terms;
    const leaves = (part?.leaves ?? []).filter((leaf) => !(tale.appealed & bit(leaf.job)));
    const [jobs, accepted] = [bitsOf(leaves), tale.accepted & ~tale.fraud];
    const units = rules.unitsPaid(leaves, accepted, BigInt(most));
    const found = [jobs & tale.accepted, jobs & tale.fraud, jobs & ~(tale.accepted | tale.fraud), units, units * BigInt(price)];
    compare('pay', `node and batch of its jobs`, [said.node, said.batch], [part?.node, part?.batch]);
    compare('pay', `accepted, fraud, void, units and pay of node ${said.node}`,
      [said.accepted, said.fraud, said.void_jobs, said.units, said.paid], found.map(String));
    if (part) part.settled = true;
    for (const leaf of leaves.filter((each) => accepted & bit(each.job)))
      tale.jobs.get(leaf.job).credited = rules.unitsPaid([leaf], accepted, BigInt(most)) * BigInt(price);
    tale.settled += 1;
    owe(tale, said.node, units * BigInt(price));
  },

  JurorSettled(tale, said, log, compare) {
    const [seat, fee] = [present(tale).seats.get(Number(said.juror)), BigInt(tale.context.terms.juror_fee)];
    const judged = tale.state === 'tallied';
    const due = judged && seat ? rules.feeOf(seat, tale, tale.submitted, fee) : { bits: 0n, paid: fee };
    compare('pay', `vote of juror ${said.juror}`, seat?.state, 'revealed');
    compare('pay', `bits and fee of juror ${said.juror}`, [said.bits, said.paid], [String(due.bits), String(due.paid)]);
    Object.assign(seat ?? {}, due);
    tale.fees += 1;
    owe(tale, said.juror, due.paid);
  },

  CreditsEarned(tale, said, log, compare) {
    const node = Number(said.node);
    const due = tale.dues.find((each) => !each.met && each.node === node);
    compare('credits', `credits of node ${node}`, said.amount, String(due?.amount ?? 'nothing owed'));
    compare('credits', `owner of node ${node}`, said.owner, tale.context.nodes.get(node)?.owner);
    if (due) due.met = true;
    tale.paid += BigInt(said.amount);
    tale.reserved -= BigInt(said.amount);
    const { block_number, log_index, tx_hash } = log;
    tale.payments.push({ block_number, log_index, tx_hash, owner: said.owner, node, amount: said.amount });
  },

  JobsConsumed(tale, said, log, compare) {
    const jobs = BigInt(said.jobs);
    compare('consumption', 'jobs not accepted', jobsIn(jobs & ~(tale.accepted & ~tale.fraud)), []);
    compare('consumption', 'jobs trained on before', jobsIn(jobs & tale.consumed), []);
    tale.consumed |= jobs;
  },

  RoundSettled: (tale, said, log, compare) => ended(tale, said, compare, 'settled'),
  RoundVoided: (tale, said, log, compare) => ended(tale, said, compare, 'void'),
};

function ended(tale, said, compare, state) {
  tale.state = state;
  if (!tale.context.appeal) compare('pay', 'released', said.released, String(tale.reserved));
  if (state === 'void') for (const job of tale.jobs.keys()) settleJob(tale, job, 'void');
}

/** Returns the ledger's claims of a round beside what the fold found: triples of words, claim and finding. */
export function comparedFacts(tale, { round, jobs, seats, payments }) {
  const pick = (claim, found) => Object.fromEntries(Object.keys(found).map((name) => [name, claim?.[name]]));
  const [text, decimal] = [bitmap, String];
  const found = { state: tale.state, attempt: tale.attempt, beacon: tale.beacon, paid: decimal(tale.paid),
    ...Object.fromEntries(['submitted', 'accepted', 'fraud', 'consumed', 'appealed'].map((name) => [name, text(tale[name])])) };
  const triples = [['round', pick(round, found), found]];
  for (const [job, each] of tale.jobs) {
    const { node, batch, root, verdict } = each;
    const held = { job, node, batch, root, verdict, units: decimal(each.units), credited: decimal(each.credited) };
    triples.push([`job ${job}`, pick(jobs.find((one) => one.job === job), held), held]);
  }
  for (const { attempt, seats: drawn } of tale.committees)
    for (const [juror, each] of drawn) {
      const { log, ...vote } = each;
      const held = { ...vote, accept: text(each.accept), fraud: text(each.fraud), bits: Number(each.bits), paid: decimal(each.paid) };
      const claim = seats.find((one) => one.attempt === attempt && one.juror === juror);
      triples.push([`seat of juror ${juror}, attempt ${attempt}`, pick(claim, held), held]);
    }
  const earned = payments.filter((each) => each.node);
  for (const paid of tale.payments)
    triples.push([`credits at ${placeOf(paid)}`, pick(earned.find((one) => placeOf(one) === placeOf(paid)), paid), paid]);
  const drawn = tale.committees.reduce((sum, each) => sum + each.seats.size, 0);
  triples.push(['jobs, seats and payments', [jobs.length, seats.length, earned.length], [tale.jobs.size, drawn, tale.payments.length]]);
  return triples;
}
