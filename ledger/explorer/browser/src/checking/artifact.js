// An artifact's bytes: the head that its root commits to, and the rollouts in its file, which is Parquet written in one
// way: for each column a page header, levels and values, one after another, then the footer with its pairs of texts.
import { encodeText } from './abi.js';
import { concat, hex, keccak, number, word } from './bytes.js';

const PAIR = /assize\.(\w+)\x18([\s\S])/g; // a name, and the length of its value, in Thrift's compact encoding

/** Returns rollouts root, file hash and size in the head of a blob, the root that they make, and the file. */
export function splitBlob(blob) {
  const [rolloutsRoot, fileHash] = [blob.subarray(0, 32), blob.subarray(32, 64)];
  const size = number(blob, 64, 8);
  const root = hex(keccak(encodeText('assize/file/1', rolloutsRoot, fileHash, word(size))));
  return { rolloutsRoot: hex(rolloutsRoot), fileHash: hex(fileHash), size, root, file: blob.subarray(72) };
}

/** Returns the root of an artifact's rollouts: a Merkle tree over them, bound to chain, contract, job and policy. */
export function rolloutsRoot(chainId, rounds, { round, job, node, manifest_root, canary, rollouts }) {
  const leaves = rollouts.map((rollout, index) => keccak(Uint8Array.of(0), canonicalRollout(index, rollout)));
  const place = [chainId, rounds, round, job, node, manifest_root, canary, rollouts.length].map((each) => word(each));
  return hex(keccak(encodeText('assize/artifact/2', ...place, merkleRoot(leaves))));
}

/** Returns the root over leaves of 32 bytes; an odd node rises to the next level unchanged. */
export function merkleRoot(leaves) {
  if (leaves.length === 1) return leaves[0];
  const lefts = leaves.filter((_, index) => index % 2 === 0);
  return merkleRoot(lefts.map((left, index) =>
    (2 * index + 1 < leaves.length ? keccak(Uint8Array.of(1), left, leaves[2 * index + 1]) : left)));
}

/** Returns a rollout's bytes for its leaf: counts and numbers big-endian, proofs with their lengths, the finish. */
export function canonicalRollout(index, { prompt, output, logprobs, proofs, finish }) {
  const counts = [index, prompt.length / 4, output.length / 4, proofs.length].map((each) => word(each, 4));
  const numbers = [prompt, output, logprobs].map((each) => each.map((_, at) => each[at ^ 3])); // from little-endian
  const ended = Uint8Array.of(['stop', 'length'].indexOf(String.fromCharCode(...finish)));
  return concat(...counts, ...numbers, ...proofs.flatMap((proof) => [word(proof.length, 4), proof]), ended);
}

/** Returns the artifact in a file: the pairs of its footer as text, and its rollouts, numbers as their bytes there. */
export function readArtifact(file) {
  const footer = file.subarray(file.length - 8 - little(file, file.length - 8));
  const text = Array.from(footer, (byte) => String.fromCharCode(byte)).join('');
  const pair = ({ 0: all, 1: name, 2: length, index }) => [name, text.substr(index + all.length, length.charCodeAt())];
  const { round, job, node, manifest_root, canary } = Object.fromEntries([...text.matchAll(PAIR)].map(pair));
  let at = 4;
  const [prompt, output, logprobs, proofs, finishes] = [0, 0, 0, 1, 2].map((kind) => { // numbers, strings, one string
    const [size, levels, start] = pageHeader(file, at);
    at = start + size;
    const page = file.subarray(start, at);
    const [counts, values] = kind === 2 ? [Array(levels).fill(1), 0] : lengths(page, levels);
    return rows(page, counts, values, kind > 0);
  });
  const rollouts = finishes.map(([finish], row) =>
    ({ prompt: prompt[row], output: output[row], logprobs: logprobs[row], proofs: proofs[row], finish }));
  return { round, job, node, manifest_root: '0x' + manifest_root, canary: '0x' + canary, rollouts };
}

const little = (data, at) => new DataView(data.buffer, data.byteOffset).getUint32(at, true);

/** Returns size and levels in a page's header, whose three numbers (size, size, levels) are varints, and its end. */
function pageHeader(data, start) {
  let at = start + 2;
  const varint = (before) => {
    let value = 0;
    at += before;
    for (let scale = 1; ; scale *= 128) {
      value += (data[at] & 127) * scale;
      if (!(data[at++] > 127)) return value / 2;
    }
  };
  const [size, , levels] = [varint(1), varint(1), varint(2)];
  return [size, levels, at + 8];
}

/** Returns how many values each row has, by the two runs of bits at the start of a page, and the end of these runs. */
function lengths(page, levels) {
  if (levels > 8 * page.length) throw new Error('the artifact has another layout');
  const [size, counts] = [4 + little(page, 0), []]; // of a run: its size, a varint, one bit for each level
  const bit = (run, index) => (page[(run + 1) * size - Math.ceil(levels / 8) + (index >> 3)] >> (index & 7)) & 1;
  for (let index = 0; index < levels; index += 1) {
    if (!bit(0, index)) counts.push(0);
    counts[counts.length - 1] += bit(1, index);
  }
  return [counts, 2 * size];
}

/** Returns the values of each row of a page: byte strings, or the bytes of its numbers. */
function rows(page, counts, start, asStrings) {
  let at = start;
  const next = (bytes) => page.subarray(at, (at += bytes));
  const string = () => next(little(next(4), 0));
  return counts.map((length) => (asStrings ? Array.from({ length }, string) : next(4 * length)));
}
