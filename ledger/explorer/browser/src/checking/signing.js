// EIP-712 messages of the protocol, and the address whose key signed one.
import { secp256k1 } from '@noble/curves/secp256k1.js';
import { bytes, concat, hex, keccak, utf8, word } from './bytes.js';

const DOMAIN = 'EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)';
const FIELDS = {
  Submission: 'uint256 round,uint32 node,bytes32 beacon,bytes leaves,string uri',
  Checkpoint: 'uint256 run,uint32 version,bytes32 manifestRoot',
  Evidence: 'uint256 round,uint8 attempt,uint32 juror,bytes32 root',
  Request: 'uint256 run,string method,string path,bytes32 body,uint256 nonce,uint256 deadline',
  NodeBinding: 'address owner,address key,uint8 role,uint32 capacity,uint256 deadline',
};

/**
 * Returns the 32 bytes that a key signs.
 * @param {{name: string, chainId: number, contract: string}} domain
 * @param {string} primary  name of the message
 * @param {Array} values    in the order of its fields
 */
export function digest(domain, primary, values) {
  const parts = FIELDS[primary].split(',').map((each, index) => encoded(each.split(' ')[0], values[index]));
  const content = keccak(keccak(utf8(`${primary}(${FIELDS[primary]})`)), ...parts);
  const named = [utf8(DOMAIN), utf8(domain.name), utf8('1')].map((each) => keccak(each));
  const separator = keccak(...named, word(domain.chainId), word(domain.contract));
  return keccak(Uint8Array.of(0x19, 0x01), separator, content);
}

const encoded = (type, value) =>
  type === 'string' ? keccak(utf8(value)) : type === 'bytes' ? keccak(bytes(value)) : word(value);

/** Returns the address whose key made a canonical signature (r, s, v; s in the lower half), or why there is none. */
export function signer(hash, signature) {
  const given = bytes(signature);
  if (given.length !== 65 || ![27, 28].includes(given[64])) return 'no key: not r, s and v';
  try {
    const made = secp256k1.Signature.fromBytes(given.subarray(0, 64));
    if (made.hasHighS()) return 'no key: s is in the upper half';
    const point = made.addRecoveryBit(given[64] - 27).recoverPublicKey(hash);
    return hex(keccak(point.toBytes(false).subarray(1)).subarray(12));
  } catch {
    return 'no key: no point of the curve';
  }
}
