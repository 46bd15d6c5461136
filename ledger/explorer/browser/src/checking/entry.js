// A movement of credits, or a slash: its event, what it follows from, and what its owner holds.
import { number } from './bytes.js';
import { differ } from './report.js';
import { checkPlace, checkReceipts, checkRound } from './round.js';

const KINDS = { bought: 'CreditsBought', redeemed: 'CreditsRedeemed', locked: 'CreditsLocked', unlocked: 'CreditsUnlocked',
  worked: 'CreditsEarned', judged: 'CreditsEarned', granted: 'CreditsGranted' };
const SPENT = ['CreditsRedeemed', 'CreditsLocked'];
const CAUSES = ['fraud', 'absence', 'overturned'];

/** Checks the movement of credits, or the slash, at a place on the chain. */
export async function checkEntry(report, ledger, chain, block, log) {
  const told = await ledger.itemAt('/events', block, log);
  if (!told) throw new Error(`the ledger tells no event at ${block}:${log}`);
  if (told.payload.round) await checkRound(report, ledger, chain, Number(told.payload.round));
  else await checkPlace(report, ledger, chain);
  await checkReceipts(report, chain, [told], 'event of this entry');
  const [name, said] = [told.name, told.payload];
  if (name === 'NodeSlashed') {
    const slash = await ledger.itemAt('/slashes', block, log);
    const shown = [slash?.node, slash?.owner, slash?.round, slash?.cause, slash?.amount, slash?.bond];
    report.checked('The slash as the ledger shows it is that event.', differ('node, owner, round, cause, amount and bond',
      shown, [Number(said.node), said.owner, Number(said.round), CAUSES[said.cause], said.amount, said.bond]));
    return;
  }
  const entry = await ledger.itemAt(`/credits/${said.owner}/entries`, block, log);
  report.checked('The movement as the ledger shows it is that event.', differ('kind, run, round, node and amount',
    [KINDS[entry?.kind], entry?.run, entry?.round, entry?.node, entry?.amount],
    [name, ...[said.run, said.round, said.node].map((each) => Number(each ?? 0)), said.amount]));
  await checkBalance(report, ledger, chain, said.owner);
}

/** Compares what an owner holds: by the ledger, by all events of its credits, and by the contract. */
async function checkBalance(report, ledger, chain, owner) {
  const { block_number: at } = ledger.at;
  const moved = await chain.logs([...new Set(Object.values(KINDS))], [owner], chain.deployment.startBlock, at);
  const signed = ({ name, payload }) => (SPENT.includes(name) ? -BigInt(payload.amount) : BigInt(payload.amount));
  const sum = moved.reduce((total, each) => total + signed(each), 0n);
  const { credit } = await ledger.json(`/credits/${owner}`);
  report.checked(`${owner} holds ${sum} wei of credits: the sum of ${moved.length} movements, as the ledger shows it.`,
    differ('balance', credit.balance, String(sum)));
  const held = await chain.view('Credits', 'balanceOf(address)', [owner], at);
  if (held) report.checked('The contract holds the same for the owner.', differ('balance in the contract', credit.balance, String(number(held))));
  else report.line('unknown', `The node keeps no state of block ${at}: the contract's own balance is not compared.`);
}
