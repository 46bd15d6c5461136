// A job: what its round's events make of it, its artifact down to the rollouts, and the evidence of each juror.
import { hex, jobsIn, keccak } from './bytes.js';
import { readArtifact, rolloutsRoot, splitBlob } from './artifact.js';
import { openEnvelope } from './documents.js';
import { differ } from './report.js';
import { checkRound } from './round.js';
import { reasonsOf, verdictIn } from './rules.js';
import { digest, signer } from './signing.js';

/** Checks a job with its round. */
export async function checkJob(report, ledger, chain, round, job) {
  const tale = await checkRound(report, ledger, chain, round);
  const held = tale.jobs.get(job);
  if (!held) return report.line('good', `Job ${job} was not submitted: none of the round's submissions claims it.`);
  report.line('good', `Job ${job} of node ${held.node} is ${held.verdict}: ${held.units} units claimed, ` +
    `${held.credited} wei credited, artifact ${held.root}.`);
  await checkArtifact(report, ledger, chain, tale, job, held);
  for (const committee of tale.committees)
    for (const [juror, seat] of committee.seats)
      if (seat.state === 'revealed') await checkEvidence(report, ledger, tale, job, committee.attempt, juror, seat);
}

async function checkArtifact(report, ledger, chain, tale, job, held) {
  const { data, missing } = await ledger.blob(`/blobs/artifacts/${held.root}`);
  if (missing) return report.line('unknown', `The artifact's bytes cannot be had: ${missing}.`);
  const blob = splitBlob(data);
  const differences = [
    ...differ('root of the blob’s head', held.root, blob.root),
    ...differ('size of the file', blob.size, BigInt(blob.file.length)),
    ...differ('hash of the file', blob.fileHash, hex(keccak(blob.file))),
  ];
  report.checked(`The artifact's ${data.length} bytes are those that node ${held.node} signed for: the root in ` +
    '`Submitted` commits to the rollouts’ root, and to hash and size of the file.', differences);
  if (differences.length) return;
  const artifact = readArtifact(blob.file);
  const policy = await chain.view('Market', 'manifestRootOf(uint256,uint32)', [tale.context.run, tale.context.policy], 'latest');
  report.checked(`The Merkle tree over its ${artifact.rollouts.length} rollouts has the root in its head, for this chain, ` +
    'round, job, node and policy.', [
    ...differ('rollouts’ root', blob.rolloutsRoot, rolloutsRoot(tale.chainId, tale.rounds, artifact)),
    ...differ('round, job and node in the file', [artifact.round, artifact.job, artifact.node], [tale.round, job, held.node].map(String)),
    ...differ('manifest root of the policy', artifact.manifest_root, policy && hex(policy)),
  ]);
}

async function checkEvidence(report, ledger, tale, job, attempt, juror, seat) {
  const told = reasonsOf(seat, jobsIn(tale.submitted)).get(job);
  const { data, missing } = await ledger.blob(`/blobs/evidence/${seat.evidence_root}`);
  if (missing) return report.line('unknown', `The evidence of juror ${juror} cannot be had: ${missing}.`);
  const { root, held, signature } = openEnvelope('bundle', data);
  const domain = { name: 'Assize Evidence', chainId: tale.chainId, contract: tale.rounds };
  const signed = digest(domain, 'Evidence', [tale.round, attempt, juror, root]);
  const found = held.jobs.find((each) => each.job === job);
  report.checked(`Evidence of juror ${juror}: committed to in its vote, signed (EIP-712) with its key, and job ${job} ` +
    `has the reason of the vote: ${verdictIn(seat.accept, seat.fraud, job)}${findingsIn(found)}.`, [
    ...differ('root in the vote', seat.evidence_root, root),
    ...differ('signer', signer(signed, signature), tale.context.keyAt(juror, seat.log)),
    ...differ('chain, round, attempt and juror', [held.chain_id, held.round, held.attempt, held.juror],
      [tale.chainId, tale.round, attempt, juror]),
    ...differ(`reason for job ${job}`, told, found?.reason),
    ...differ(`artifact and node of job ${job}`, [found?.root, found?.node], [tale.jobs.get(job).root, tale.jobs.get(job).node]),
  ]);
}

const findingsIn = (found) => (found?.findings ?? []).slice(0, 3).map(([, detail, rollout, observed, limit]) =>
  `; ${detail}${rollout === null ? '' : ` in rollout ${rollout}`}, ${observed} beside ${limit}`).join('');
