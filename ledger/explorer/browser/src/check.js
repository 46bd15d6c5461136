// A page that checks what a ledger says of a round, a job, a movement of credits or a checkpoint: here, in the reader's
// own browser, against a node that the reader names. The page has a form, a list of findings and a summary.
import { ABIS } from './checking/abi.js';
import { checkCheckpoint } from './checking/checkpoint.js';
import { checkEntry } from './checking/entry.js';
import { checkJob } from './checking/job.js';
import { Report } from './checking/report.js';
import { checkRound } from './checking/round.js';
import { Chain, Ledger } from './checking/sources.js';

const KINDS = { rounds: checkRound, jobs: checkJob, entries: checkEntry, checkpoints: checkCheckpoint };
const MARKS = { good: '✓ checked', bad: '✗ differs', unknown: '? not checked' };

const byId = (id) => document.getElementById(id);
const form = byId('check');

/** Adds a line to the findings. */
function show(mark, text) {
  const [item, label] = [document.createElement('li'), document.createElement('strong')];
  [item.className, label.textContent] = [mark, MARKS[mark]];
  byId('findings').appendChild(item).append(label, ' ', text);
}

/** Returns the deployment in an address file. */
function deploymentIn(text) {
  const read = /^\s*\{/.test(text) ? JSON.parse(text) : {};
  const whole = Object.keys(ABIS).every((name) => /^0x[0-9a-fA-F]{40}$/.test(read.contracts?.[name]));
  if (whole && [read.chainId, read.startBlock].every(Number.isSafeInteger)) return read;
  throw new Error('invalid address file: expected "chainId", "startBlock" and "contracts"');
}

/** Checks what the form asks for; on a ledger's own page the form has neither ledger nor thing. */
async function check() {
  const { ledger, thing, rpc, addresses, as_of } = form.elements;
  byId('findings').replaceChildren();
  byId('summary').removeAttribute('class');
  byId('summary').textContent = 'Checking…';
  const report = new Report(show);
  await report.trying('The rest', async () => {
    const [, kind, ...numbers] = /^\/?(\w+)\/(\d+)(?:\/(\d+))?$/.exec(thing?.value.trim() ?? form.dataset.thing) ?? [];
    if (!Object.hasOwn(KINDS, kind)) throw new Error('invalid thing to check: expected such as rounds/7 or jobs/7/0');
    const chain = new Chain(rpc.value.trim(), deploymentIn(addresses.value));
    if (addresses.value === addresses.defaultValue) report.line('unknown', 'The addresses are the ledger’s own.');
    const claims = new Ledger((ledger?.value.trim() ?? '').replace(/\/+$/, ''));
    await claims.pin(as_of?.value);
    await KINDS[kind](report, claims, chain, ...numbers.map(Number));
  });
  const { good, bad, unknown } = report.marks;
  byId('summary').className = ['bad', 'unknown', 'good'].find((mark) => report.marks[mark]) ?? '';
  byId('summary').textContent = (bad ? 'Ledger and node differ' : good ? 'Nothing differs' : 'Nothing was checked') +
    ` (node ${rpc.value}): ${good} checks hold, ${bad} do not, ${unknown} could not be made.`;
}

byId('file').addEventListener('change', async ({ target }) => {
  if (target.files.length) form.elements.addresses.value = await target.files[0].text();
});
byId('again').hidden = 'thing' in form.dataset && !('begin' in form.dataset); // no node is named yet
byId('again').addEventListener('click', check);
if ('begin' in form.dataset) check();
