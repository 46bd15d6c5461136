// A checkpoint: its event, its manifest, and the verdict on each job that it was trained on.
import { jobsIn } from './bytes.js';
import { differ, differEach } from './report.js';
import { checkPlace, termsAt } from './round.js';
import { digest, openEnvelope, signer } from './signing.js';
import { inOrder } from './sources.js';

/** Checks a version of a run. */
export async function checkCheckpoint(report, ledger, chain, run, version) {
  await checkPlace(report, ledger, chain);
  const { checkpoint: told, consumptions } = await ledger.json(`/checkpoints/${run}/${version}`);
  const [name, topics] = version ? ['CheckpointPublished', [run, version]] : ['RunOpened', [run]];
  const [published] = await chain.logs([name], topics, ledger.at.block_number);
  const { block_number, tx_hash, payload: { manifest_root, consumed } } = published ?? { payload: {} };
  report.checked(`Version ${version} was published in block ${block_number} with the manifest ${manifest_root}.`,
    differEach('the version', told, { block_number, tx_hash, manifest_root }));
  if (consumed?.length) await checkConsumed(report, chain, published, consumptions);
  if (published) await checkManifest(report, ledger, chain, run, version, published);
}

/** Checks the jobs that a version was trained on against the verdicts before it. */
async function checkConsumed(report, chain, published, told) {
  const byRound = (parts) => parts.reduce((jobs, { round, jobs: bits }) =>
    ({ ...jobs, [round]: (jobs[round] ?? 0n) | BigInt(bits) }), {});
  const [claims, jobs] = [byRound(told), byRound(published.payload.consumed)];
  const rounds = Object.keys(jobs);
  const named = ['RoundTallied', 'AppealedJobSettled', 'JobsConsumed'];
  const logs = await chain.logs(named, [rounds], published.block_number);
  const marked = logs.filter((log) => log.name === 'JobsConsumed' && log.tx_hash === published.tx_hash);
  const before = (round) => logs.filter((log) => log.payload.round === round && inOrder(log, published) < 0);
  const refused = rounds.flatMap((round) => jobsIn(jobs[round] & ~before(round).reduce(acceptedAfter, 0n)));
  report.checked(`All jobs of its ${rounds.length} rounds were accepted by then, and are marked as consumed with it.`, [
    ...differ('jobs by round', claims, jobs),
    ...differ('jobs by round, as marked', jobs, byRound(marked.map((log) => log.payload))),
    ...differ('jobs not accepted', [], refused),
  ]);
}

/** Returns a round's accepted jobs after one more event. */
function acceptedAfter(accepted, { name, payload }) {
  if (name === 'RoundTallied') return BigInt(payload.accepted) & ~BigInt(payload.fraud);
  const bit = name === 'AppealedJobSettled' ? 1n << BigInt(payload.job) : 0n;
  return payload.verdict === '1' ? accepted | bit : accepted & ~bit;
}

/** Checks a manifest's bytes: root on chain, and the trainer's signature. */
async function checkManifest(report, ledger, chain, run, version, published) {
  const data = await ledger.blob(report, `/blobs/manifests/${run}/${version}`);
  if (!data) return;
  const manifest = openEnvelope(data);
  const { trainer } = await termsAt(chain, published);
  const domain = { name: 'Assize Market', chainId: chain.chainId, contract: chain.contracts.Market };
  const signed = digest(domain, 'Checkpoint', [run, version, manifest.root]);
  report.checked(`The manifest has the root on chain, and the trainer ${trainer} signed it.`, [
    ...differ('root of the manifest', manifest.root, published.payload.manifest_root),
    ...differ('signer', signer(signed, manifest.signature), trainer),
    ...differ('run and version', [manifest.run, manifest.held.version], [String(run), version]),
  ]);
}
