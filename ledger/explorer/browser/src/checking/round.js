// A round, checked from the node's own logs: its events, and everything that follows from them.
import { number } from './bytes.js';
import { CLAIMS, compareFacts, fold } from './judging.js';
import { canonical, differ, differEach } from './report.js';
import { inOrder, placeOf } from './sources.js';

const ELIGIBLE = 28; // word of the round that `roundOf` returns

/** Checks a round; returns what it came to by the chain, as `fold` does. */
export async function checkRound(report, ledger, chain, round) {
  const head = await checkPlace(report, ledger, chain);
  const facts = await ledger.json(`/rounds/${round}`);
  const events = await checkEvents(report, ledger, chain, round, head);
  const tale = fold(events, await contextOf(report, chain, events, round, head), chain);
  for (const [name, { made, differences }] of Object.entries(tale.checks))
    if (made || differences.length) report.checked(`${CLAIMS[name]} (${made} compared).`, differences);
  report.checked('The ledger’s round, jobs, seats and payments follow from these.', compareFacts(tale, facts));
  return tale;
}

/** Checks that ledger and node speak of one chain; returns the newest block of the node. */
export async function checkPlace(report, ledger, chain) {
  const [head, { block_number: block, block_hash: hash }] = [await chain.head(), ledger.at];
  const found = (await chain.headers([block])).get(block)?.hash;
  if (found) report.checked(`The ledger has read this chain up to block ${block}.`, differ('its hash', hash, found));
  else report.line('unknown', `The node has not reached block ${block}, up to which the ledger has read.`);
  return head;
}

/** Compares events that the ledger tells with the receipts that they name. */
export async function checkReceipts(report, chain, told) {
  const found = await chain.receipts(told.map((event) => event.tx_hash));
  const headers = await chain.headers(told.map((event) => event.block_number));
  report.checked(`${told.length} events: in the receipts they name, of the right contracts, with all topics and data.`,
    told.flatMap(({ payload, ...event }) => {
      const [log, what] = [found.get(placeOf(event)), `event ${event.name} at ${placeOf(event)}`];
      if (!log) return differ(what, `in transaction ${event.tx_hash}`, 'in no receipt of the node');
      const timestamp = headers.get(log.block_number)?.timestamp;
      return differEach(what, { ...event, ...payload }, { ...log, payload: undefined, ...log.payload, timestamp });
    }));
}

/** Compares the ledger's events of a round with the node's; returns the node's, as far as the ledger has read. */
async function checkEvents(report, ledger, chain, round, head) {
  const told = await ledger.events(round);
  await checkReceipts(report, chain, told);
  const found = await chain.ofRound(round, told[0]?.block_number ?? chain.startBlock, head);
  const read = found.filter((log) => log.block_number <= ledger.at.block_number);
  const known = new Set(told.map(placeOf));
  report.checked(`The ledger tells all ${read.length} events of the round that the node has, and no other.`, [
    // An appeal begins with its deposit.
    ...differ('first event', ['EscrowReserved', 'DepositLocked'].includes(told[0]?.name), true),
    ...told.flatMap((event) => differ(`round of ${event.name} at ${placeOf(event)}`, event.payload.round, `${round}`)),
    ...read.flatMap((log) =>
      differ(`${log.name} ${canonical(log.payload)}`, known.has(placeOf(log)) ? 'told' : 'missing', 'told')),
  ]);
  if (read.length < found.length) report.line('unknown', 'The node has newer events of the round.');
  return read;
}

/** Returns what a round's events are judged by besides themselves, from the node's logs and state. */
async function contextOf(report, chain, events, round, head) {
  const [appealed] = await chain.logs(['AppealOpened'], [round], head);
  const [opened] = await chain.logs(['RoundOpened'], [appealed?.payload.round ?? round], head);
  const draws = events.filter((log) => log.name === 'CommitteeDrawn');
  const ids = events.flatMap(({ payload: { node, juror, jurors = [] } }) => [node, juror, ...jurors]).filter(Boolean);
  const nodes = await nodesOf(chain, [...new Set(ids)], head);
  return {
    round, nodes, appeal: appealed?.payload, opening: opened.payload,
    slotCount: Number(opened.payload.slot_count),
    terms: await termsAt(chain, opened), seeds: await chain.headers(draws.map((log) => Number(log.payload.seed_block))),
    eligible: new Map((await Promise.all(draws.map((log) => eligibleAt(report, chain, round, log)))).flat()),
    keyAt: (node, log) => nodes.get(Number(node))?.keys.findLast((each) => inOrder(each, log) < 0)?.key,
    slotOf: (node) => nodes.get(Number(node))?.slot,
  };
}

/** Returns the place of a draw with its eligible slots, in a list; none where the node's state is not that old. */
async function eligibleAt(report, chain, round, log) {
  const held = await chain.view('Rounds', 'roundOf(uint256)', [round], log.block_number);
  if (!held) report.line('unknown', `The node keeps no state of block ${log.block_number}, as an archive node would: ` +
    'the draw there is not checked, as no event tells the eligible slots.');
  return held ? [[placeOf(log), number(held, 32 * ELIGIBLE)]] : [];
}

/** Returns owner, slot and keys, oldest first, of nodes by number. */
async function nodesOf(chain, ids, head) {
  const nodes = new Map();
  for (const log of ids.length ? await chain.logs(['NodeRegistered', 'KeyRotated'], [ids], head) : []) {
    const { node, owner, key, slot } = log.payload;
    const known = nodes.get(Number(node)) ?? { owner, slot: Number(slot), keys: [] };
    nodes.set(Number(node), { ...known, keys: [...known.keys, { ...log, key }] });
  }
  return nodes;
}

/** Returns a run's terms at one of its events. An announcement replaces an earlier one that is not in effect yet. */
export async function termsAt(chain, event) {
  const logs = await chain.logs(['RunOpened', 'TermsAnnounced'], [event.payload.run], event.block_number);
  const told = logs.filter((log) => inOrder(log, event) < 0).concat(event);
  const headers = await chain.headers(told.map((log) => log.block_number));
  let [terms, next] = [event.payload.terms, null];
  for (const { name, payload, block_number } of told) {
    if (next && Number(next.effective_at) <= headers.get(block_number).timestamp) terms = next.terms;
    if (name === 'RunOpened') terms = payload.terms;
    next = name === 'TermsAnnounced' ? payload : null;
  }
  return terms;
}
