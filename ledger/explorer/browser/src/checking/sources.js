// The two sides of a check: the ledger, whose every word is a claim, and a node that the reader chose.
import { decodePayload, encodeCall, EVENTS, eventNamed } from './abi.js';
import { bytes, hex, word } from './bytes.js';

const PAGE = 500;
const BATCH = 100;
const MOST_BYTES = 80 << 20;

/** Answers of a ledger, all as of one block. */
export class Ledger {
  constructor(url) {
    this.url = url;
  }

  /** Pins the block of a hash, or else the ledger's newest; every claim is as of it. */
  async pin(block) {
    this.at = block ? await this.json('/events', { limit: 1, as_of: block }) : await this.json('/health');
  }

  /** Returns the JSON of an address. */
  async json(path, query = {}) {
    const asked = new URLSearchParams({ ...query, ...(this.at && { as_of: this.at.block_hash }) });
    const answer = await fetch(`${this.url}${path}?${asked}`, { headers: { Accept: 'application/json' } });
    const told = await answer.json();
    if (!answer.ok) throw new Error(`the ledger refuses ${path}: ${told.error}`);
    return told;
  }

  /** Returns the events that the ledger tells of a round. */
  async events(round) {
    const told = [];
    for (let after = null; ; ) {
      const page = await this.json('/events', { round, limit: PAGE, ...(after && { after }) });
      told.push(...page.items);
      after = page.next;
      if (!after) return told;
    }
  }

  /** Returns the one item of a list at a place on the chain, or undefined. */
  async itemAt(path, block, log) {
    const before = btoa(JSON.stringify(log ? [block, log - 1] : [block - 1, 2 ** 40]));
    const page = await this.json(path, { limit: 1, after: before.replace(/=+$/, '') });
    return page.items.find((item) => item.block_number === block && item.log_index === log);
  }

  /** Returns the bytes under an address, or why there are none. */
  async blob(path) {
    const answer = await fetch(this.url + path, { headers: { Accept: 'application/octet-stream' } });
    if (!answer.ok) return { missing: `the ledger answers ${answer.status} for ${path}` };
    const data = new Uint8Array(await answer.arrayBuffer());
    return data.length > MOST_BYTES ? { missing: `${path} has ${data.length} bytes, too many to check here` } : { data };
  }
}

/** A chain as a JSON-RPC node has it, and the contracts on it. */
export class Chain {
  /** @param {string} url  @param {{chainId: number, startBlock: number, contracts: object}} deployment */
  constructor(url, deployment) {
    this.url = url;
    this.deployment = deployment;
    this.contracts = Object.fromEntries(EVENTS.map(({ contract: each }) => [each, deployment.contracts[each].toLowerCase()]));
    this.names = Object.fromEntries(Object.entries(this.contracts).map(([name, address]) => [address, name]));
  }

  /** Returns the answers, `{result}` or `{error}`, to calls `[method, ...parameters]`, in their order. */
  async ask(calls) {
    const answers = [];
    for (let start = 0; start < calls.length; start += BATCH) {
      const batch = calls.slice(start, start + BATCH)
        .map(([method, ...params], id) => ({ jsonrpc: '2.0', id: start + id, method, params }));
      const headers = { 'Content-Type': 'application/json' };
      const answer = await fetch(this.url, { method: 'POST', headers, body: JSON.stringify(batch) });
      const given = await answer.json();
      if (!Array.isArray(given)) throw new Error(`the RPC refuses a batch: ${given.error?.message ?? answer.status}`);
      for (const each of given) answers[each.id] = each;
    }
    return Array.from(calls, (_, index) => answers[index] ?? { error: { message: 'the RPC left it out' } });
  }

  async #results(calls) {
    const answers = await this.ask(calls);
    const failed = answers.find((each) => each.error);
    if (failed) throw new Error(`the RPC fails: ${failed.error.message}`);
    return answers.map((each) => each.result);
  }

  /** Checks that the node is of the deployment's chain, and returns its newest block. */
  async head() {
    const [id, head] = await this.#results([['eth_chainId'], ['eth_blockNumber']]);
    if (Number(id) !== this.deployment.chainId)
      throw new Error(`the RPC is of chain ${Number(id)}, the contracts are on chain ${this.deployment.chainId}`);
    return Number(head);
  }

  /** Returns hash and timestamp of blocks by number; a block that the node lacks is left out. */
  async headers(numbers) {
    const wanted = [...new Set(numbers)];
    const found = await this.#results(wanted.map((each) => ['eth_getBlockByNumber', quantity(each), false]));
    const known = found.filter(Boolean);
    return new Map(known.map((each) => [Number(each.number), { hash: each.hash, timestamp: Number(each.timestamp) }]));
  }

  /** Returns the logs of transactions, decoded, by place; of those the node does not know, none. */
  async receipts(transactions) {
    const found = await this.#results([...new Set(transactions)].map((each) => ['eth_getTransactionReceipt', each]));
    return byPlace(found.filter(Boolean).flatMap((receipt) => receipt.logs).map((log) => this.#decoded(log)));
  }

  /** Returns the contracts' logs of events with these topics, in the order of the chain. */
  async logs(names, topics, from, to) {
    const events = names.map(eventNamed);
    const address = [...new Set(events.map((each) => this.contracts[each.contract]))];
    const found = await this.#logs(address, [events.map((each) => each.topic), ...topics.map(topicOf)], from, to);
    return found.map((log) => this.#decoded(log)).filter((log) => names.includes(log.name));
  }

  async #logs(address, topics, from, to) {
    const filter = { address, topics, fromBlock: quantity(from), toBlock: quantity(to) };
    const [answer] = await this.ask([['eth_getLogs', filter]]);
    if (!answer.error) return answer.result;
    if (from >= to) throw new Error(`the RPC fails: ${answer.error.message}`);
    const middle = Math.floor((from + to) / 2); // nodes bound the blocks or the logs of one answer
    return [...(await this.#logs(address, topics, from, middle)), ...(await this.#logs(address, topics, middle + 1, to))];
  }

  /** Returns every event of the contracts that names a round, in the order of the chain. */
  async eventsOfRound(round, from, to) {
    const found = [];
    for (const place of [1, 2, 3]) {
      const names = EVENTS.filter((each) => each.round === place).map((each) => each.name);
      found.push(...(await this.logs(names, [...Array(place - 1).fill(null), round], from, to)));
    }
    return found.sort(inOrder);
  }

  /** Returns what a view answers as of a block, or null where the node does not keep the state of that block. */
  async view(contract, signature, values, block) {
    const call = { to: this.contracts[contract], data: encodeCall(signature, ...values) };
    const [{ result, error }] = await this.ask([['eth_call', call, quantity(block)]]);
    return error || result === '0x' ? null : bytes(result);
  }

  #decoded(log) {
    const contract = this.names[log.address.toLowerCase()];
    const event = EVENTS.find((each) => each.contract === contract && each.topic === log.topics[0]);
    const place = { block_number: Number(log.blockNumber), log_index: Number(log.logIndex) };
    const from = { block_hash: log.blockHash, tx_hash: log.transactionHash, address: log.address };
    const said = event && { name: event.name, payload: decodePayload(event, log.topics, log.data) };
    return { ...place, ...from, ...said };
  }
}

/** Returns the place of a log or an item on the chain as text. */
export const placeOf = (item) => `${item.block_number}:${item.log_index}`;
/** Returns items by place. */
export const byPlace = (items) => new Map(items.map((item) => [placeOf(item), item]));
/** Orders logs as the chain does. */
export const inOrder = (one, other) => one.block_number - other.block_number || one.log_index - other.log_index;

const quantity = (value) => (value === 'latest' ? value : '0x' + BigInt(value).toString(16));
const topicOf = (value) => (value === null ? null : Array.isArray(value) ? value.map(topicOf) : hex(word(value)));
