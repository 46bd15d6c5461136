// Calls of the contracts: decoded from their bytes, said in words, and compared with what a form asks for.
import { keccak_256 } from '@noble/hashes/sha3.js';
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils.js';
import abi from '../../../static/built/abi.json';

const WEI = 10n ** 18n;
const WORD = 64; // hex digits

// A difference between what was asked for and what came: nothing is signed. The message is one sentence.
export class Refused extends Error {}

// What each action's own call must be: contract, function, and the arguments that the form determines.
const VERBS = {
  'top-up': (form) => ['Registry', 'topUp', { node: form.node, amount: form.amount }],
  retire: (form) => ['Registry', 'retire', { node: form.node }],
  withdraw: (form) => ['Registry', 'withdraw', { node: form.node }],
  join: (form) => ['Market', 'join', { run: form.run, node: form.node, rulesHash: form.rules_hash }],
  leave: (form) => ['Market', 'leave', { run: form.run, node: form.node }],
  redeem: (form) => ['Credits', 'redeemTo', { to: form.to, amount: form.amount }],
  fund: (form) => ['Market', 'fund', { run: form.run, amount: form.amount }],
  appeal: (form) => ['Rounds', 'appeal', { round: form.round, job: form.job }],
};

// What may come first: an approval, for a bond, and else a purchase of credits up to `most` with its approval.
function providing(verb, form, contracts, calls) {
  const approve = (contract, value) => ['Token', 'approve', { spender: contracts[contract], value }];
  if (verb === 'top-up') return [approve('Registry', form.amount)];
  const most = { fund: form.amount, appeal: form.deposit }[verb];
  if (most === undefined) return [];
  const amount = calls.at(-1)?.arguments.amount ?? 0n;
  if (amount > most) {
    throw new Refused(`the answer buys ${tokens(amount)} of credits, and the form allows ${tokens(most)}`);
  }
  return [approve('Credits', amount), ['Credits', 'buy', { amount }]];
}

// Returns the calls of an answer in their order, decoded; throws Refused where one is other than the form asks for.
export function checked(verb, form, page, answer) {
  try {
    return matching(verb, form, page, answer);
  } catch (error) {
    throw error instanceof Refused ? error : new Refused('what the ledger sent is not an answer to this form');
  }
}

function matching(verb, form, page, answer) {
  if (String(answer.chain_id) !== page.chainId) {
    throw new Refused(`the answer is for chain ${answer.chain_id}, and this page for chain ${page.chainId}`);
  }
  const own = decoded(page.contracts, answer);
  const first = answer.first.map((each) => decoded(page.contracts, each));
  const before = providing(verb, form, page.contracts, first);
  if (first.length > before.length) throw new Refused(`the answer has ${first.length} calls before the one asked for`);
  const wanted = [...before.slice(before.length - first.length), VERBS[verb](form)];
  const calls = [...first, own];
  calls.forEach((call, index) => compare(call, ...wanted[index]));
  return calls;
}

function compare(call, contract, name, wanted) {
  if (call.contract !== contract || call.name !== name) {
    throw new Refused(`the data calls ${call.contract}.${call.name}, and ${contract}.${name} was asked for`);
  }
  for (const [argument, value] of Object.entries(wanted)) {
    const [given, asked] = [call.arguments[argument], value].map((each) => worded(argument, each));
    if (given.toLowerCase() !== asked.toLowerCase()) {
      throw new Refused(`the data of ${contract}.${name} has ${argument} ${given}, and ${asked} was asked for`);
    }
  }
  const said = { contract: call.said.contract, function: call.said.function, ...call.said.arguments };
  const words = { contract, function: name, ...call.words };
  for (const each of new Set([...Object.keys(said), ...Object.keys(words)])) {
    if (String(said[each]).toLowerCase() !== String(words[each]).toLowerCase()) {
      throw new Refused(`the data of ${contract}.${name} has ${each} ${words[each]}, and its words say ${said[each]}`);
    }
  }
}

// Decodes one call to a contract that the page names. Bytes that are not the one encoding of their values are refused.
function decoded(contracts, { to, data, decoded: said }) {
  const contract = Object.keys(contracts).find((each) => contracts[each].toLowerCase() === String(to).toLowerCase());
  if (!contract) throw new Refused(`the call goes to ${to}, which is none of the contracts that this page names`);
  const known = abi[contract].find((each) => String(data).startsWith(selector(each)));
  if (!known) throw new Refused(`the data calls no function of ${contract} that this page knows`);
  const values = valuesOf(known, data);
  const named = known.inputs.map(({ name }, index) => [name.replace(/^_+|_+$/g, ''), values[index]]);
  const words = Object.fromEntries(named.map(([name, value]) => [name, worded(name, value)]));
  return { to, data, contract, name: known.name, arguments: Object.fromEntries(named), words, said };
}

const selector = ({ name, inputs }) =>
  `0x${bytesToHex(keccak_256(utf8ToBytes(`${name}(${inputs.map(({ type }) => type).join(',')})`))).slice(0, 8)}`;

function valuesOf(known, data) {
  try {
    const values = known.inputs.map(({ type }, index) => read(type, data.slice(10), index * WORD));
    if (encode(known, values) === data) return values;
  } catch {
    // refused below
  }
  throw new Refused(`the data of ${known.name} is not the encoding of any arguments`);
}

function read(type, digits, at) {
  const word = digits.slice(at, at + WORD);
  if (type === 'address') return `0x${word.slice(24)}`;
  if (type === 'bytes32') return `0x${word}`;
  if (type.startsWith('uint')) return BigInt(`0x${word}`);
  if (type !== 'bytes') throw new TypeError(type);
  const start = Number(BigInt(`0x${word}`)) * 2 + WORD;
  const length = Number(BigInt(`0x${digits.slice(start - WORD, start)}`)) * 2;
  return `0x${digits.slice(start, start + length)}`;
}

function encode(known, values) {
  let tail = '';
  const heads = known.inputs.map(({ type }, index) => {
    const value = values[index];
    if (type === 'address') return value.slice(2).padStart(WORD, '0');
    if (type === 'bytes32') return value.slice(2);
    if (type !== 'bytes') return value < 1n << BigInt(type.slice(4)) ? number(value) : '';
    const offset = known.inputs.length * 32 + tail.length / 2;
    tail += number((value.length - 2) / 2) + value.slice(2).padEnd(Math.ceil((value.length - 2) / WORD) * WORD, '0');
    return number(offset);
  });
  return selector(known) + heads.join('') + tail;
}

const number = (value) => value.toString(16).padStart(WORD, '0');

const AMOUNTS = ['amount', 'value'];

function worded(name, value) {
  if (typeof value === 'bigint') return AMOUNTS.includes(name) ? tokens(value) : String(value);
  return value.length <= 66 ? value : `${value.slice(0, 34)}… (${value.length / 2 - 1} bytes)`;
}

export function tokens(wei) {
  const rest = String(wei % WEI).padStart(18, '0').replace(/0+$/, '');
  return `${(wei / WEI).toLocaleString('en')}${rest && `.${rest}`} ASZ`;
}

// Returns the wei of an amount as typed, in tokens; throws Refused.
function weiOf(text) {
  const found = /^(\d+|\d{1,3}(?:,\d{3})+)?(?:\.(\d{1,18}))?$/.exec(text.trim());
  if (!(found?.[1] || found?.[2])) throw new Refused(`invalid amount '${text}': expected tokens such as 48 or 1.5`);
  return BigInt((found[1] ?? '0').replaceAll(',', '')) * WEI + BigInt((found[2] ?? '').padEnd(18, '0'));
}

const WHOLE = { pattern: /^\d{1,18}$/, expected: 'a whole number' };
const FIELDS = {
  node: WHOLE,
  run: WHOLE,
  round: WHOLE,
  job: WHOLE,
  to: { pattern: /^0x[0-9a-fA-F]{40}$/, expected: '0x and 40 hex digits' },
  rules_hash: { pattern: /^0x[0-9a-fA-F]{64}$/, expected: '0x and 64 hex digits' },
};

// Returns what is typed in a field of a form: wei of amounts, numbers, addresses and hashes; throws Refused. A receiver
// may be left out, never suggested: a page of another owner is one link away.
export function typed(name, text) {
  if (name === 'amount' || name === 'deposit') return weiOf(text);
  const { pattern, expected } = FIELDS[name];
  const given = text.trim();
  if (name === 'to' && !given) return undefined;
  if (!pattern.test(given)) throw new Refused(`invalid ${name.replace('_', ' ')} '${text}': expected ${expected}`);
  return pattern === WHOLE.pattern ? BigInt(given) : given;
}
