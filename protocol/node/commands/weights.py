"""``assize weights``: the versions of a run's model, checked against the chain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.errors import Misconfigured, Rejected
from protocol.node.commands.connection import DEFAULT_RPC, Addresses, AsJson, RpcUrl, connected
from protocol.node.console import guard, show

if TYPE_CHECKING:
    from protocol.broadcast.sources import Sources
    from protocol.chain.reading.client import Chain
    from protocol.wire.manifest import Authority, Manifest
    from protocol.wire.rules import Rules

app = typer.Typer(no_args_is_help=True, help="Fetch and verify versions of a run's model against the chain.")

Version = Annotated[int | None, typer.Option("--version", min=0, help="Version; else the newest on chain.")]
SourceUrls = Annotated[
    list[str] | None,
    typer.Option("--source", metavar="URL", help="Relay or origin to fetch from; else those the coordinator names."),
]
CoordinatorUrl = Annotated[
    str | None,
    typer.Option("--coordinator", metavar="URL", help="Coordinator of the run; else the one that it names on chain."),
]


@app.callback()
def weights() -> None:
    """Fetch and verify versions of a run's model against the chain."""


@dataclass(frozen=True, slots=True)
class WeightsOffer:
    """A version of a run's weights: its manifest root on chain, the rules that pin it, and sources that may have it."""

    run: int
    version: int
    root: bytes
    rules: Rules
    authority: Authority
    sources: Sources

    def fetch(self, destination: Path, quiet: bool) -> Manifest:
        """Fetches it into ``destination`` with a progress bar, and returns its manifest."""
        from protocol.broadcast.download import download
        from protocol.node.progress import TransferBar

        place = self.run, self.version, self.root, self.authority, self.rules.pins, destination
        with TransferBar(f"version {self.version}", quiet) as bar:
            return download(self.sources, *place, bar)

    def fetch_without_tensors(self, destination: Path) -> Manifest:
        """Fetches its files but those of tensors into ``destination``, a new folder, and returns its manifest."""
        from protocol.broadcast.download import download_without_tensors

        place = self.run, self.version, self.root, self.authority, self.rules.pins, destination
        return download_without_tensors(self.sources, *place)


@contextmanager
def offered(
    chain: Chain, run: int, version: int | None, coordinator: str | None, urls: list[str] | None
) -> Iterator[WeightsOffer]:
    """Yields a version of ``run``, the newest if ``version`` is None, with open sources.

    Raises:
        Rejected: the run has no such version, or the coordinator's rules are not those on chain.
        Misconfigured: no coordinator is known, or a URL is invalid.
        Unavailable: the coordinator does not answer.
    """
    from protocol.broadcast.sources import Sources
    from protocol.transport.coordinator import CoordinatorClient
    from protocol.wire.manifest import Authority

    wanted, root = root_of(chain, run, version)
    found = chain.latest().run(run)
    with closing(CoordinatorClient(coordinator or coordinator_url(chain, run))) as client:
        rules = client.rules(found.terms.rules_hash)
        named = urls or client.run(run).weights_from
    authority = Authority(chain.chain_id, chain.deployment.market, found.terms.trainer)
    with closing(Sources(named)) as sources:
        yield WeightsOffer(run, wanted, root, rules, authority, sources)


def rules_of(chain: Chain, run: int) -> Rules:
    """Returns the rules of ``run`` from the coordinator that it names on chain.

    Raises:
        Rejected: they are not those on chain.
        Misconfigured: the run names no coordinator.
        Unavailable: the coordinator does not answer.
    """
    from protocol.transport.coordinator import CoordinatorClient

    with closing(CoordinatorClient(coordinator_url(chain, run))) as client:
        return client.rules(chain.latest().run(run).terms.rules_hash)


def coordinator_url(chain: Chain, run: int) -> str:
    """Returns the URL of the run's coordinator, as its opening names it on chain.

    Raises:
        Misconfigured: the run names none.
    """
    from protocol.chain.reading.lookup import coordinator_uri
    from protocol.transport.http import is_http

    uri = coordinator_uri(chain, run)
    if not is_http(uri):
        raise Misconfigured(f"run {run} names no coordinator on chain ({uri[:80]!r}): give its URL with --coordinator")
    return uri


@app.command("verify")
@guard
def verify(
    directory: Annotated[Path, typer.Argument(help="Model directory to check.")],
    addresses: Addresses,
    run: Annotated[int, typer.Option("--run", min=1, help="Id of the run.")],
    version: Version = None,
    source: SourceUrls = None,
    coordinator: CoordinatorUrl = None,
    rpc: RpcUrl = DEFAULT_RPC,
    as_json: AsJson = False,
) -> None:
    """Check a model directory against the manifest root on chain, byte for byte.

    If it differs, the sources' manifest tells which files do.
    """
    from protocol.broadcast.download import differences
    from protocol.wire.manifest import from_directory

    with connected(rpc, addresses) as chain:
        found, root = root_of(chain, run, version)
        manifest = from_directory(directory, found)
        if manifest.root != root:
            with offered(chain, run, found, coordinator, source) as offer:
                wrong = differences(offer.sources, run, found, root, offer.authority, directory)
            if wrong:
                raise Rejected(f"{directory} is not version {found} of run {run}: {'; '.join(wrong)}")
    row = {"run": run, "version": found, "manifest_root": root, "files": len(manifest.files), "bytes": manifest.size}
    show(row | {"directory": str(directory), "verified": True}, as_json)


def root_of(chain: Chain, run: int, version: int | None) -> tuple[int, bytes]:
    """Returns a version of ``run``, the newest if ``version`` is None, and its manifest root on chain.

    Raises:
        Rejected: the run has no such version.
    """
    reader = chain.pinned(chain.head())
    newest = reader.run(run).version
    wanted = newest if version is None else version
    root = reader.manifest_root(run, wanted)
    if not any(root):
        raise Rejected(f"run {run} has no version {wanted}: its newest is {newest}")
    return wanted, root


@app.command("fetch")
@guard
def fetch(
    addresses: Addresses,
    run: Annotated[int, typer.Option("--run", min=1, help="Id of the run.")],
    out: Annotated[Path, typer.Option("--out", help="Model directory to make: new or empty.")],
    version: Version = None,
    source: SourceUrls = None,
    coordinator: CoordinatorUrl = None,
    rpc: RpcUrl = DEFAULT_RPC,
    as_json: AsJson = False,
) -> None:
    """Fetch a version as a Hugging Face directory; signature, manifest root and pinned files are checked by the chain.

    An attempt that was cut off goes on where it ended: type the same command again.
    """
    with connected(rpc, addresses) as chain, offered(chain, run, version, coordinator, source) as offer:
        manifest = offer.fetch(out.absolute(), quiet=as_json)
    row = {"run": run, "version": offer.version, "manifest_root": offer.root, "files": len(manifest.files)}
    show(row | {"bytes": manifest.size, "directory": str(out)}, as_json)
