"""Cheating workers, faulty validators and faulty trainers, for the local network, the tests and the zoo.

A cheating worker is the real daemon with a subclass of ``Producer`` that overrides the steps it cheats in.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from protocol.errors import Misconfigured

if TYPE_CHECKING:
    from trainer.publish import Publisher
    from validator.daemon import Validator
    from worker.producer import Producer


@dataclass(frozen=True, slots=True)
class Adversary:
    """A cheating worker.

    place          module and class, below ``deploy.adversaries``
    kind           bytes: cheats in its files or proofs, no job may pass
                   gross: does different work from the assignment, no job may pass
                   slight: close to honest work, so that single jobs may pass and evidence adds up over jobs
    ends           verdict on its jobs: fraud, which costs its bond, or void, which pays nothing
    begins_honest  true if it needs work handed in earlier, by itself or another node
    """

    place: str
    kind: Literal["bytes", "gross", "slight"]
    ends: Literal["fraud", "void"] = "fraud"
    begins_honest: bool = False

    def producer(self) -> type[Producer]:
        """Returns its class."""
        return _named(self.place)


ADVERSARIES = {
    "random-tokens": Adversary("sampling.RandomTokens", "bytes"),
    "cached-answers": Adversary("sampling.CachedAnswers", "gross"),
    "anothers-artifact": Adversary("replaying.AnothersArtifact", "bytes", begins_honest=True),
    "anothers-rollouts": Adversary("replaying.AnothersRollouts", "bytes", begins_honest=True),
    "anothers-answers": Adversary("replaying.AnothersAnswers", "bytes", begins_honest=True),
    "earlier-round": Adversary("replaying.EarlierRound", "bytes", begins_honest=True),
    "earlier-file": Adversary("replaying.EarlierFile", "bytes", begins_honest=True),
    "stale-policy": Adversary("swapped.StalePolicy", "slight"),
    "stale-policy-prefilled": Adversary("swapped.StalePolicyPrefilled", "slight"),
    "sibling": Adversary("swapped.Sibling", "gross"),
    "sibling-prefilled": Adversary("swapped.SiblingPrefilled", "slight"),
    "smaller": Adversary("swapped.Smaller", "gross"),
    "smaller-prefilled": Adversary("swapped.SmallerPrefilled", "gross"),
    "int4": Adversary("swapped.Int4", "gross"),
    "int4-prefilled": Adversary("swapped.Int4Prefilled", "slight"),
    "int8": Adversary("swapped.Int8", "slight"),
    "int8-prefilled": Adversary("swapped.Int8Prefilled", "slight"),
    "fp8": Adversary("swapped.Fp8", "slight"),
    "fp8-prefilled": Adversary("swapped.Fp8Prefilled", "slight"),
    "other-dtype": Adversary("swapped.OtherDtype", "slight"),
    "other-dtype-prefilled": Adversary("swapped.OtherDtypePrefilled", "slight"),
    "speculative": Adversary("sampling.Speculative", "slight"),
    "temperature-0.95": Adversary("sampling.Cooler", "slight"),
    "temperature-1.05": Adversary("sampling.Hotter", "slight"),
    "top-p": Adversary("sampling.TopP", "slight"),
    "best-of-n": Adversary("sampling.BestOfN", "gross"),
    "early-stop": Adversary("sampling.EarlyStop", "gross"),
    "cut-short": Adversary("sampling.CutShort", "gross", "void"),
    "refuses-to-stop": Adversary("sampling.RefusesToStop", "gross"),
    "edited-answer": Adversary("edited_answer.EditedAnswer", "gross"),
    "edited-token": Adversary("sampling.EditedToken", "gross"),
    "one-bad-rollout": Adversary("sampling.OneBadRollout", "gross"),
    "steering": Adversary("sampling.SteeringWorker", "slight"),
    "steering-seldom": Adversary("steering.SteersSeldom", "slight"),
    "steering-sleeper": Adversary("steering.Sleeper", "slight"),
    "steering-at-times": Adversary("steering.SteersAtTimes", "slight"),
    "steering-in-balance": Adversary("steering.SteersInBalance", "slight"),
    "steering-within-groups": Adversary("steering.SteersWithinGroups", "slight"),
    "steering-away": Adversary("steering.SteersAway", "slight"),
    "constant-polynomial": Adversary("proving.ConstantPolynomial", "bytes", "void"),
    "channel-template": Adversary("proving.ChannelTemplate", "bytes", "void"),
    "other-prompts-proof": Adversary("proving.OtherPromptsProof", "bytes", "void"),
    "random-proofs": Adversary("proving.RandomProofs", "bytes", "void"),
    "negated-activations": Adversary("proving.NegatedActivations", "bytes", "void"),
    "chosen-modulus": Adversary("proving.ChosenModulus", "bytes", "void"),
    "another-modulus": Adversary("proving.AnotherModulus", "bytes", "void"),
    "half-precision": Adversary("proving.HalfPrecision", "bytes", "void"),
    "null-proofs": Adversary("proving.NullProofs", "bytes", "void"),
    "no-proofs": Adversary("proving.NoProofs", "bytes", "void"),
    "missing-proof": Adversary("proving.MissingProof", "bytes", "void"),
    "extra-proof": Adversary("proving.ExtraProof", "bytes", "void"),
    "coefficient-free": Adversary("proving.CoefficientFree", "bytes", "void"),
    "oversized-proof": Adversary("proving.OversizedProof", "bytes", "void"),
    "wrong-environment": Adversary("claiming.WrongEnvironment", "gross"),
    "other-prompts": Adversary("claiming.OtherPrompts", "gross"),
    "other-policy": Adversary("claiming.OtherPolicy", "bytes", "void"),
    "wrong-logprobs": Adversary("claiming.WrongLogprobs", "bytes", "void"),
    "inflated-units": Adversary("claiming.InflatedUnits", "bytes", "void"),
    "truncated": Adversary("files.Truncated", "bytes", "void"),
    "flipped-bits": Adversary("files.Flipped", "bytes", "void"),
    "oversized": Adversary("files.Oversized", "bytes", "void"),
    "too-many-rollouts": Adversary("files.TooManyRollouts", "bytes", "void"),
    "zstd-bomb": Adversary("files.ZstdBomb", "bytes", "void"),
    "snappy-bomb": Adversary("files.SnappyBomb", "bytes", "void"),
    "dictionary-bomb": Adversary("files.DictionaryBomb", "bytes", "void"),
    "thrift-bomb": Adversary("files.ThriftBomb", "bytes", "void"),
    "lying-footer": Adversary("files.LyingFooter", "bytes", "void"),
}
"""Cheating workers, by name on the command line."""

FAULTY_VALIDATORS = {
    "condemns-honest": "condemns_honest.CondemningValidator",
    "accepts-unread": "lazy_jurors.AcceptsUnread",
    "copies-evidence": "lazy_jurors.CopiesEvidence",
    "invents-evidence": "lazy_jurors.InventsEvidence",
    "hides-bundle": "lazy_jurors.HidesBundle",
    "plants-record": "planted_records.PlantsRecord",
    "clears-record": "planted_records.ClearsRecord",
}
"""Faulty validators: name on the command line to module and class."""

FAULTY_TRAINERS = {"ambiguous-checkpoint": "ambiguous_checkpoint.AmbiguousPublisher"}
"""Faulty trainers: name on the command line to module and class of their publisher."""


def adversary(name: str) -> type[Producer]:
    """Returns the producer of a cheating worker.

    Raises:
        Misconfigured: unknown name; the message lists the known ones.
    """
    if name not in ADVERSARIES:
        raise Misconfigured(f"unknown adversary {name!r}: expected one of {', '.join(sorted(ADVERSARIES))}")
    return ADVERSARIES[name].producer()


def faulty_validator(name: str) -> type[Validator]:
    """Returns the class of a faulty validator, one of ``FAULTY_VALIDATORS``."""
    kind: type[Validator] = _named(FAULTY_VALIDATORS[name])
    return kind


def faulty_publisher(name: str) -> type[Publisher]:
    """Returns the publisher of a faulty trainer, one of ``FAULTY_TRAINERS``."""
    kind: type[Publisher] = _named(FAULTY_TRAINERS[name])
    return kind


def _named(place: str) -> type:
    module, _, name = place.partition(".")
    kind: type = getattr(import_module(f"deploy.adversaries.{module}"), name)
    return kind
