"""The contracts' code: every other check believes what the contracts emit and answer, so it has to be known as ours."""

from __future__ import annotations

from ledger.audit.audit_state import AuditCheck, AuditSources, AuditState
from protocol.chain.reading.creations import deployment_creations, difference

CODE = AuditCheck("code", "the contracts were created from this repository's code, which all other checks rely on")


@CODE.compares
def _compare_code(audit: AuditState, sources: AuditSources) -> None:
    """Finds the transactions that created the contracts, and compares their code with ``contracts/abi``.

    Raises:
        Unavailable: the RPC does not answer, or keeps no blocks or receipts so old.
    """
    chain, findings = sources.chain, audit.findings
    missing = {name: address for address, name in chain.deployment.contract_names().items()}
    for name, made in deployment_creations(chain, sources.block.number):
        del missing[name]
        same = not difference(name, made.data)
        findings.holds("code", name, made.address, "made from this repository's code", same)
    for name, address in missing.items():
        findings.holds("code", name, address, "created by a transaction of its own since the start block", False)


CHECKS = (CODE,)
