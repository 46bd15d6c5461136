// A checkpoint: its event, its manifest, and the verdict on each job that it was trained on.
import { jobsIn } from './bytes.js';
import { openEnvelope } from './documents.js';
import { differ } from './report.js';
import { checkPlace, termsAt } from './round.js';
import { digest, signer } from './signing.js';
import { placeOf } from './sources.js';

/** Checks a version of a run. */
export async function checkCheckpoint(report, ledger, chain, run, version) {
  await checkPlace(report, ledger, chain);
  const { checkpoint, consumptions } = await ledger.json(`/checkpoints/${run}/${version}`);
  const start = chain.deployment.startBlock;
  const named = version ? ['CheckpointPublished'] : ['RunOpened'];
  const [published] = await chain.logs(named, version ? [run, version] : [run], start, ledger.at.block_number);
  if (!published) return report.line('bad', `The node has no event that publishes version ${version} of run ${run}.`);
  const { manifest_root: root, consumed = [] } = published.payload;
  report.checked(`Version ${version} was published at ${placeOf(published)} with the manifest ${root}.`,
    differ('block, transaction and manifest root', [checkpoint.block_number, checkpoint.tx_hash, checkpoint.manifest_root],
      [published.block_number, published.tx_hash, root]));
  await checkConsumed(report, chain, run, published, consumed, consumptions);
  await checkManifest(report, ledger, chain, run, version, published, root);
}

async function checkConsumed(report, chain, run, published, consumed, told) {
  const jobs = new Map();
  for (const { round, jobs: bits } of consumed) jobs.set(Number(round), (jobs.get(Number(round)) ?? 0n) | BigInt(bits));
  const differences = differ('rounds and jobs', Object.fromEntries(told.map((each) => [each.round, jobsIn(BigInt(each.jobs))])),
    Object.fromEntries([...jobs].map(([round, bits]) => [round, jobsIn(bits)])));
  const { startBlock } = chain.deployment;
  const verdicts = await chain.logs(['RoundTallied', 'AppealedJobSettled', 'JobsConsumed'], [[...jobs.keys()]], startBlock, published.block_number);
  for (const [round, bits] of jobs) {
    const of = verdicts.filter((log) => log.payload.round === String(round) && log.block_number <= published.block_number);
    const accepted = acceptedBy(of.filter((log) => log.name !== 'JobsConsumed'));
    differences.push(...differ(`jobs of round ${round} that were not accepted`, jobsIn(bits & ~accepted), []));
    const marked = of.filter((log) => log.tx_hash === published.tx_hash && log.name === 'JobsConsumed' && log.payload.run === String(run));
    differences.push(...differ(`jobs of round ${round} marked as consumed`, jobsIn(marked.reduce((all, log) => all | BigInt(log.payload.jobs), 0n)), jobsIn(bits)));
  }
  const total = [...jobs.values()].reduce((sum, bits) => sum + jobsIn(bits).length, 0);
  report.checked(`It was trained on ${total} jobs of ${jobs.size} rounds: each was accepted in its round's verdict by then, ` +
    'and marked as consumed in the same transaction.', differences);
}

/** Returns the jobs accepted after verdicts of a round and of its appeals. */
const acceptedBy = (logs) => logs.reduce((accepted, { name, payload }) => {
  if (name === 'RoundTallied') return BigInt(payload.accepted) & ~BigInt(payload.fraud);
  const bit = 1n << BigInt(payload.job);
  return payload.verdict === '1' ? accepted | bit : accepted & ~bit;
}, 0n);

async function checkManifest(report, ledger, chain, run, version, published, root) {
  const { data, missing } = await ledger.blob(`/blobs/manifests/${run}/${version}`);
  if (missing) return report.line('unknown', `The manifest's bytes cannot be had: ${missing}.`);
  const manifest = openEnvelope('manifest', data);
  const { trainer } = published.name === 'RunOpened' ? published.payload.terms : await termsAt(chain, published);
  const domain = { name: 'Assize Market', chainId: chain.deployment.chainId, contract: chain.contracts.Market };
  const signed = digest(domain, 'Checkpoint', [run, version, manifest.root]);
  report.checked(`The manifest's ${manifest.held.files?.length} files have the root on chain, and the trainer ${trainer} ` +
    'signed it (EIP-712).', [
    ...differ('root of the manifest', root, manifest.root),
    ...differ('signer', signer(signed, manifest.signature), trainer),
    ...differ('run and version', [manifest.run, manifest.held.version], [String(run), version]),
  ]);
}
