// The market's rules on values: who holds a job, which slots a seed draws, what a vote commits to, what votes decide.
import { bytes, concat, count, hex, keccak, number, word } from './bytes.js';

const LISTING_BYTES = 5;
const LEAF_BYTES = 41;
const RANDOM_TRIES = 4;
const DRAWS = 4n;

/** Returns the node of each job, in order, from packed assignments: uint32 node, uint8 count − 1. */
export function nodesOf(assignments) {
  const data = bytes(assignments);
  const starts = Array.from({ length: data.length / LISTING_BYTES }, (_, index) => index * LISTING_BYTES);
  return starts.flatMap((at) => Array(data[at + 4] + 1).fill(Number(number(data, at, 4))));
}

/** Returns the claims in packed leaves: uint8 job, uint64 units, bytes32 root of the artifact. */
export function leavesOf(packed) {
  const data = bytes(packed);
  return Array.from({ length: data.length / LEAF_BYTES }, (_, index) => {
    const at = index * LEAF_BYTES;
    return { job: data[at], units: number(data, at + 1, 8), root: hex(data.subarray(at + 9, at + LEAF_BYTES)) };
  });
}

/** Returns the slots that a seed draws from the bitmap `eligible`, in order. */
export function draw(seed, attempt, slotCount, eligible, seats) {
  const slots = [];
  let left = eligible;
  for (let tries = 0; left && slots.length < seats; tries += 1) {
    const random = () => number(keccak(word(seed), word(attempt), word(tries))) % BigInt(slotCount);
    const slot = tries < RANDOM_TRIES * slotCount ? random() : BigInt(tries % slotCount);
    if (!((left >> slot) & 1n)) continue;
    left ^= 1n << slot;
    slots.push(Number(slot));
  }
  return slots;
}

/** Returns what a juror commits to before it reveals a vote. */
export function commitment(chainId, rounds, vote) {
  const place = [chainId, rounds, vote.round, vote.attempt, vote.juror, vote.accept, vote.fraud];
  const said = [keccak(bytes(vote.reasons)), bytes(vote.evidence_root), bytes(vote.salt)];
  return hex(keccak(concat(...place.map((each) => word(each)), ...said)));
}

/** Tells if a vote abstains: it judges nothing, for the one reason 255. */
export const abstains = (vote) => vote.accept === '0' && vote.fraud === '0' && vote.reasons === '0xff';

/** Returns how many of a committee's seats decide. */
export const quorumOf = (seats) => Math.floor((seats + 1) / 2);

/** Returns the verdict of votes (bitmaps `accept` and `fraud`), each submitted job by itself. */
export function majority(votes, submitted, quorum) {
  const decided = (held) => {
    let jobs = 0n;
    for (let job = 0n; submitted >> job; job += 1n) {
      const said = votes.filter((vote) => (held(vote) >> job) & (submitted >> job) & 1n).length;
      if (said >= quorum) jobs |= 1n << job;
    }
    return jobs;
  };
  const unavailable = decided((vote) => vote.accept & vote.fraud);
  return {
    accepted: decided((vote) => vote.accept & ~vote.fraud) | unavailable,
    fraud: decided((vote) => vote.fraud & ~vote.accept) | unavailable,
  };
}

/** Returns the word for a job's verdict in the two bitmaps of a vote or a round. */
export const verdictIn = (accepted, fraud, job) =>
  ['void', 'accepted', 'fraud', 'unavailable'][Number(((accepted >> BigInt(job)) & 1n) + 2n * ((fraud >> BigInt(job)) & 1n))];

/** Returns a juror's reason for each submitted job, by job: a byte for each that it does not accept, in their order. */
export function reasonsOf(vote, jobs) {
  const given = [...bytes(vote.reasons)];
  const [accept, fraud] = [BigInt(vote.accept), BigInt(vote.fraud)];
  return new Map(jobs.map((job) => [job, verdictIn(accept, fraud, job) === 'accepted' ? 0 : given.shift()]));
}

/** Returns the units that a submission is paid for: accepted ones, each job up to a bound. */
export const unitsPaid = (leaves, accepted, most) =>
  leaves.filter((leaf) => (accepted >> BigInt(leaf.job)) & 1n)
    .reduce((sum, leaf) => sum + (leaf.units < most ? leaf.units : most), 0n);

/** Returns a juror's agreement with a verdict in jobs, and its fee for it. */
export function feeOf(vote, verdict, submitted, fee) {
  const apart = (vote.accept ^ verdict.accepted) | (vote.fraud ^ verdict.fraud) | (vote.accept & vote.fraud);
  const agreed = count(submitted & ~apart);
  return { bits: agreed, paid: (fee * agreed) / count(submitted) };
}

/** Returns what a round reserves: every job at its bound, and the fees of as many committees as can be drawn. */
export function reserveOf(jobs, terms) {
  const seats = BigInt(terms.committee);
  const fees = BigInt(terms.juror_fee) * (seats + (DRAWS - 1n) * (BigInt(quorumOf(Number(seats))) - 1n));
  return BigInt(jobs) * BigInt(terms.max_units) * BigInt(terms.price_per_unit) + fees;
}
