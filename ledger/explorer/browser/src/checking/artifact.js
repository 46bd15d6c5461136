// An artifact's bytes: the head that its root commits to, and the rollouts in its file, which is Parquet written in one
// way: for each column a page header, levels and values, one after another, then the footer with its pairs of texts.
import { encodeText } from './abi.js';
import { concat, hex, keccak, number, word } from './bytes.js';

const HEAD_BYTES = 72;
const COLUMNS = ['prompt_tokens', 'output_tokens', 'logprobs', 'proofs', 'finish_reason'];
const [BINARY, LIST, STRUCT] = [8, 9, 12];
const DEPTH = 8;

/** Returns rollouts root, file hash and size in the head of a blob, the root that they make, and the file. */
export function splitBlob(blob) {
  const [rolloutsRoot, fileHash] = [blob.subarray(0, 32), blob.subarray(32, 64)];
  const size = number(blob, 64, 8);
  const root = hex(keccak(encodeText('assize/file/1', rolloutsRoot, fileHash, word(size))));
  return { rolloutsRoot: hex(rolloutsRoot), fileHash: hex(fileHash), size, root, file: blob.subarray(HEAD_BYTES) };
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
  const pairs = Array.from({ length: Math.ceil(leaves.length / 2) }, (_, index) => leaves.slice(2 * index, 2 * index + 2));
  return merkleRoot(pairs.map((pair) => (pair.length === 2 ? keccak(Uint8Array.of(1), ...pair) : pair[0])));
}

/** Returns the bytes of a rollout for its leaf: counts and numbers big-endian, proofs with their lengths, the finish. */
export function canonicalRollout(index, rollout) {
  const { prompt_tokens: prompt, output_tokens: output, logprobs, proofs, finish_reason: finish } = rollout;
  const counts = [index, prompt.length / 4, output.length / 4, proofs.length].map((each) => word(each, 4));
  const withLengths = proofs.flatMap((proof) => [word(proof.length, 4), proof]);
  const numbers = [prompt, output, logprobs].map(swapped);
  return concat(...counts, ...numbers, ...withLengths, Uint8Array.of(['stop', 'length'].indexOf(finish)));
}

/** Returns numbers of four bytes from little-endian to big-endian. */
function swapped(data) {
  const turned = new Uint8Array(data.length);
  for (let at = 0; at < data.length; at += 1) turned[at] = data[at ^ 3];
  return turned;
}

/** Returns the artifact in a file: the pairs of its footer, and its rollouts, numbers as their bytes in the file. */
export function readArtifact(file) {
  const view = new DataView(file.buffer, file.byteOffset, file.length);
  const end = file.length - 8 - view.getUint32(file.length - 8, true);
  const pairs = readStruct(file, end)[0][5].map((pair) => [1, 2].map((at) => new TextDecoder().decode(pair[at])));
  const { round, job, node, manifest_root, canary } = Object.fromEntries(pairs.map(([name, text]) => [name.slice(7), text]));
  const columns = {};
  let at = 4;
  for (const name of COLUMNS) {
    const [header, start] = readStruct(file, at);
    at = start + header[2];
    columns[name] = readColumn(name, file.subarray(start, at), header[5][1]);
  }
  const rollouts = columns.finish_reason.map((finish, index) => ({
    ...Object.fromEntries(COLUMNS.map((name) => [name, columns[name][index]])),
    finish_reason: new TextDecoder().decode(finish),
  }));
  return { round, job, node, manifest_root: '0x' + manifest_root, canary: '0x' + canary, rollouts };
}

/** Returns a column's value for each row: texts, lists of byte strings, or the bytes of the row's numbers. */
function readColumn(name, page, levels) {
  if (name === 'finish_reason') return byteStrings(page, levels);
  const view = new DataView(page.buffer, page.byteOffset, page.length);
  const size = 4 + view.getUint32(0, true); // of one run of levels: its size, a varint, one bit for each level
  const bit = (run, index) => (page[(run + 1) * size - Math.ceil(levels / 8) + (index >> 3)] >> (index & 7)) & 1;
  const counts = [];
  for (let index = 0; index < levels; index += 1) {
    if (!bit(0, index)) counts.push(0);
    counts[counts.length - 1] += bit(1, index);
  }
  const values = page.subarray(2 * size);
  const strings = name === 'proofs' && byteStrings(values, counts.reduce((sum, each) => sum + each, 0));
  let at = 0;
  return counts.map((length) => {
    at += length;
    return strings ? strings.slice(at - length, at) : values.subarray(4 * (at - length), 4 * at);
  });
}

function byteStrings(data, total) {
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  let at = 0;
  return Array.from({ length: total }, () => {
    const start = at + 4;
    at = start + view.getUint32(at, true);
    return data.subarray(start, at);
  });
}

/** Returns a struct of Thrift's compact encoding, by field number, and the offset behind it. */
function readStruct(data, start, depth = DEPTH) {
  const fields = {};
  let [at, id] = [start, 0];
  const byte = () => {
    if (at >= data.length) throw new Error('the artifact ends too early');
    return data[at++];
  };
  const varint = () => {
    let [value, scale, part] = [0, 1, 0x80];
    for (; part & 0x80; scale *= 128) {
      part = byte();
      value += (part & 0x7f) * scale;
    }
    return value;
  };
  const value = (kind, levels) => {
    if (kind === 1 || kind === 2) return kind === 1;
    if (kind === 3) return byte();
    if (kind > 3 && kind < 7) return varint() / 2;
    if (kind === BINARY) {
      const length = varint();
      return data.subarray(at, (at += length));
    }
    if (!levels || (kind !== LIST && kind !== STRUCT)) throw new Error('the artifact has a header of another form');
    if (kind === STRUCT) {
      const [inner, end] = readStruct(data, at, levels - 1);
      at = end;
      return inner;
    }
    const head = byte();
    const length = head >> 4 === 15 ? varint() : head >> 4;
    return Array.from({ length: Math.min(length, data.length) }, () => value(head & 15, levels - 1));
  };
  for (let head = byte(); head; head = byte()) {
    id += head >> 4;
    fields[id] = value(head & 15, depth);
  }
  return [fields, at];
}
