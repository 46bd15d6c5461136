// Signed documents in canonical JSON: a juror's evidence, a trainer's manifest. The hash is over the bytes as they came.
import { hex, keccak, utf8 } from './bytes.js';

const FORMS = {
  bundle: /^\{"bundle":(?<inner>\{.*\}),"signature":"(?<signature>0x[0-9a-f]{130})"\}$/s,
  manifest: /^\{"manifest":(?<inner>\{.*\}),"run":(?<run>\d+),"signature":"(?<signature>0x[0-9a-f]{130})"\}$/s,
};

/** Returns a document (`bundle` or `manifest`) in its envelope: its root, what it holds, run and signature. */
export function openEnvelope(form, data) {
  const found = FORMS[form].exec(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data));
  if (!found) throw new Error(`the bytes are no signed ${form}`);
  const { inner, run, signature } = found.groups;
  return { root: hex(keccak(utf8(inner))), held: JSON.parse(inner), run, signature };
}
