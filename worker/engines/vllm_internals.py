"""Everything that depends on vLLM's internals: the one file to review for another version of vLLM.

Tested with vLLM 0.32 (CPU build). Undocumented behaviour it relies on: the offline engine steps in this process; its
first model runner calls the model's ``logits_processor`` module once a step with one row per request of the batch,
and then the custom logits processors with the rows in the same order.

Axes: B requests in the running batch, V vocabulary, T positions, H hidden size.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from protocol.errors import Misconfigured
from protocol.tensor.noise import perturb
from worker.engines.vllm_steps import BatchStep, Recorder, Sampled

TRIED = (0, 32)
SEEDED = "assize"
"""Key in ``SamplingParams.extra_args`` under which a request's number, noise key and temperature travel."""

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",  # the hook and the noise live in this process
    VLLM_USE_V2_MODEL_RUNNER="0",  # the second model runner ignores custom logits processors
    VLLM_NO_USAGE_STATS="1",
    VLLM_DO_NOT_TRACK="1",
    DO_NOT_TRACK="1",
    HF_HUB_OFFLINE="1",
    VLLM_HOST_IP="127.0.0.1",  # otherwise vLLM looks for an address that reaches the Internet
    GLOO_SOCKET_IFNAME="lo",
    VLLM_WORKER_MULTIPROC_METHOD="spawn",  # this process has threads, which a fork would lose
    VLLM_CPU_OMP_THREADS_BIND="nobind",  # other workers and validators share the cores
)
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Silences vLLM's warnings while it is imported or started, and restores this process's threads and seeds."""
    set_threads, threads = torch.set_num_threads, torch.get_num_threads()
    python, numbers = random.getstate(), np.random.get_state()
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads = set_threads  # the CPU build replaces it by a function that only warns
        torch.set_num_threads(threads)
        random.setstate(python)
        np.random.set_state(numbers)


with _undisturbed():
    import vllm
    from vllm import EngineArgs, LLMEngine, RequestOutput, SamplingParams
    from vllm.model_executor.layers.logits_processor import LogitsProcessor as Head
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
    from vllm.platforms import current_platform
    from vllm.triton_utils import dispatcher
    from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
    from vllm.v1.sample.logits_processor.builtin import process_dict_updates


def _attributes(value: object) -> dict[str, Any]:
    """Returns ``vars(value)``, or an empty dict for objects whose ``__dict__`` is not a dict."""
    found = vars(value)
    return found if isinstance(found, dict) else {}


# At start, vLLM inspects every object of every module, and fails on llvmlite's library if numba is loaded.
vars(dispatcher)["vars"] = _attributes


def check_version(version: str = vllm.__version__) -> None:
    """Raises ``Misconfigured`` if another version of vLLM is installed than this file was tested with."""
    found = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    if found != TRIED:
        tried = ".".join(map(str, TRIED))
        raise Misconfigured(
            f"unsupported vLLM {version}: expected {tried}, the version this engine was tested with; "
            f"install vllm=={tried}.0"
        )


RECORDER = "assize_recorder"
"""Key in vLLM's ``additional_config`` of the name under which an engine's steps are recorded."""

_RECORDERS: dict[str, Recorder] = {}
"""Recorders of the engines of this process; where a model is divided, each of vLLM's processes has its own."""


def recorder_of(name: str) -> Recorder:
    """Returns the recorder of an engine in this process."""
    return _RECORDERS.setdefault(name, Recorder())


@dataclass(slots=True)
class _RunningRequest:
    """A request in the running batch. ``output`` is vLLM's own list, which grows as tokens are sampled."""

    request: int
    key: tuple[int, int]
    temperature: float
    output: list[int]


class SeededSampling(LogitsProcessor):
    """Adds each request's noise to its row of logits, so that vLLM's greedy choice is the seeded one."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.device = device
        self.recorder = recorder_of(vllm_config.additional_config[RECORDER])
        self.rows: dict[int, _RunningRequest] = {}
        self._arrange()

    def is_argmax_invariant(self) -> bool:
        """Tells vLLM that this processor changes the argmax."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Tracks requests that joined, left or moved within the batch."""
        if process_dict_updates(self.rows, batch_update, _row):
            self._arrange()

    def _arrange(self) -> None:
        rows = [self.rows[place] for place in sorted(self.rows)]
        self.requests_B = [row.request for row in rows]
        self.outputs_B = [row.output for row in rows]
        self.keys_B2 = torch.tensor([row.key for row in rows], dtype=torch.int64, device=self.device)
        self.temperatures_B = torch.tensor([row.temperature for row in rows], device=self.device)
        self.divisors_B1 = torch.where(self.temperatures_B == 0, 1.0, self.temperatures_B)[:, None]
        self.divides = any(row.temperature not in (0.0, 1.0) for row in rows)

    def apply(self, logits_BV: torch.Tensor) -> torch.Tensor:
        """Returns the scores that vLLM takes the argmax of, and records the row of each request."""
        hidden_BH = self.recorder.hidden_BH
        if not len(logits_BV) == len(hidden_BH) == len(self.requests_B):
            raise Misconfigured(
                f"vLLM {vllm.__version__} batches differently than this engine expects: install vllm 0.32"
            )
        positions_B = [len(output) for output in self.outputs_B]
        scores_BV = logits_BV.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        scores_BV = perturb(scores_BV, self.keys_B2, torch.tensor(positions_B, device=self.device), self.temperatures_B)
        tokens_B1 = scores_BV.argmax(-1, keepdim=True)
        scaled_BV = logits_BV.float() / self.divisors_B1 if self.divides else logits_BV.float()
        logprobs_B = scaled_BV.gather(1, tokens_B1)[:, 0] - scaled_BV.logsumexp(-1)
        kept_BH = hidden_BH.to(torch.bfloat16, copy=True)
        self.recorder.steps.append(BatchStep(self.requests_B, positions_B, tokens_B1[:, 0], logprobs_B, kept_BH))
        return scores_BV


def _row(params: SamplingParams, _prompt: object, output: list[int]) -> _RunningRequest:
    request, *key, temperature = (params.extra_args or {})[SEEDED]
    return _RunningRequest(request, (key[0], key[1]), temperature, output)


class Core:
    """A vLLM engine in this process with ``processor`` in its sampler and a hook before its LM head.

    A model divided over devices has a process for each: those of the last group sample, all of them the same, and the
    first of these records.
    """

    processor = SeededSampling

    def __init__(
        self,
        directory: Path,
        dtype: Literal["float32", "bfloat16"],
        max_rows: int,
        cache_bytes: int | None,
        tensor_parallel: int = 1,
        pipeline_parallel: int = 1,
    ) -> None:
        """Raises ``Misconfigured`` if vLLM refuses the model or lacks the memory."""
        self._name = uuid.uuid4().hex
        self._divided = tensor_parallel * pipeline_parallel > 1
        self._recording = (pipeline_parallel - 1) * tensor_parallel
        arguments = EngineArgs(
            model=str(directory),
            dtype=dtype,
            load_format="safetensors",
            trust_remote_code=False,
            skip_tokenizer_init=True,
            enforce_eager=True,
            async_scheduling=False,  # a row's position is the length of its output, which must be up to date
            max_num_seqs=max_rows,
            kv_cache_memory_bytes=cache_bytes,
            logits_processors=[self.processor],
            additional_config={RECORDER: self._name},
            tensor_parallel_size=tensor_parallel,
            pipeline_parallel_size=pipeline_parallel,
            distributed_executor_backend="mp" if self._divided else None,
            disable_log_stats=True,
            use_tqdm_on_load=False,
        )
        try:
            with _undisturbed():
                self.engine = LLMEngine.from_engine_args(arguments)
                # Its finalizer would end what all engines of this process share; ``close`` frees this one's own memory.
                core: Any = self.engine.engine_core
                core._finalizer.detach()
                self.vocabulary: int = self.engine.model_config.get_vocab_size()
                if not any(self.engine.apply_model(partial(_watch, name=self._name))):
                    raise Misconfigured(_CHANGED_LOGITS)
                self._try()
        except (ValueError, RuntimeError, OSError, KeyError, NotImplementedError) as error:
            raise Misconfigured(f"vLLM cannot run {directory}: {_first_line(error)}") from error
        self.max_tokens: int = self.engine.model_config.max_model_len

    def _try(self) -> None:
        """Generates one token, so that missing kernels show now and not in the first round."""
        self.add("try", 0, (0,), (0, 0), 1.0, 1, ())
        while not self.step():
            pass
        self.forget()

    def forget(self) -> None:
        """Drops the recorded steps."""
        self._take_steps()

    def sampled(self, requests: int) -> list[Sampled]:
        """Returns the sampled tokens of every request since ``forget``, and drops them."""
        return Recorder(steps=self._take_steps()).by_request(requests)

    def _take_steps(self) -> list[BatchStep]:
        if not self._divided:
            return _take(recorder_of(self._name))
        found = self.engine.collective_rpc(_take_of_worker, args=(self._name, self._recording))
        return next((steps for steps in found if steps), [])

    def add(
        self,
        name: str,
        number: int,
        prompt_tokens: Sequence[int],
        noise_key: tuple[int, int],
        temperature: float,
        max_tokens: int,
        stop_tokens: Sequence[int],
    ) -> None:
        """Queues a request; its row is recorded under ``number``."""
        params = SamplingParams(
            temperature=0.0,
            max_tokens=max_tokens,
            # vLLM would refuse a token outside the vocabulary, which is never sampled.
            stop_token_ids=[token for token in stop_tokens if 0 <= token < self.vocabulary],
            ignore_eos=True,
            detokenize=False,
            extra_args={SEEDED: (number, *noise_key, temperature)},
        )
        (prompt,) = self.engine.renderer.render_cmpl([{"prompt_token_ids": list(prompt_tokens)}])
        self.engine.add_request(name, prompt, params)

    def step(self) -> list[tuple[str, list[int]]]:
        """Adds a token to every running request; returns names and output tokens of those that ended."""
        return [
            (done.request_id, list(done.outputs[0].token_ids))
            for done in self.engine.step()
            if isinstance(done, RequestOutput) and done.finished
        ]

    def abort(self, names: Sequence[str]) -> None:
        """Removes queued and running requests."""
        self.engine.abort_request(list(names))

    def hidden_states(self, tokens: Sequence[int]) -> torch.Tensor:
        """Returns the LM head's input after each of ``tokens``, (T, H), by a prefill of them alone."""
        if self._divided:
            raise Misconfigured("a divided model shows its hidden states to its own processes only: use one device")
        parts: list[torch.Tensor] = []
        hooks = self.engine.apply_model(lambda model: model.register_forward_hook(_keep_output(parts)))
        try:
            self.engine.reset_prefix_cache()  # cached tokens are not run
            self.add("prefill", 0, tokens, (0, 0), 0.0, 1, ())
            while not self.step():
                pass
        finally:
            hooks[0].remove()
            self.forget()
        return torch.cat(parts)

    def reload(self, directory: Path) -> None:
        """Overwrites the weights with those of ``directory`` and clears what was cached under the old ones."""
        with _undisturbed():
            self.engine.collective_rpc("reload_weights", kwargs={"weights_path": str(directory)})
            self.engine.apply_model(_pack_heads)
        if not self.engine.reset_prefix_cache():
            raise Misconfigured("vLLM did not clear its cache of the old weights: restart the worker")

    def close(self) -> None:
        """Frees weights and cache."""
        _RECORDERS.pop(self._name, None)
        if self._divided:
            self.engine.engine_core.shutdown()
            return
        self.engine.collective_rpc(_free)
        gc.unfreeze()  # vLLM froze everything it had allocated when it started
        gc.collect()


_CHANGED_LOGITS = "this model changes its logits after the LM head, which rules of version 1 do not support"


def _watch(model: torch.nn.Module, name: str) -> bool:
    """Records the input of the LM head; returns whether the model has one: only the last of its parts does."""
    heads = [module for module in model.modules() if isinstance(module, Head)]
    if not heads:
        return False
    if len(heads) != 1 or heads[0].scale != 1.0 or heads[0].soft_cap is not None:
        raise Misconfigured(_CHANGED_LOGITS)
    heads[0].register_forward_pre_hook(_remembering(recorder_of(name)), with_kwargs=True)
    return True


def _remembering(recorder: Recorder) -> Callable[[object, tuple[Any, ...], dict[str, Any]], None]:
    def remember(_module: object, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        recorder.hidden_BH = named["hidden_states"] if "hidden_states" in named else arguments[1]

    return remember


def _take(recorder: Recorder) -> list[BatchStep]:
    steps, recorder.steps = recorder.steps, []
    return steps


def _take_of_worker(worker: Any, name: str, recording: int) -> list[BatchStep]:
    """Returns what one of vLLM's processes recorded, on the CPU, if it is the one that counts."""
    steps = _take(recorder_of(name))
    return [step.on_cpu() for step in steps] if worker.rank == recording else []


def _keep_output(parts: list[torch.Tensor]) -> Callable[[Any, Any, torch.Tensor], None]:
    return lambda _module, _arguments, output: parts.append(output.clone())


def _free(worker: Any) -> None:
    worker.model_runner.shutdown()


def _pack_heads(model: torch.nn.Module) -> None:
    """Repacks LM heads on CPUs: vLLM does not renew the packed copy of a head that is tied to the embedding."""
    if current_platform.is_cpu():
        for module in model.modules():
            if isinstance(module, ParallelLMHead):
                module.quant_method.process_weights_after_loading(module)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
