// Signatures: EIP-712 messages of the protocol, the address whose key signed one, and documents in signed envelopes.
import { secp256k1 } from '@noble/curves/secp256k1.js';
import { bytes, hex, keccak, utf8, word } from './bytes.js';

const DOMAIN = 'EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)';
const FIELDS = {
  Submission: 'uint256 round,uint32 node,bytes32 beacon,bytes leaves,string uri',
  Checkpoint: 'uint256 run,uint32 version,bytes32 manifestRoot',
  Evidence: 'uint256 round,uint8 attempt,uint32 juror,bytes32 root',
};
const ENVELOPE = /^\{"(?:bundle|manifest)":(\{.*\}),(?:"run":(\d+),)?"signature":"(0x[0-9a-f]{130})"\}$/s;

/**
 * Returns the 32 bytes that a key signs.
 * @param {{name: string, chainId: number, contract: string}} domain
 * @param {string} primary  name of the message
 * @param {Array} values    in the order of its fields
 */
export function digest(domain, primary, values, fields = FIELDS[primary]) {
  const hashed = { string: (text) => keccak(text.buffer ? text : utf8(text)), bytes: (data) => keccak(bytes(data)) };
  const parts = fields.split(',').map((field, index) => (hashed[field.split(' ')[0]] ?? word)(values[index]));
  const content = keccak(keccak(utf8(`${primary}(${fields})`)), ...parts);
  const named = [DOMAIN, domain.name, '1'].map((each) => keccak(utf8(each)));
  return keccak(Uint8Array.of(0x19, 0x01), keccak(...named, word(domain.chainId), word(domain.contract)), content);
}

/** Returns the address whose key made a canonical signature (r, s, v; s in the lower half), or why there is none. */
export function signer(hash, signature) {
  const given = bytes(signature);
  if (given.length !== 65 || ![27, 28].includes(given[64])) return 'no key: not r, s and v';
  const made = secp256k1.Signature.fromBytes(given.subarray(0, 64));
  if (made.hasHighS()) return 'no key: s is in the upper half';
  const key = made.addRecoveryBit(given[64] - 27).recoverPublicKey(hash).toBytes(false);
  return hex(keccak(key.subarray(1)).subarray(12));
}

/** Returns the parts of an envelope of canonical JSON: root (of the bytes as they came), contents, run, signature. */
export function openEnvelope(data) {
  const found = ENVELOPE.exec(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data));
  if (!found) throw new Error('the bytes are no signed document');
  return { root: hex(keccak(utf8(found[1]))), held: JSON.parse(found[1]), run: found[2], signature: found[3] };
}
