// A button beside each address or hash that is shown short, which copies the whole of it.
const WHOLE = /^0x[0-9a-f]{40,}$/i;
const SHOWN_MILLISECONDS = 1500;

export function offerCopies(page) {
  if (!navigator.clipboard) return; // browsers have it on this machine and over HTTPS only
  for (const each of page.querySelectorAll('main [title^="0x"]')) {
    if (!WHOLE.test(each.title) || !each.textContent.includes('…')) continue;
    const button = document.createElement('button');
    Object.assign(button, { type: 'button', className: 'copy', title: 'Copy' });
    button.dataset.copy = each.title;
    button.setAttribute('aria-label', `Copy ${each.textContent.trim()}`);
    each.after(button);
  }
}

async function copy(button) {
  let outcome = 'copied';
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
  } catch {
    outcome = 'not copied';
  }
  button.dataset.said = outcome;
  document.getElementById('said').textContent = outcome;
  setTimeout(() => {
    delete button.dataset.said;
    document.getElementById('said').textContent = '';
  }, SHOWN_MILLISECONDS);
}

document.addEventListener('click', (event) => {
  const button = event.target.closest('.copy');
  if (button) copy(button);
});
