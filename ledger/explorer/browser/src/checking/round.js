// A round, checked from the node's own logs: its events, and everything that follows from them.
import { number } from './bytes.js';
import { CLAIMS, comparedFacts, fold } from './judging.js';
import { canonical, differ } from './report.js';
import { inOrder, placeOf } from './sources.js';

const ELIGIBLE = 28; // word of the round that `roundOf` returns

/** Checks a round; returns what it came to by the chain: see `Tale`. */
export async function checkRound(report, ledger, chain, round) {
  const head = await checkPlace(report, ledger, chain);
  const told = await ledger.events(round);
  const facts = await ledger.json(`/rounds/${round}`);
  const events = await checkEvents(report, ledger, chain, round, told, head);
  const tale = fold(events, await contextOf(report, chain, events, facts.round, head), chain.deployment);
  for (const [name, claim] of Object.entries(CLAIMS)) {
    const [number, sentence] = claim(tale);
    if (number || tale.differences[name].length) report.checked(sentence, tale.differences[name]);
  };
  const differences = comparedFacts(tale, facts).flatMap((triple) => differ(...triple));
  report.checked('Round, jobs, seats and payments as the ledger shows them follow from these events.', differences);
  return tale;
}

/** Checks that ledger and node speak of one chain; returns the newest block of the node. */
export async function checkPlace(report, ledger, chain) {
  const { block_number: block, block_hash: told } = ledger.at;
  const head = await chain.head();
  const found = (await chain.headers([block])).get(block);
  if (!found) report.line('unknown', `The node has not reached block ${block}, up to which the ledger has read.`);
  else report.checked(`The ledger speaks of the node's chain: it has read up to block ${block}, ${told}.`,
    differ(`hash of block ${block}`, told, found.hash));
  return head;
}

/** Compares events that the ledger tells with the receipts that they name; `what` says of what they are. */
export async function checkReceipts(report, chain, told, what) {
  const found = await chain.receipts(told.map((event) => event.tx_hash));
  const form = (event) => event && { ...event, address: undefined, timestamp: undefined };
  const differences = told.flatMap((event) => {
    const log = found.get(placeOf(event));
    const at = `event ${event.name} at ${placeOf(event)}`;
    if (!log) return [{ what: at, told: `in transaction ${event.tx_hash}`, found: 'in no receipt of the node' }];
    if (!log.name) return [{ what: at, told: event.name, found: `a log of ${log.address}, foreign to the contracts` }];
    return differ(at, form(event), form(log));
  });
  report.checked(`${told.length} ${what}: each is in the receipt that it names, from the right contract, with the ` +
    'same topics and data.', differences);
}

async function checkEvents(report, ledger, chain, round, told, head) {
  const [first] = told;
  if (!['EscrowReserved', 'DepositLocked'].includes(first?.name))
    report.line('bad', `The ledger does not tell how the round began: its first event is ${first?.name ?? 'missing'}.`);
  await checkReceipts(report, chain, told, 'events of the round');
  const from = first ? first.block_number : chain.deployment.startBlock;
  const found = await chain.eventsOfRound(round, from, head);
  const known = new Set(told.map(placeOf));
  const untold = found.filter((log) => !known.has(placeOf(log)));
  const [missing, newer] = [true, false].map((read) => untold.filter((log) => log.block_number <= ledger.at.block_number === read));
  report.checked(`None of the ${found.length - newer.length} events that the node has of the round is missing.`,
    missing.map((log) => ({ what: `event ${log.name} at ${placeOf(log)}`, told: 'missing', found: canonical(log.payload) })));
  if (newer.length) report.line('unknown', `${newer.length} events are newer than the block that the ledger has read.`);
  return found.filter((log) => log.block_number <= ledger.at.block_number);
}

/** Returns what a round's events are judged by besides themselves, from the node's own logs and state. */
async function contextOf(report, chain, events, fact, head) {
  const { round } = fact;
  const start = chain.deployment.startBlock;
  const [appealed] = await chain.logs(['AppealOpened'], [round], start, head);
  const [opened] = await chain.logs(['RoundOpened'], [appealed?.payload.round ?? round], start, head);
  if (!opened) throw new Error(`the node has no opening of round ${round}`);
  const draws = events.filter((log) => log.name === 'CommitteeDrawn');
  const ids = events.flatMap(({ payload }) => [payload.node, payload.juror, ...(payload.jurors ?? [])]).filter(Boolean);
  const nodes = await nodesOf(chain, [...new Set(ids)].map(Number), head);
  const eligible = new Map();
  for (const log of draws) eligible.set(log.block_number, await eligibleAt(report, chain, fact, log));
  return {
    round, nodes, eligible,
    run: opened.payload.run,
    policy: opened.payload.policy_version,
    appeal: appealed?.payload,
    slotCount: Number(opened.payload.slot_count),
    terms: await termsAt(chain, opened),
    seeds: await chain.headers(draws.map((log) => Number(log.payload.seed_block))),
    keyAt: (node, log) => nodes.get(node)?.keys.findLast((each) => before(each, log))?.key,
    slotOf: (node) => nodes.get(node)?.slot,
  };
}

const before = (one, other) => inOrder(one, other) < 0;

/** Returns the eligible slots of a draw; where the node keeps no state that old, those that the ledger claims. */
async function eligibleAt(report, chain, fact, log) {
  const held = await chain.view('Rounds', 'roundOf(uint256)', [fact.round], log.block_number);
  if (held) return number(held, 32 * ELIGIBLE);
  report.line('unknown', `The node keeps no state of block ${log.block_number}: the draw of attempt ` +
    `${log.payload.attempt} is checked from the eligible slots that the ledger claims. An archive node would have it.`);
  return BigInt(fact.eligible);
}

/** Returns owner, slot and keys, oldest first, of nodes by number. */
export async function nodesOf(chain, ids, head) {
  const nodes = new Map();
  if (!ids.length) return nodes;
  for (const log of await chain.logs(['NodeRegistered', 'KeyRotated'], [ids], chain.deployment.startBlock, head)) {
    const { node, owner, key, slot } = log.payload;
    const known = nodes.get(Number(node)) ?? { owner, slot: Number(slot), keys: [] };
    known.keys.push({ ...log, key });
    nodes.set(Number(node), known);
  }
  return nodes;
}

/** Returns the terms of a run that hold at one of its events. An announcement replaces an earlier one not yet in effect. */
export async function termsAt(chain, event) {
  const logs = await chain.logs(['RunOpened', 'TermsAnnounced'], [event.payload.run], chain.deployment.startBlock, event.block_number);
  const earlier = logs.filter((log) => before(log, event));
  const headers = await chain.headers([...earlier, event].map((log) => log.block_number));
  let [terms, next] = [null, null];
  for (const log of [...earlier, event]) {
    if (next && Number(next.effective_at) <= headers.get(log.block_number).timestamp) terms = next.terms;
    if (log.name === 'RunOpened') terms = log.payload.terms;
    next = log.name === 'TermsAnnounced' ? log.payload : null;
  }
  return terms;
}
