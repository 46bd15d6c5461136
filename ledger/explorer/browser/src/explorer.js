// Pages that stay current: each new block of the ledger morphs the page that is open into the present one.
import htmx from 'htmx.org/dist/htmx.esm.js';

export { htmx };
