// A movement of credits, or a slash: its event, what it follows from, and what its owner holds.
import { number } from './bytes.js';
import { differ } from './report.js';
import { checkPlace, checkReceipts, checkRound } from './round.js';

const KINDS = { bought: 'CreditsBought', redeemed: 'CreditsRedeemed', granted: 'CreditsGranted',
  locked: 'CreditsLocked', unlocked: 'CreditsUnlocked', worked: 'CreditsEarned', judged: 'CreditsEarned' };

/** Checks the movement of credits, or the slash, at a place on the chain. */
export async function checkEntry(report, ledger, chain, block, log) {
  const told = await ledger.itemAt('/events', block, log);
  if (!told) throw new Error(`the ledger tells no event at ${block}:${log}`);
  const { name, payload: { owner, run = '0', round = '0', node = '0', amount, cause, bond } } = told;
  await (Number(round) ? checkRound : checkPlace)(report, ledger, chain, Number(round));
  await checkReceipts(report, chain, [told]);
  const slashed = name === 'NodeSlashed';
  const shown = await ledger.itemAt(slashed ? '/slashes' : `/credits/${owner}/entries`, block, log) ?? {};
  const [kind, found] = slashed ? [[shown.cause, shown.bond], [['fraud', 'absence', 'overturned'][cause], bond]] :
    [[KINDS[shown.kind], shown.run], [name, Number(run)]];
  report.checked(`The ledger shows it as that event: ${name}, ${amount} wei of ${owner}.`,
    differ('owner, round, node, amount, and cause and bond, or kind and run',
      [shown.owner, shown.round, shown.node, shown.amount, ...kind],
      [owner, Number(round), Number(node), amount, ...found]));
  if (slashed) return;
  const at = ledger.at.block_number;
  const moved = await chain.logs(Object.values(KINDS), [owner], at);
  const sum = moved.reduce((total, event) =>
    total + (/Redeemed|Locked/.test(event.name) ? -1n : 1n) * BigInt(event.payload.amount), 0n);
  const { credit: { balance } } = await ledger.json(`/credits/${owner}`);
  report.checked(`The owner's ${moved.length} movements add up to ${sum} wei.`, differ('balance', balance, sum));
  const held = await chain.view('Credits', 'balanceOf(address)', [owner], at);
  if (held) report.checked('The contract holds the same for the owner.', differ('balance', balance, number(held)));
  else report.line('unknown', `The node keeps no state of block ${at}: the contract's own balance is not compared.`);
}
