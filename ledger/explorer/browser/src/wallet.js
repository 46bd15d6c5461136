// Actions by the reader's own wallet, found by EIP-6963. The server plans a call; this page decodes it again and says
// it in words; only a call that is what the form asks for is handed to the wallet. Nothing is stored.
import { Refused, checked, typed } from './wallet/calls.js';

const REJECTED = 4001; // EIP-1193: the person refused
const UNKNOWN_CHAIN = 4902; // EIP-3085: the wallet does not have the chain
const POLL_MS = 500;

const section = document.getElementById('actions');
const page = {
  chainId: section.dataset.chainId,
  contracts: Object.fromEntries(JSON.parse(section.dataset.contracts)),
};
const wallets = new Map(); // by the uuid that each announces
const choice = section.querySelector('select');

window.addEventListener('eip6963:announceProvider', ({ detail }) => {
  const { name, uuid } = detail.info;
  if (!wallets.has(uuid)) choice.append(new Option(String(name).slice(0, 60), uuid));
  wallets.set(uuid, detail.provider);
  for (const each of section.querySelectorAll('form, .wallets')) each.hidden = false;
  section.querySelector('.walletless').hidden = true;
});
window.dispatchEvent(new Event('eip6963:requestProvider'));

for (const form of section.querySelectorAll('form')) {
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    review(form);
  });
  form.addEventListener('input', ({ target }) => {
    target.removeAttribute('aria-invalid');
    say(form);
  });
}

// Shows what a form's action would do, and a button that hands the first call that is due to the wallet.
function review(form, progress = '') {
  return attempt(form, async () => {
    const verb = form.dataset.verb;
    const asked = fields(form);
    const provider = wallets.get(choice.value);
    say(form, 'Waiting for the wallet …');
    const [sender] = await provider.request({ method: 'eth_requestAccounts' });
    if ('to' in asked) asked.to ??= sender;
    if (!(await onChain(form, provider))) return;
    say(form, 'Asking the ledger …');
    const answer = await ask(verb, { ...body(asked), sender });
    const calls = checked(verb, asked, page, answer);
    const { ok, says } = answer.simulated;
    const [due, ...later] = calls;
    const what = later.length ? `Sign step 1 of ${calls.length} in the wallet` : 'Sign in the wallet';
    const sign = () => button(what, () => send(form, provider, sender, due, later));
    const simulated = `Simulated${later.length ? ', step 1' : ''}: ${says}.`;
    const outcome = ok ? [text('p', simulated), sign()] : [text('p', `Not sent: ${says}.`, 'bad')];
    say(form, text('p', progress), words(calls, sender), ...outcome);
  });
}

function send(form, provider, from, { to, data }, later) {
  return attempt(form, async () => {
    if (!(await onChain(form, provider))) return null;
    say(form, 'Waiting for the wallet …');
    const hash = await provider.request({ method: 'eth_sendTransaction', params: [{ from, to, data, value: '0x0' }] });
    const sent = text('p', `Sent: ${hash}`, 'whole');
    say(form, sent, text('p', 'Waiting until it is mined …'));
    const receipt = await mined(provider, hash);
    const block = Number(receipt.blockNumber);
    if (receipt.status !== '0x1') {
      const failed = `It failed in block ${block}: it changed nothing, and its gas is spent. Check again to see why.`;
      say(form, sent, text('p', failed, 'bad'));
      return null;
    }
    if (later.length) return () => review(form, `The step before was mined in block ${block}.`);
    say(form, sent, text('p', `Done in block ${block}.`, 'good'));
    return () => link(sent, hash, block);
  });
}

// Makes the hash of a transaction a link once the ledger has read its block.
async function link(sent, hash, block) {
  const read = async () => (await (await fetch('/health')).json()).block_number >= block;
  while (sent.isConnected && !(await read().catch(() => false))) await pause();
  const made = text('a', hash);
  made.href = `/transactions/${encodeURIComponent(hash)}`;
  sent.replaceChildren('Sent: ', made, '. Reload the page to see what changed.');
}

// Runs one step of a form, one at a time, and then the one that it returns; what stops it becomes a sentence.
async function attempt(form, step) {
  if (form.ariaBusy === 'true') return;
  const busy = (is) => {
    form.ariaBusy = String(is);
    for (const each of form.querySelectorAll('input')) each.readOnly = is;
  };
  busy(true);
  let next;
  try {
    next = await step();
  } catch (error) {
    say(form, text('p', sentence(error), 'bad'));
    form.querySelector('[aria-invalid]')?.focus();
  } finally {
    busy(false);
  }
  await next?.();
}

function sentence(error) {
  if (error instanceof Refused) return `Not sent: ${error.message}.`;
  if (error?.code === REJECTED) return 'Not sent: you refused it in the wallet.';
  if (error?.code === UNKNOWN_CHAIN) return `Not sent: the wallet does not know chain ${page.chainId}: add it there.`;
  return `This went wrong: ${String(error?.message ?? error).slice(0, 300)}`;
}

// Returns whether the wallet is on the page's chain; if not, offers to switch it.
async function onChain(form, provider) {
  const chainId = String(BigInt(await provider.request({ method: 'eth_chainId' })));
  if (chainId === page.chainId) return true;
  const params = [{ chainId: `0x${BigInt(page.chainId).toString(16)}` }];
  const switched = async () => {
    await provider.request({ method: 'wallet_switchEthereumChain', params });
    return () => review(form);
  };
  const wrong = `Not sent: the wallet is on chain ${chainId}, and this page is of chain ${page.chainId}.`;
  const words = `Switch the wallet to chain ${page.chainId}`;
  say(form, text('p', wrong, 'bad'), button(words, () => attempt(form, switched)));
  return false;
}

// Returns what is typed, by name; a field that is invalid is marked.
function fields(form) {
  const read = [...form.querySelectorAll('input')].map((input) => {
    input.removeAttribute('aria-invalid');
    try {
      return [input.name, typed(input.name, input.value)];
    } catch (error) {
      input.setAttribute('aria-invalid', 'true');
      throw error;
    }
  });
  return Object.fromEntries(read);
}

// Returns the body of a request: a limit on the deposit stays on the page.
function body({ amount, deposit, ...others }) {
  const plain = (value) => (typeof value === 'bigint' ? Number(value) : value);
  const given = Object.fromEntries(Object.entries(others).map(([name, value]) => [name, plain(value)]));
  return amount === undefined ? given : { ...given, amount_wei: String(amount) };
}

async function ask(verb, asked) {
  const headers = { accept: 'application/json', 'content-type': 'application/json' };
  const answered = await fetch(`/actions/${verb}`, { method: 'POST', headers, body: JSON.stringify(asked) });
  const answer = await answered.json();
  if (!answered.ok) throw new Refused(String(answer.error));
  return answer;
}

const pause = () => new Promise((resolve) => setTimeout(resolve, POLL_MS));

async function mined(provider, hash) {
  for (;;) {
    const receipt = await provider.request({ method: 'eth_getTransactionReceipt', params: [hash] });
    if (receipt) return receipt;
    await pause();
  }
}

// What a reader sees. All text of others becomes text nodes.

function say(form, ...parts) {
  const status = form.querySelector('[role="status"]');
  const focused = status.contains(document.activeElement);
  status.replaceChildren(...parts);
  if (focused) status.focus(); // a button that is gone leaves the keyboard where it was
}

function text(tag, words, tone = '') {
  const made = document.createElement(tag);
  made.textContent = words;
  made.className = tone;
  return made;
}

function button(words, act) {
  const made = text('button', words, 'main');
  made.type = 'button';
  made.addEventListener('click', act);
  return made;
}

function words(calls, sender) {
  const list = document.createElement('ol');
  for (const call of calls) {
    const item = document.createElement('li');
    const given = Object.entries(call.words).map(([name, value]) => `${name} ${value}`);
    item.append(text('p', `${call.contract}.${call.name}: ${given.join(', ')}`));
    item.append(text('p', `${call.contract} is at ${call.to}; ${sender} signs`, 'muted'));
    const bytes = document.createElement('details');
    bytes.append(text('summary', 'Bytes'), text('code', call.data, 'whole'));
    item.append(bytes);
    list.append(item);
  }
  return list;
}
