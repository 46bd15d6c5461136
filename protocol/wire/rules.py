"""The rules of a run: the work asked for, and the thresholds by which validators judge it.

Rules are a consensus object. Their canonical JSON (sorted keys, no spaces, ASCII) is served by hash; the hash is on
chain, nodes consent to it when they join, and validators refuse any other bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from eth_utils import keccak
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    field_validator,
    model_serializer,
    model_validator,
)

from protocol.errors import Misconfigured, Rejected
from protocol.wire.canonical import Canonical, validating
from protocol.wire.pins import TASKS_FILE, PinnedFile, Pins, pin_directory, tensors_in
from protocol.wire.releases import ReleaseText

MAX_RULES_BYTES = 64 * 1024

DEFAULT_ENGINE = "transformers"
"""The engine of rules and settings that name none."""

EngineName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
"""Name of a worker's engine. Whether such an engine exists is for workers and calibration to check."""


TASKS = "tasks"
"""Name of the environment whose tasks come from a file."""
MAX_AFFIX = 4096

PromptAffix = Annotated[str, Field(max_length=MAX_AFFIX)]
"""Text before or after each prompt."""

StopTokens = Annotated[tuple[Annotated[int, Field(ge=0, lt=1 << 24)], ...], Field(max_length=16)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ExactRules(_Frozen):
    """The determinism class of a run whose rollouts are compared by bits (``protocol.tensor.windows``).

    window   positions of a window
    proofs   proof of each chunk: ``hash`` of its hidden states, or ``both`` the TOPLOC polynomial and the hash
    canary   hash of a pinned pass at the run's shapes (``protocol.tensor.determinism``): the class itself. Only rules
             that no run has yet leave it out
    made_by  software, processor and threads that gave this canary, for people
    """

    window: int = Field(default=64, ge=8, le=4096)
    proofs: Literal["hash", "both"] = "both"
    canary: str | None = Field(default=None, pattern=r"^0x[0-9a-f]{64}$")
    made_by: str = Field(default="", max_length=400)


class ModelRules(_Frozen):
    """Number formats of the policy, the engines whose honest noise the thresholds allow for, and what is pinned of it.

    ``head_dtype`` is the dtype of the raw logits before they are widened to float32. ``checkpoint`` pins the files of
    every version; only rules that no run has yet leave it out. ``exact`` is there if rollouts are compared by bits.
    Absent ones are left out of the canonical JSON.
    """

    dtype: Literal["float32", "bfloat16"]
    head_dtype: Literal["float32", "bfloat16"]
    worker_engines: tuple[EngineName, ...] = Field(default=(DEFAULT_ENGINE,), min_length=1)
    checkpoint: Pins | None = None
    exact: ExactRules | None = None

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        shown: dict[str, Any] = handler(self)
        return {key: value for key, value in shown.items() if value is not None}


class EnvironmentRules(_Frozen):
    """The environment that sets the tasks, by registered name and parameters."""

    name: str = Field(min_length=1, max_length=64)
    params: dict[str, Any] = Field(default_factory=dict)


BoundName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
BoundValue = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Thresholds(_Frozen):
    """Upper end of honest numerical noise, per model, dtype and engines.

    sampling_void, sampling_fraud   margin in logits above which one token makes a job void, or fraudulent
                                    (``sampling_fraud`` null: void only); every reported logprob, times the
                                    temperature, is within ``sampling_void`` of the recomputed one as well
    logprob_median, logprob_tail    largest median, and largest 99th percentile, of |reported − recomputed| in nats
    toploc, toploc_mean             largest relative distance of any chunk, and largest mean over a job
    toploc_null_ratio               a chunk's distance must be at most this share of the best forgery's
    further                         bounds of any other checks, by name; left out of the canonical JSON when empty
    """

    sampling_void: float = Field(gt=0)
    sampling_fraud: float | None = Field(default=None, gt=0)
    logprob_median: float = Field(gt=0)
    logprob_tail: float = Field(gt=0)
    toploc: float = Field(gt=0)
    toploc_mean: float = Field(gt=0)
    toploc_null_ratio: float = Field(default=0.3, gt=0, lt=1)
    further: dict[BoundName, BoundValue] = Field(default_factory=dict)

    @classmethod
    def from_bounds(cls, bounds: Mapping[str, float | None]) -> Thresholds:
        """Builds thresholds from bounds by name; names that are not fields go to ``further``."""
        fields = {name: value for name, value in bounds.items() if name in cls.model_fields}
        return cls.model_validate(fields | {"further": {name: bounds[name] for name in bounds.keys() - fields.keys()}})

    @property
    def bounds(self) -> dict[str, float | None]:
        """Every bound by name, ``further`` included."""
        return {name: value for name, value in self if name != "further"} | self.further

    @field_validator("further")
    @classmethod
    def _names_are_free(cls, further: dict[str, float]) -> dict[str, float]:
        if taken := sorted(further.keys() & cls.model_fields.keys()):
            raise ValueError(f"{', '.join(taken)} is a field of the thresholds: give it there")
        return further

    @model_serializer(mode="wrap")
    def _without_empty_further(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        shown: dict[str, Any] = handler(self)
        return shown if self.further else {name: value for name, value in shown.items() if name != "further"}


class Sequential(_Frozen):
    """The sequential test over all of a node's jobs, for cheats too small to detect in one job.

    sigma, ratio     standard deviation in logits of the noise on a choice between honest engines, and the factor by
                     which the alternative exceeds it
    floor, outlier   least probability that a choice flips, however clear it is: for an honest engine, and under the
                     alternative
    false_alarm      largest probability that an honest node is found fraudulent within ``horizon_jobs`` of its jobs
    void_budget      largest share of an honest node's jobs that are void or missing
    outage_budget    largest share of its rounds that are lost as a whole: a restart, a reorganisation, a late machine
    centring         share left out of what choices say for an engine by not flipping, as honest engines flip less often
                     than the normal law of ``sigma`` allows
    clearing         largest share of the bound by which one job's choices lower the evidence; null: any

    The last two are left out of the canonical JSON where they have their defaults.
    """

    sigma: float = Field(gt=0)
    ratio: float = Field(default=3.0, gt=1)
    floor: float = Field(default=1e-6, gt=0, lt=0.5)
    outlier: float = Field(default=1e-4, gt=0, lt=0.5)
    false_alarm: float = Field(default=1e-6, gt=0, lt=1)
    horizon_jobs: int = Field(default=1_000_000, ge=1)
    void_budget: float = Field(default=0.01, gt=0, lt=1)
    outage_budget: float = Field(default=0.02, gt=0, lt=1)
    centring: float = Field(default=0.0, ge=0, lt=1)
    clearing: float | None = Field(default=None, gt=0, le=1)

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        shown: dict[str, Any] = handler(self)
        absent = {name: type(self).model_fields[name].default for name in ("centring", "clearing")}
        return {name: value for name, value in shown.items() if name not in absent or value != absent[name]}

    @property
    def bound(self) -> float:
        """Evidence in nats that condemns a node: three tests may each start at any of the horizon's jobs."""
        return math.log(3 * self.horizon_jobs / self.false_alarm)

    @property
    def least(self) -> float:
        """Least evidence in nats that one job's choices may add."""
        return -math.inf if self.clearing is None else -self.clearing * self.bound

    @property
    def neglect_bound(self) -> float:
        """Evidence of void and missing jobs, in nats, that excludes a node: a separate test."""
        return math.log(self.horizon_jobs / self.false_alarm)


class ArtifactStore(_Frozen):
    """A store of a run's artifacts: the address of the key that signs its receipts, and the base URL of its API."""

    key: str = Field(pattern=r"^0x[0-9a-fA-F]{40}$")
    url: str = Field(pattern=r"^https?://[!-~]+$", max_length=200)

    @property
    def place(self) -> str:
        """The URL to which 0x and an artifact's root are appended."""
        return f"{self.url.rstrip('/')}/artifacts/"


class Availability(_Frozen):
    """The stores of a run's artifacts, and from how many of them a submission needs a receipt."""

    stores: tuple[ArtifactStore, ...] = Field(min_length=1, max_length=8)
    receipts: int = Field(default=2, ge=1)

    @model_validator(mode="after")
    def _enough_stores(self) -> Availability:
        keys = {store.key.lower() for store in self.stores}
        if len(keys) < len(self.stores):
            raise ValueError("two stores have one key: each needs its own")
        if self.receipts > len(keys):
            raise ValueError(f"{self.receipts} receipts from {len(keys)} stores: name more stores or ask for fewer")
        return self


class Rules(_Frozen):
    """Parameters that a worker and a validator must agree on. ``temperature`` is 0 (greedy) to 1.5.

    prompt_before   text put before each prompt of the environment, and after it: what a chat template has around a
    prompt_after    user's message. Templates are programs, which no node runs
    stop_tokens     tokens that end a completion; none is the tokenizer's end-of-text alone
    availability    the stores whose receipts a submission needs, if any
    least_version   oldest version of the software that serves or judges under these rules, if any

    These five are left out of the canonical JSON where they have their defaults.
    """

    version: Literal[1] = 1
    model: ModelRules
    environment: EnvironmentRules
    groups_per_job: int = Field(ge=1, le=4096)
    samples_per_group: int = Field(ge=1, le=1024)
    temperature: float = Field(ge=0, le=1.5)
    max_tokens: int = Field(ge=1, le=131072)
    async_level: int = Field(ge=0, le=16)
    thresholds: Thresholds
    sequential: Sequential
    prompt_before: PromptAffix = ""
    prompt_after: PromptAffix = ""
    stop_tokens: StopTokens = ()
    availability: Availability | None = None
    least_version: ReleaseText | None = None

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        shown: dict[str, Any] = handler(self)
        absent = {name for name in _LEFT_OUT if self._is_default(name)}
        return {name: value for name, value in shown.items() if name not in absent}

    def _is_default(self, name: str) -> bool:
        return bool(getattr(self, name) == type(self).model_fields[name].default)

    @field_validator("stop_tokens")
    @classmethod
    def _ascending(cls, tokens: tuple[int, ...]) -> tuple[int, ...]:
        if list(tokens) != sorted(set(tokens)):
            raise ValueError("expected each stop token once, in ascending order")
        return tokens

    @model_validator(mode="after")
    def _tasks_are_pinned(self) -> Rules:
        pins, root = self.model.checkpoint, self.environment.params.get("root")
        if self.environment.name == TASKS and pins is not None:
            pinned = next((f"0x{file.hash.hex()}" for file in pins if file.name == TASKS_FILE), None)
            if pinned is None or pinned != root:
                raise ValueError(
                    f"the environment's root is {root}, and the pinned {TASKS_FILE}'s {pinned}: expected the same file"
                )
        return self

    @model_validator(mode="after")
    def _exact_choices_are_unique(self) -> Rules:
        if self.model.exact is not None and self.temperature == 0:
            raise ValueError("temperature 0 with exact rollouts: ties would be free choices; set it above 0")
        return self

    @property
    def stores(self) -> tuple[ArtifactStore, ...]:
        """The stores whose receipts a submission needs; none where it needs no receipt."""
        return () if self.availability is None else self.availability.stores

    def prompt_text(self, prompt: str) -> str:
        """Returns what the model is given for a prompt of the environment."""
        return self.prompt_before + prompt + self.prompt_after

    @property
    def rollouts_per_job(self) -> int:
        """Rollouts in one job's artifact."""
        return self.groups_per_job * self.samples_per_group

    @property
    def canary(self) -> bytes:
        """The run's determinism class, 32 bytes; zeros if it has none."""
        exact = self.model.exact
        return bytes(32) if exact is None or exact.canary is None else bytes.fromhex(exact.canary[2:])

    @property
    def chunks_hashed(self) -> bool:
        """True if each chunk's proof has a hash of its hidden states."""
        return self.model.exact is not None

    @property
    def chunks_interpolated(self) -> bool:
        """True if each chunk's proof has a TOPLOC polynomial."""
        return self.model.exact is None or self.model.exact.proofs == "both"

    @property
    def pins(self) -> tuple[PinnedFile, ...]:
        """The files of every checkpoint; raises ``Rejected`` if these rules pin none, and so cannot be a run's."""
        if self.model.checkpoint is None:
            raise Rejected(
                "the rules pin no checkpoint, so a version could mean two policies: add the run's first model to them "
                "with `assize run rules RULES OUT --model DIRECTORY`"
            )
        return self.model.checkpoint


_LEFT_OUT = ("prompt_before", "prompt_after", "stop_tokens", "availability", "least_version")


def with_checkpoint(rules: Rules, directory: Path) -> Rules:
    """Returns ``rules`` with the files pinned of the model in ``directory``, the first of a run.

    Raises:
        UnfitCheckpoint: the directory cannot be pinned.
        Misconfigured: its format cannot hold what the trainer computes under these rules.
    """
    pins = pin_directory(directory)
    check_format(directory, rules.model.dtype)
    return rules.model_copy(update={"model": rules.model.model_copy(update={"checkpoint": pins})})


def with_stores(rules: Rules, stores: Sequence[ArtifactStore], receipts: int) -> Rules:
    """Returns ``rules`` under which a submission needs receipts of this many of ``stores``.

    Raises:
        Misconfigured: two stores have one key, or there are fewer than that.
    """
    named = {"stores": [store.model_dump() for store in stores], "receipts": receipts}
    with validating("invalid stores", Misconfigured):
        return rules.model_copy(update={"availability": Availability.model_validate(named)})


def with_least_version(rules: Rules, least: str) -> Rules:
    """Returns ``rules`` that ask for this version of the software, or a later one.

    Raises:
        Misconfigured: it is no version.
    """
    with validating(f"invalid version {least!r}: expected numbers such as 0.3.1", Misconfigured):
        TypeAdapter(ReleaseText).validate_python(least)
    return rules.model_copy(update={"least_version": least})


def check_format(directory: Path, dtype: str) -> None:
    """Raises ``Misconfigured`` if a tensor of ``directory`` is stored in fewer bits than ``dtype`` has."""
    if dtype == "float32" and any(
        tensor.dtype != "F32" for held in tensors_in(directory).values() for tensor in held.values()
    ):
        raise Misconfigured(
            f"{directory} stores tensors in fewer bits than the rules' float32, so published versions would differ "
            "from the trained ones: save the model in float32"
        )


def encode_rules(rules: Rules) -> bytes:
    """Returns the canonical JSON bytes."""
    return _RULES.encode(rules)


def rules_hash(encoded: bytes) -> bytes:
    """Returns keccak256 of the canonical bytes, as on chain."""
    return keccak(encoded)


def decode_rules(encoded: bytes, expected: bytes | None = None) -> Rules:
    """Reads rules.

    Where ``expected`` is given, the rules are a run's: that is their hash on chain.

    Raises:
        Rejected: they are invalid; or a run's rules have another hash, or pin no checkpoint.
    """
    if expected is not None and rules_hash(encoded) != expected:
        raise Rejected(f"the rules hash to 0x{rules_hash(encoded).hex()}, expected 0x{expected.hex()} as on chain")
    rules = _RULES.decode(encoded)
    if expected is not None:
        _ = rules.pins
        if rules.model.exact is not None and rules.model.exact.canary is None:
            raise Rejected("the rules ask for equal bits and name no canary: open the run with `assize run new`")
    return rules


_RULES = Canonical(Rules, "rules (see `assize run rules`)", MAX_RULES_BYTES)
