// Raw logs, decoded by the compiler's own ABI to the form in which the ledger tells events: integers as decimal text,
// bytes as 0x-hexadecimal, names in snake case.
import { abi as Credits } from '../../../../../contracts/abi/Credits.json';
import { abi as Market } from '../../../../../contracts/abi/Market.json';
import { abi as Registry } from '../../../../../contracts/abi/Registry.json';
import { abi as Rounds } from '../../../../../contracts/abi/Rounds.json';
import { abi as Traps } from '../../../../../contracts/abi/Traps.json';
import { bytes, concat, hex, keccak, number, utf8, word } from './bytes.js';

/** The contracts' interfaces by name, as the compiler gives them. */
export const ABIS = { Rounds, Market, Credits, Registry, Traps };
const snake = (name) => name.replace(/[A-Z]/g, (letter) => '_' + letter.toLowerCase()).replace(/^void_$/, 'void_jobs');
const typeOf = ({ type, components }) => type.replace('tuple', `(${components?.map(typeOf)})`);

function described(contract, { name, inputs }) {
  const topic = hex(keccak(utf8(`${name}(${inputs.map(typeOf)})`)));
  const round = inputs.filter((input) => input.indexed).findIndex((input) => input.name === 'round') + 1;
  return { contract, name, inputs, topic, round };
}

/** Events: contract, name, inputs, topic 0, and the number of the topic that is a round (0 where none is). */
export const EVENTS = Object.entries(ABIS).flatMap(([contract, abi]) =>
  abi.filter((entry) => entry.type === 'event').map((entry) => described(contract, entry)));

/** Returns the payload of a raw log of an event; its text, if it has one, is `raw` as well: not all bytes are text. */
export function decodePayload({ inputs }, topics, data) {
  let [topic, at, body, payload] = [1, 0, bytes(data), {}];
  for (const input of inputs) {
    if (input.type === 'string') Object.defineProperty(payload, 'raw', { value: decode({ type: 'bytes' }, body, at) });
    payload[snake(input.name)] = input.indexed ? decode(input, bytes(topics[topic++]), 0) : decode(input, body, at);
    at += input.indexed ? 0 : size(input);
  }
  return payload;
}

const size = ({ type, components }) => (type === 'tuple' ? 32 * components.length : 32);

/** Returns the value whose head is at `at`; the items of a list and the parts of a tuple are words. */
function decode({ type, components }, data, at) {
  const part = (each, index) => [snake(each.name), decode(each, data, at + 32 * index)];
  if (type === 'tuple') return Object.fromEntries(components.map(part));
  if (type === 'address') return hex(data.subarray(at + 12, at + 32));
  if (type === 'bytes32') return hex(data.subarray(at, at + 32));
  if (type === 'bool') return number(data, at) === 1n;
  if (/^u?int\d+$/.test(type)) return String(number(data, at));
  const start = Number(number(data, at)) + 32;
  const length = Number(number(data, start - 32));
  const held = data.subarray(start, start + length);
  if (type === 'bytes') return hex(held);
  if (type === 'string') return new TextDecoder('utf-8', { ignoreBOM: true }).decode(held);
  const item = { type: type.slice(0, -2), components };
  return Array.from({ length }, (_, index) => decode(item, data, start + index * size(item)));
}

/** Returns abi.encode of a text and the words after it. */
export const encodeText = (text, ...words) => concat(word(32 * (words.length + 1)), ...words, word(utf8(text).length),
  utf8(text), new Uint8Array(-utf8(text).length & 31));

/** Returns the call of a function whose arguments are words. */
export const encodeCall = (signature, ...values) =>
  hex(concat(keccak(utf8(signature)).subarray(0, 4), ...values.map((value) => word(value))));
