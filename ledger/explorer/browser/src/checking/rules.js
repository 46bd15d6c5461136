// The market's rules on values: who holds a job, which slots a seed draws, what a vote commits to, what votes decide.
import { bytes, concat, count, hex, keccak, number, word } from './bytes.js';

const [LISTING_BYTES, LEAF_BYTES, RANDOM_TRIES] = [5, 41, 4];
const VERDICTS = ['void', 'accepted', 'fraud', 'unavailable'];

const parts = (packed, size) => Array.from({ length: (packed.length - 2) / 2 / size }, (_, index) =>
  bytes(packed).subarray(index * size, (index + 1) * size));
const has = (bits, job) => Number((bits >> BigInt(job)) & 1n);

/** Returns the node of each job, in order, from packed assignments: uint32 node, uint8 count − 1. */
export function nodesOf(assignments) {
  return parts(assignments, LISTING_BYTES).flatMap((part) => Array(part[4] + 1).fill(Number(number(part, 0, 4))));
}

/** Returns the claims in packed leaves: uint8 job, uint64 units, bytes32 root of the artifact. */
export function leavesOf(packed) {
  const leaf = (part) => ({ job: part[0], units: number(part, 1, 8), root: hex(part.subarray(9)) });
  return parts(packed, LEAF_BYTES).map(leaf);
}

/** Returns the slots that a seed draws from the bitmap `eligible`, in order. */
export function draw(seed, attempt, slotCount, eligible, seats) {
  const slots = [];
  for (let left = eligible, tries = 0; left && slots.length < seats; tries += 1) {
    const random = () => number(keccak(word(seed), word(attempt), word(tries))) % BigInt(slotCount);
    const slot = tries < RANDOM_TRIES * slotCount ? random() : BigInt(tries % slotCount);
    if (has(left, slot)) slots.push(Number(slot));
    left &= ~(1n << slot);
  }
  return slots;
}

/** Returns what a juror commits to before it reveals a vote. */
export function commitment(chainId, rounds, { round, attempt, juror, accept, fraud, reasons, evidence_root, salt }) {
  const place = [chainId, rounds, round, attempt, juror, accept, fraud].map((each) => word(each));
  return hex(keccak(concat(...place, keccak(bytes(reasons)), bytes(evidence_root), bytes(salt))));
}

/** Tells if a vote abstains: it judges nothing, for the one reason 255. */
export const abstains = (vote) => vote.accept === '0' && vote.fraud === '0' && vote.reasons === '0xff';

/** Returns how many of a committee's seats decide. */
export const quorumOf = (seats) => Math.floor((seats + 1) / 2);

/** Returns the verdict of votes (bitmaps `accept` and `fraud`), each submitted job by itself. */
export function majority(votes, submitted, quorum) {
  const said = votes.map(({ accept, fraud }) => [BigInt(accept), BigInt(fraud)]);
  const decided = (held) => {
    let jobs = 0n;
    for (let bit = 1n; bit <= submitted; bit <<= 1n)
      if (said.filter(([accept, fraud]) => held(accept, fraud) & bit).length >= quorum) jobs |= bit & submitted;
    return jobs;
  };
  const unavailable = decided((accept, fraud) => accept & fraud);
  const [accepted, fraud] = [decided((one, other) => one & ~other), decided((one, other) => other & ~one)];
  return { accepted: accepted | unavailable, fraud: fraud | unavailable };
}

/** Returns the word for a job's verdict in the two bitmaps of a vote or a round. */
export const verdictIn = (accepted, fraud, job) => VERDICTS[has(accepted, job) + 2 * has(fraud, job)];

/** Returns the code of a vote's reason for a job: it has one for each job that it does not accept, in their order. */
export function reasonOf(vote, submitted, job) {
  const refused = submitted & ~(BigInt(vote.accept) & ~BigInt(vote.fraud));
  return has(refused, job) ? bytes(vote.reasons)[Number(count(refused & ((1n << BigInt(job)) - 1n)))] : 0;
}

/** Returns the units that leaves are paid for: those of accepted jobs, each up to a bound. */
export const unitsPaid = (leaves, accepted, most) => leaves.reduce((sum, { job, units }) =>
  sum + (has(accepted, job) ? (units < most ? units : most) : 0n), 0n);

/** Returns a juror's agreement with a round's verdict, in jobs, and its fee for it. */
export function feeOf(vote, { accepted, fraud, submitted }, fee) {
  const [accept, refuse] = [BigInt(vote.accept), BigInt(vote.fraud)];
  const bits = count(submitted & ~((accept ^ accepted) | (refuse ^ fraud) | (accept & refuse)));
  return { bits: Number(bits), paid: (fee * bits) / count(submitted) };
}
