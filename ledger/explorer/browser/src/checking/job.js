// A job: what its round's events make of it, its artifact down to the rollouts, and the evidence of each juror.
import { readArtifact, rolloutsRoot, splitBlob } from './artifact.js';
import { hex, keccak } from './bytes.js';
import { differ, differEach } from './report.js';
import { checkRound } from './round.js';
import { reasonOf, verdictIn } from './rules.js';
import { digest, openEnvelope, signer } from './signing.js';

/** Checks a job with its round. */
export async function checkJob(report, ledger, chain, round, job) {
  const tale = await checkRound(report, ledger, chain, round);
  const held = tale.jobs.get(job);
  if (tale.appeal || job >= tale.holders.length) throw new Error(`round ${round} has no job ${job}`);
  if (!held) return report.line('good', `Job ${job} was not submitted: none of the submissions above claims it.`);
  await report.trying('The artifact', () => checkArtifact(report, ledger, chain, tale, held));
  for (const seat of tale.seats.filter(({ state }) => state === 'revealed'))
    await report.trying(`Evidence of juror ${seat.juror}`, () => checkEvidence(report, ledger, tale, held, seat));
}

/** Checks an artifact's bytes: root in the submission, then the file, then the rollouts in it. */
async function checkArtifact(report, ledger, chain, tale, { root, node, job }) {
  const data = await ledger.blob(report, `/blobs/artifacts/${root}`);
  if (!data) return;
  const blob = splitBlob(data);
  const differences = differ('root of the head, size and hash of the file', [root, blob.size, blob.fileHash],
    [blob.root, BigInt(blob.file.length), hex(keccak(blob.file))]);
  report.checked(`The artifact's ${data.length} bytes: their root is the one that node ${node} signed.`, differences);
  if (differences.length) return;
  const artifact = readArtifact(blob.file);
  const version = [tale.opening.run, tale.opening.policy_version];
  const policy = await chain.view('Market', 'manifestRootOf(uint256,uint32)', version, 'latest');
  report.checked(`The Merkle tree over its ${artifact.rollouts.length} rollouts has the root in there, for this job.`,
    differ('rollouts’ root, round, job, node, manifest root of the policy',
      [blob.rolloutsRoot, artifact.round, artifact.job, artifact.node, artifact.manifest_root],
      [rolloutsRoot(tale.chainId, tale.rounds, artifact), ...[tale.round, job, node].map(String), hex(policy)]));
}

/** Checks a juror's evidence: root in its vote, signature, and the finding on the job. */
async function checkEvidence(report, ledger, tale, held, { juror, attempt, evidence_root, ...vote }) {
  const data = await ledger.blob(report, `/blobs/evidence/${evidence_root}`);
  if (!data) return;
  const { root, held: bundle, signature } = openEnvelope(data);
  const domain = { name: 'Assize Evidence', chainId: tale.chainId, contract: tale.rounds };
  const author = signer(digest(domain, 'Evidence', [tale.round, attempt, juror, root]), signature);
  const { reason, root: artifact, node, findings = [] } = bundle.jobs.find((each) => each.job === held.job) ?? {};
  const verdict = verdictIn(BigInt(vote.accept), BigInt(vote.fraud), held.job);
  const measured = findings.slice(0, 3).map(([, what, , observed, limit]) => `; ${what}: ${observed} beside ${limit}`);
  report.checked(`Evidence of juror ${juror}, named in its vote and signed: ${verdict}${measured.join('')}.`, [
    ...differ(`root in the vote of juror ${juror}`, evidence_root, root),
    ...differ('signed by a key of the juror', tale.nodes.get(juror).keys.some(({ key }) => key === author), true),
    ...differEach('the evidence', bundle, { chain_id: tale.chainId, round: tale.round, attempt, juror }),
    ...differ('reason, artifact, node', [reason, artifact, node],
      [reasonOf(vote, tale.submitted, held.job), held.root, held.node]),
  ]);
}
