// Bytes, words of 32 bytes, and bitmaps, as the contracts read them: big-endian, bit j stands for job j.
import { keccak_256 } from '@noble/hashes/sha3.js';
import { bytesToHex, concatBytes, hexToBytes, utf8ToBytes } from '@noble/hashes/utils.js';

export { concatBytes as concat, utf8ToBytes as utf8 };

/** Returns the keccak-256 of byte arrays, one after another. */
export const keccak = (...parts) => keccak_256(concatBytes(...parts));
/** Returns bytes as 0x-hexadecimal text. */
export const hex = (data) => '0x' + bytesToHex(data);
/** Returns the bytes of 0x-hexadecimal text. */
export const bytes = (text) => hexToBytes(text.slice(2));
/** Returns a number, or 0x-hexadecimal or decimal text, in `size` bytes. */
export const word = (value, size = 32) => hexToBytes(BigInt(value).toString(16).padStart(2 * size, '0'));
/** Returns the number in `size` bytes at `at`. */
export const number = (data, at = 0, size = 32) => BigInt(hex(data.subarray(at, at + size)));
/** Returns the jobs in a bitmap, ascending. */
export const jobsIn = (bitmap) => [...bitmap.toString(2)].reverse().flatMap((bit, job) => (bit === '1' ? [job] : []));
/** Returns the number of jobs in a bitmap. */
export const count = (bitmap) => BigInt(jobsIn(bitmap).length);
/** Returns a bitmap as the ledger writes it. */
export const bitmap = (bits) => '0x' + bits.toString(16);
