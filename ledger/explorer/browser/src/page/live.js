// A page that stays current: each event of the ledger has it ask for itself, and become the answer piece by piece, so
// that focus, text in fields, open details and the place to which the reader scrolled stay. An element with data-keep
// stays as scripts made it; one with data-keep-inside keeps its children. A template whose block "live" is empty makes
// a page that stays as it is.
import htmx from 'htmx.org/dist/htmx.esm.js';

const LEAST_MILLISECONDS = 1000; // between two requests
const SPREAD_MILLISECONDS = 500; // readers hear of a block at once, and do not ask at once
const SHARE = 5; // a server that takes its time is asked for a fifth of it at most
const AGAIN_MILLISECONDS = 3000;
const PATIENCE_MILLISECONDS = 20000;
const SILENCE_MILLISECONDS = 40000; // the ledger says something every fifteen seconds
const WORDS = { live: 'Live', paused: 'Paused', lost: 'Not live, trying again' };

let morph;
Object.assign(htmx.config, { history: false, morphSkip: '[data-keep]', morphSkipChildren: '[data-keep-inside]' });
htmx.config.morphIgnore.push('open'); // details are open as the reader has them
htmx.registerExtension('explorer', { init: (internal) => { morph = internal.morph; } });

// Names each row of a table by its first links, so that it stays one row when others come before it.
export function nameRows(page) {
  const named = new Set();
  for (const row of page.querySelectorAll('main tbody tr')) {
    const links = [...row.querySelectorAll('a')].slice(0, 3).map((link) => link.getAttribute('href'));
    const name = [row.closest('[aria-label]')?.ariaLabel, ...links].join('|');
    if (!links.length || named.has(name)) continue;
    named.add(name);
    row.id = name.replaceAll(' ', '-');
  }
}

export function stayLive(enhance, after) {
  const state = document.querySelector('.state'), mark = document.getElementById('live');
  if (!mark) return; // a page as of a block
  const word = mark.querySelector('[role=status]'), button = mark.querySelector('button');
  let stream = null, newest = null, paused = false, busy = false, free = 0;
  let timer = null, reopening = null, silence = null;

  function show(name) {
    if (mark.dataset.state === name) return;
    mark.dataset.state = name;
    word.textContent = WORDS[name];
    mark.hidden = false;
  }

  function open() {
    if (stream || paused || document.hidden) return;
    clearTimeout(reopening);
    stream = new EventSource('/live');
    stream.addEventListener('block', (event) => {
      hear();
      newest = JSON.parse(event.data);
      if (!behind()) show('live');
      catchUp();
    });
    stream.addEventListener('alive', hear);
    stream.addEventListener('error', lose);
    hear();
  }

  function hear() {
    clearTimeout(silence);
    silence = setTimeout(lose, SILENCE_MILLISECONDS);
  }

  function close() {
    for (const each of [timer, reopening, silence]) clearTimeout(each);
    stream?.close();
    stream = timer = null;
  }

  function lose() {
    close();
    if (paused) return;
    show('lost');
    reopening = setTimeout(open, AGAIN_MILLISECONDS * (1 + Math.random()));
  }

  const behind = () => newest && (newest.hash !== state.dataset.block || newest.state !== state.dataset.freshness);

  function catchUp() {
    if (stream && !busy && !timer && behind()) timer = setTimeout(ask, Math.max(Math.random() * SPREAD_MILLISECONDS, free - performance.now()));
  }

  async function ask() {
    timer = null;
    busy = true;
    const asked = performance.now();
    try {
      become(await present());
      if (stream) show('live');
    } catch {
      lose();
    }
    const took = performance.now() - asked;
    free = asked + Math.max(LEAST_MILLISECONDS, SHARE * took);
    busy = false;
    catchUp();
  }

  function become(next) {
    enhance(next);
    for (const part of ['.state', 'main']) {
      const here = document.querySelector(part), there = next.querySelector(part);
      here.className = there.className;
      Object.assign(here.dataset, there.dataset);
      morph(here, there, true);
    }
    document.title = next.title;
    after();
  }

  button.addEventListener('click', () => {
    paused = !paused;
    button.textContent = paused ? 'Resume' : 'Pause';
    if (!paused) return open();
    close();
    show('paused');
  });
  document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()));
  addEventListener('pagehide', close);
  addEventListener('pageshow', open);
  open();
}

// Asks for this page once more. Throws where the answer is none of the explorer's pages.
async function present() {
  const signal = AbortSignal.timeout(PATIENCE_MILLISECONDS);
  const answer = await fetch(location.href, { headers: { Accept: 'text/html' }, signal });
  if (answer.status >= 500) throw new Error(`the ledger answers ${answer.status}`);
  const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
  if (!page.querySelector('.state') || !page.querySelector('main')) throw new Error('not a page of the explorer');
  return page;
}
