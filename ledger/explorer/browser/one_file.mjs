// Writes static/built/check.html: the check's script and style sheet in one file, for a reader's own disk.
// Its policy lets run nothing but this script, and ask no host but those that the reader names.
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';

const built = new URL('../static/built/', import.meta.url);
const script = readFileSync(new URL('check.js', built), 'utf8');
const style = readFileSync(new URL('../static/explorer.css', import.meta.url), 'utf8');
const hashOf = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
const policy = `default-src 'none'; script-src ${hashOf(script)}; style-src ${hashOf(style)}; connect-src http: https:; base-uri 'none'; form-action 'none'`;
const page = readFileSync(new URL('check.html', import.meta.url), 'utf8');
const parts = { '{{ policy }}': policy, '{{ style }}': style, '{{ script }}': script };

writeFileSync(new URL('check.html', built), page.replace(/\{\{ \w+ \}\}/g, (mark) => parts[mark]));
