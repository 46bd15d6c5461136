// Events as the contracts declare them, and raw logs decoded to the form in which the ledger tells events:
// integers as decimal text, bytes as 0x-hexadecimal, names in snake case.
import { bytes, concat, hex, keccak, number, utf8, word } from './bytes.js';

const TERMS = `(address coordinator, address trainer, bytes32 rulesHash, uint128 pricePerUnit, uint128 jurorFee,
  uint64 maxUnits, uint8 committee, uint8 appealSeats, uint32 workSeconds, uint32 drawSeconds, uint32 commitSeconds,
  uint32 revealSeconds, uint32 challengeSeconds) terms`;
const DECLARED = {
  Rounds: `RoundOpened(uint256 indexed round, uint256 indexed run, uint64 step, uint32 policyVersion, uint16 jobs,
      uint16 slotCount, uint128 reserved, uint40 deadline, bytes assignments);
    Submitted(uint256 indexed round, uint32 indexed node, uint8 batch, bytes32 beacon, bytes leaves, string uri,
      bytes signature);
    SubmissionRefused(uint256 indexed round, uint32 indexed node, uint256 index, uint8 reason);
    RoundClosed(uint256 indexed round, uint256 submitted, uint40 deadline);
    CommitteeDrawn(uint256 indexed round, uint8 attempt, uint64 seedBlock, bytes32 seed, uint32[] jurors,
      uint40 deadline);
    VoteCommitted(uint256 indexed round, uint32 indexed juror, uint8 attempt, bytes32 commitment);
    RevealStarted(uint256 indexed round, uint8 attempt, uint40 deadline);
    VoteRevealed(uint256 indexed round, uint32 indexed juror, uint8 attempt, uint256 accept, uint256 fraud,
      bytes reasons, bytes32 evidenceRoot, bytes32 salt);
    RoundTallied(uint256 indexed round, uint8 attempt, uint256 accepted, uint256 fraud, uint40 deadline);
    CommitteeRedrawn(uint256 indexed round, uint8 attempt, uint40 deadline);
    JobsConsumed(uint256 indexed round, uint256 indexed run, uint256 jobs);
    JobsTainted(uint256 indexed round, uint256 indexed run, uint256 jobs);
    AppealOpened(uint256 indexed appeal, uint256 indexed round, address indexed appellant, uint8 job, uint8 against,
      uint32 node, uint64 units, uint256 deposit, uint40 deadline);
    AppealDecided(uint256 indexed appeal, uint256 indexed round, uint8 job, uint8 verdict, bool decided, uint256 fees,
      uint256 awarded, uint256 forfeited);
    AppealedJobSettled(uint256 indexed round, uint32 indexed node, uint8 job, uint8 verdict, uint256 units,
      uint256 paid);
    SubmissionSettled(uint256 indexed round, uint32 indexed node, uint8 batch, uint256 accepted, uint256 fraud,
      uint256 void_, uint256 units, uint256 paid);
    JurorSettled(uint256 indexed round, uint32 indexed juror, uint16 bits, uint256 paid);
    RoundSettled(uint256 indexed round, uint256 released); RoundVoided(uint256 indexed round, uint256 released);
    JobsFreed(uint256 indexed round, uint16 jobs)`,
  Credits: `CreditsBought(address indexed owner, uint256 amount);
    CreditsRedeemed(address indexed owner, address indexed to, uint256 amount);
    CreditsLocked(address indexed owner, uint256 indexed run, uint256 amount);
    CreditsUnlocked(address indexed owner, uint256 indexed run, uint256 amount);
    CreditsEarned(address indexed owner, uint256 indexed run, uint256 indexed round, uint32 node, uint256 amount);
    CreditsGranted(address indexed owner, uint256 indexed round, uint256 amount)`,
  Market: `RunOpened(uint256 indexed run, address indexed requester, ${TERMS}, bytes32 manifestRoot, string uri);
    TermsAnnounced(uint256 indexed run, address indexed requester, ${TERMS}, uint40 effectiveAt);
    NodeStruck(uint256 indexed run, uint32 indexed node, uint256 indexed round, uint256 strikes);
    EscrowReserved(uint256 indexed run, uint256 indexed round, uint256 amount);
    EscrowReleased(uint256 indexed run, uint256 indexed round, uint256 amount);
    DepositLocked(uint256 indexed run, uint256 indexed round, address indexed owner, uint256 amount);
    DepositPaidOut(uint256 indexed run, uint256 indexed round, address indexed to, uint256 amount);
    CheckpointPublished(uint256 indexed run, uint32 indexed version, bytes32 manifestRoot,
      (uint256 round, uint256 jobs)[] consumed)`,
  Registry: `NodeRegistered(uint32 indexed node, address indexed owner, address indexed key, uint8 role, uint8 slot,
      uint32 capacity, uint256 bond, uint40 activeAt);
    NodeSlashed(uint32 indexed node, address indexed owner, uint256 indexed round, uint8 cause, uint256 amount,
      uint256 bond);
    KeyRotated(uint32 indexed node, address indexed owner, address indexed key);
    SlashesAwarded(address indexed owner, uint256 indexed round, uint256 amount)`,
  Traps: `TrapOpened(uint256 indexed set, uint256 indexed round, uint32 indexed node, uint8 job, uint8 kind,
      bytes32 leaf, uint32[] finders, uint256 bounty)`,
};

const topLevel = (text) => text.split(/,\s*(?![^(]*\))/);
const typeOf = (kind) => (kind.parts ? `(${kind.parts.map(typeOf)})` : kind.type) + (kind.listed ? '[]' : '');

function field(text) {
  const [, tuple, type, listed, indexed, name] = /^(?:\((.*)\)|(\w+))(\[\])?( indexed)? (\w+)$/s.exec(text.trim());
  const named = name === 'void_' ? 'void_jobs' : name.replace(/[A-Z]/g, (letter) => '_' + letter.toLowerCase());
  return { name: named, type, parts: tuple && topLevel(tuple).map(field), listed: !!listed, indexed: !!indexed };
}

function event(contract, declared) {
  const [, name, inner] = /^\s*(\w+)\((.*)\)$/s.exec(declared);
  const fields = topLevel(inner).map(field);
  const topic = hex(keccak(utf8(`${name}(${fields.map(typeOf)})`)));
  const round = fields.filter((each) => each.indexed).findIndex((each) => each.name === 'round') + 1;
  return { contract, name, fields, topic, round };
}

/** Events declared: contract, name, fields, topic 0, and the number of the topic that is its round (0: none). */
export const EVENTS = Object.entries(DECLARED).flatMap(([contract, text]) =>
  text.split(';').map((declared) => event(contract, declared)));

/** Returns the event with this name. */
export const eventNamed = (name) => EVENTS.find((each) => each.name === name);

/** Returns the payload of a raw log of `event`. */
export function decodePayload({ fields }, topics, data) {
  const [whole, payload] = [bytes(data), {}];
  let [topic, at] = [1, 0];
  for (const each of fields) {
    payload[each.name] = each.indexed ? decode(each, bytes(topics[topic++]), 0) : decode(each, whole, at);
    at += each.indexed ? 0 : size(each);
  }
  return payload;
}

const size = (kind) => (kind.listed || !kind.parts ? 32 : 32 * kind.parts.length);

/** Returns the value whose head is at `at`; lists and tuples have parts of one word each. */
function decode(kind, data, at) {
  if (kind.listed || kind.type === 'bytes' || kind.type === 'string') {
    const start = Number(number(data, at));
    const length = Number(number(data, start));
    if (kind.listed) {
      const one = { ...kind, listed: false };
      return Array.from({ length }, (_, index) => decode(one, data, start + 32 + index * size(one)));
    }
    const held = data.subarray(start + 32, start + 32 + length);
    return kind.type === 'bytes' ? hex(held) : new TextDecoder('utf-8', { ignoreBOM: true }).decode(held);
  }
  if (kind.parts) return Object.fromEntries(kind.parts.map((part, n) => [part.name, decode(part, data, at + 32 * n)]));
  if (kind.type === 'address') return hex(data.subarray(at + 12, at + 32));
  if (kind.type === 'bytes32') return hex(data.subarray(at, at + 32));
  return kind.type === 'bool' ? number(data, at) === 1n : String(number(data, at));
}

/** Returns abi.encode of a text and words after it. */
export const encodeText = (text, ...words) =>
  concat(word(32 * (words.length + 1)), ...words, word(utf8(text).length), utf8(text),
    new Uint8Array((32 - (utf8(text).length % 32)) % 32));

/** Returns the call of a function without dynamic arguments. */
export const encodeCall = (signature, ...values) =>
  hex(concat(keccak(utf8(signature)).subarray(0, 4), ...values.map((value) => word(value))));
