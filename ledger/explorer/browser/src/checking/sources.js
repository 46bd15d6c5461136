// The two sides of a check: the ledger, whose every word is a claim, and a node that the reader chose.
import { decodePayload, encodeCall, EVENTS } from './abi.js';
import { bytes, hex, word } from './bytes.js';

const [PAGE, BATCH, MOST_BYTES] = [500, 100, 80 << 20]; // events of a page, calls in one request, bytes of a blob

/** Returns the place of a log or an item on the chain as text. */
export const placeOf = (item) => `${item.block_number}:${item.log_index}`;
/** Orders logs as the chain does. */
export const inOrder = (one, other) => one.block_number - other.block_number || one.log_index - other.log_index;

const quantity = (value) => (value === 'latest' ? value : '0x' + BigInt(value).toString(16));
const topicOf = (value) => (Array.isArray(value) ? value.map(topicOf) : value === null ? null : hex(word(value)));

/** Answers of a ledger, all as of one block. */
export class Ledger {
  constructor(url) { this.url = url; }

  /** Pins the block of a hash, or else the ledger's newest; every claim is as of it. */
  async pin(hash) { this.at = await (hash ? this.json('/events', { limit: 1, as_of: hash }) : this.json('/health')); }

  /** Returns the JSON of an address. */
  async json(path, query = {}) {
    const asked = new URLSearchParams({ ...query, ...(this.at && { as_of: this.at.block_hash }) });
    const answer = await fetch(`${this.url}${path}?${asked}`, { headers: { Accept: 'application/json' } });
    const told = await answer.json();
    if (answer.ok) return told;
    throw new Error(`the ledger refuses ${path}: ${told.error}`);
  }

  /** Returns the events that the ledger tells of a round. */
  async events(round) {
    const told = [];
    for (let page = { next: '' }; page.next !== null; told.push(...page.items))
      page = await this.json('/events', { round, limit: PAGE, ...(page.next && { after: page.next }) });
    return told;
  }

  /** Returns the one item of a list at a place on the chain, or undefined. */
  async itemAt(path, block, log) {
    const after = btoa(JSON.stringify(log ? [block, log - 1] : [block - 1, 2 ** 40])).replace(/=+$/, '');
    return (await this.json(path, { limit: 1, after })).items.find((item) => placeOf(item) === `${block}:${log}`);
  }

  /** Returns the bytes under an address; if they cannot be had, the report says why. */
  async blob(report, path) {
    const answer = await fetch(this.url + path, { headers: { Accept: 'application/octet-stream' } });
    const data = new Uint8Array(await answer.arrayBuffer());
    if (answer.ok && data.length <= MOST_BYTES) return data;
    return report.line('unknown', `Bytes of ${path} cannot be had: the ledger answers ${answer.status}.`);
  }
}

/** A chain as a JSON-RPC node has it, and the contracts on it (`chainId`, `startBlock`, `contracts`). */
export class Chain {
  constructor(url, deployment) {
    Object.assign(this, { url, ...deployment });
    this.names = new Map(Object.entries(this.contracts).map(([name, address]) => [address.toLowerCase(), name]));
  }

  /** Returns the results of calls of a method, each with its parameters, or the errors if they are wanted. */
  async ask(method, calls, withErrors = false) {
    const answers = [];
    for (let id = 0; id < calls.length; id += BATCH) {
      const batch = calls.slice(id, id + BATCH).map((params, n) => ({ jsonrpc: '2.0', id: id + n, method, params }));
      const post = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(batch) };
      const given = await (await fetch(this.url, post)).json();
      for (const each of Array.isArray(given) ? given : []) answers[each.id] = each;
    }
    return calls.map((_, id) => {
      const { error, result } = answers[id] ?? { error: { message: 'no answer' } };
      if (error && !withErrors) throw new Error(`the node fails in ${method}: ${error.message}`);
      return error ? { error } : result;
    });
  }

  /** Returns the number of the newest block, of the deployment's chain. */
  async head() {
    const [[id], [head]] = [await this.ask('eth_chainId', [[]]), await this.ask('eth_blockNumber', [[]])];
    if (Number(id) === this.chainId) return Number(head);
    throw new Error(`the node is of chain ${Number(id)}, the contracts are on chain ${this.chainId}`);
  }

  /** Returns hash and timestamp of blocks by number; a block that the node lacks is left out. */
  async headers(numbers) {
    const found = await this.ask('eth_getBlockByNumber', [...new Set(numbers)].map((each) => [quantity(each), false]));
    return new Map(found.filter(Boolean).map((block) =>
      [Number(block.number), { hash: block.hash, timestamp: Number(block.timestamp) }]));
  }

  /** Returns the logs of transactions by place, decoded where they are of a contract; none of what the node lacks. */
  async receipts(transactions) {
    const found = await this.ask('eth_getTransactionReceipt', [...new Set(transactions)].map((each) => [each]));
    const logs = found.filter(Boolean).flatMap((receipt) => receipt.logs.map((log) => this.decoded(log)));
    return new Map(logs.map((log) => [placeOf(log), log]));
  }

  /** Returns the logs of events by name that have these topics after the first, in the order of the chain. */
  async logs(names, topics, to, from = this.startBlock) {
    const events = EVENTS.filter((each) => names.includes(each.name));
    const address = [...new Set(events.map((each) => this.contracts[each.contract]))];
    const range = { fromBlock: quantity(from), toBlock: quantity(to) };
    const filter = { address, topics: [events.map((each) => each.topic), ...topics.map(topicOf)], ...range };
    const [found] = await this.ask('eth_getLogs', [[filter]], from < to);
    if (!found.error) return found.map((log) => this.decoded(log)).filter((log) => log.name);
    const middle = Math.floor((from + to) / 2); // nodes bound the blocks or the logs of one answer
    return [...(await this.logs(names, topics, middle, from)), ...(await this.logs(names, topics, to, middle + 1))];
  }

  /** Returns every event of the contracts that names a round, in the order of the chain. */
  async ofRound(round, from, to) {
    const named = (place) => EVENTS.filter((each) => each.round === place).map((each) => each.name);
    const asked = [[], [null], [null, null]].map((before) =>
      this.logs(named(before.length + 1), [...before, round], to, from));
    return (await Promise.all(asked)).flat().sort(inOrder);
  }

  /** Returns what a view answers as of a block, or null where the node does not keep the state of that block. */
  async view(contract, signature, values, block) {
    const call = { to: this.contracts[contract], data: encodeCall(signature, ...values) };
    const [found] = await this.ask('eth_call', [[call, quantity(block)]], true);
    return found.error || found === '0x' ? null : bytes(found);
  }

  /** Returns a raw log with its place, and as an event where it is one of a contract. */
  decoded({ address, topics, data, blockNumber, logIndex, blockHash, transactionHash }) {
    const contract = this.names.get(address.toLowerCase());
    const event = EVENTS.find((each) => each.contract === contract && each.topic === topics[0]);
    const told = event ? { name: event.name, payload: decodePayload(event, topics, data) } : { address };
    const [block_number, log_index] = [Number(blockNumber), Number(logIndex)];
    return { block_number, log_index, block_hash: blockHash, tx_hash: transactionHash, ...told };
  }
}
