// A page that checks what a ledger says of a round, a job, a movement of credits or a checkpoint: here, in the reader's
// own browser, against a node that the reader names. The page has a form, a list of findings and a summary.
import { checkCheckpoint } from './checking/checkpoint.js';
import { checkEntry } from './checking/entry.js';
import { checkJob } from './checking/job.js';
import { Report } from './checking/report.js';
import { checkRound } from './checking/round.js';
import { Chain, Ledger } from './checking/sources.js';

const KINDS = {
  rounds: ([round], ...sides) => checkRound(...sides, Number(round)),
  jobs: ([round, job], ...sides) => checkJob(...sides, Number(round), Number(job)),
  entries: ([block, log], ...sides) => checkEntry(...sides, Number(block), Number(log)),
  checkpoints: ([run, version], ...sides) => checkCheckpoint(...sides, Number(run), Number(version)),
};
const MARKS = { good: '✓ checked', bad: '✗ differs', unknown: '? not checked' };
const CONTRACTS = ['Rounds', 'Registry', 'Market', 'Credits', 'Traps'];

const byId = (id) => document.getElementById(id);
const form = byId('check');

function show(mark, text) {
  const item = document.createElement('li');
  const label = document.createElement('strong');
  [item.className, label.textContent] = [mark, MARKS[mark]];
  item.append(label, ' ', text);
  byId('findings').append(item);
}

/** Returns the deployment in an address file. */
function deploymentIn(text) {
  const wrong = new Error('invalid address file: expected JSON with "chainId", "startBlock" and "contracts"');
  let read;
  try {
    read = JSON.parse(text);
  } catch {
    throw wrong;
  }
  const whole = CONTRACTS.every((name) => /^0x[0-9a-fA-F]{40}$/.test(read?.contracts?.[name]));
  if (!whole || ![read.chainId, read.startBlock].every(Number.isSafeInteger)) throw wrong;
  return read;
}

async function check() {
  byId('findings').replaceChildren();
  byId('summary').textContent = 'Checking…';
  const report = new Report(show);
  const { ledger, thing, rpc, addresses } = form.elements; // a ledger's own page knows the first two
  try {
    const found = /(?:^|\/)(rounds|jobs|entries|checkpoints)\/(\d+)(?:\/(\d+))?$/.exec(thing?.value.trim() ?? form.dataset.thing);
    if (!found || (found[1] === 'rounds') !== (found[3] === undefined))
      throw new Error('invalid address of what to check: expected rounds/7, jobs/7/0, entries/1200/3 or checkpoints/1/4');
    const chain = new Chain(rpc.value.trim(), deploymentIn(addresses.value));
    if (addresses.value === addresses.defaultValue)
      report.line('unknown', 'The contracts’ addresses are as the ledger names them. Use an address file of your own to be sure.');
    const claims = new Ledger((ledger?.value.trim() ?? '').replace(/\/+$/, ''));
    await claims.pin(form.elements.as_of?.value);
    await KINDS[found[1]](found.slice(2), report, claims, chain);
  } catch (error) {
    report.line('unknown', `The check ended early: ${error.message}`);
  }
  const { good, bad, unknown } = report.marks;
  byId('summary').className = bad ? 'bad' : unknown ? 'unknown' : 'good';
  byId('summary').textContent = `${bad ? 'The ledger is wrong, or the node is' : 'Nothing differs'}: ` +
    `${good} checks hold, ${bad} differ, ${unknown} could not be made.`;
}

byId('file').addEventListener('change', async ({ target }) => {
  if (target.files.length) form.elements.addresses.value = await target.files[0].text();
});
byId('again').hidden = false;
byId('again').addEventListener('click', check);
if (form.dataset.begin !== undefined) check();
