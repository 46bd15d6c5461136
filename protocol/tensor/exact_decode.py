"""Exact decoding: tokens are guessed by seeded decoding, and settled window by window (``protocol.tensor.windows``).

Decoding guesses for the rows of all jobs side by side. Once it has guessed a job's next window, the window runs: where
the token that it chooses is not the guess, that row goes back and decodes on from there, and the window waits to run
again. So every token, logprob and hidden state of a completion is that of a window whose inputs it chose itself.

Axes: B rows that run, R rollouts of a job, Q sampled tokens of a window, T output tokens, V vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protocol.errors import Misconfigured
from protocol.tensor.attention import check_attention
from protocol.tensor.completions import Completion, Request, Sampler
from protocol.tensor.decode import MAX_ROWS, Decoder, HeadInput
from protocol.tensor.noise import perturb
from protocol.tensor.windows import JobWindows, WindowTokens

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]


def decode_exactly(
    model: Any,
    requests: Sequence[Request],
    rollouts: int,
    width: int,
    head_dtype: torch.dtype,
    cancelled: Callable[[], bool] = lambda: False,
    max_rows: int = MAX_ROWS,
) -> list[Completion]:
    """Completes every request, ``rollouts`` of a job after those of another, and returns the completions in order.

    Raises:
        Unavailable: ``cancelled`` returned true; it is asked before every pass.
        Misconfigured: the model's rows cannot share a batch, or a job has more rollouts than fit into memory.
    """
    if len(requests) % rollouts:
        raise ValueError(f"invalid number of requests {len(requests)}: expected whole jobs of {rollouts}")
    check_attention(model)
    with torch.inference_mode(), HeadInput(model) as head_input:
        return _ExactDecoder(model, head_input, requests, cancelled, max_rows, rollouts, width, head_dtype).complete()


class _Guesses(Sampler):
    """A sampler of tokens alone."""

    def __init__(self, longest: int, hidden: int, device: torch.device) -> None:
        super().__init__(longest, 0, device)

    def sample(self, logits_BV: Tensor, hidden_BH: Tensor) -> None:
        """Chooses and records a token for each running row. ``logits_BV``, if fp32, is overwritten."""
        self.record(self.choose(logits_BV, logits_BV))

    def go_back(self, slot: int, token: int, steps: int) -> None:
        """Lets the row in ``slot`` go on after its first ``steps`` tokens, of which the last is ``token``."""
        self.tokens_RT[slot, steps - 1] = self.last_R[slot] = token
        self.steps_R[slot] = steps
        self.running_R[slot] = bool((self.stops_RS[slot] != token).all()) and steps < int(self.limit_R[slot])


class _SettlingJob:
    """A job whose windows are being settled; ``settled`` once no row is left."""

    def __init__(self, network: Any, requests: Sequence[Request], width: int) -> None:
        self.requests = requests
        self.prompts = [np.array(request.prompt_tokens, np.int32) for request in requests]
        self.windows = JobWindows(network, [len(request.prompt_tokens) for request in requests], width)
        self.keys_R2 = np.array([request.noise_key for request in requests], dtype=np.int64)
        self.temperature_R = np.array([request.temperature for request in requests], dtype=np.float32)
        self.window, self.settled = 0, False
        self.logprobs: list[list[float]] = [[] for _ in requests]
        self.hidden: list[list[Tensor]] = [[] for _ in requests]

    @property
    def end(self) -> int:
        """The position behind the present window."""
        return (self.window + 1) * self.windows.width

    def guessed(self, steps_R: I64, running_R: NDArray[np.bool_]) -> bool:
        """Returns whether every row has ended or has a token behind the present window."""
        return bool((~running_R | (self.windows.prompts_R + steps_R > self.end)).all())

    def settle(
        self, outputs: Sequence[I32], running: bool, head: Any, head_dtype: torch.dtype
    ) -> dict[int, tuple[int, int]]:
        """Runs the present window over the tokens guessed so far; goes on to the next if they are the chosen ones.

        ``running`` says whether a row is still being guessed.

        Returns for each rollout in which they are not the index of its first such token, and the token chosen instead.
        """
        fed_R = self.windows.prompts_R + np.array([len(output) for output in outputs]) - 1
        tokens = [np.concatenate(pair) for pair in zip(self.prompts, outputs, strict=True)]
        sampled = self.windows.run(self.window, tokens, fed_R)
        given_Q = np.array([outputs[r][t] for r, t in zip(sampled.rollouts_Q, sampled.steps_Q, strict=True)], np.int64)
        chosen_Q, logprobs_Q = self._chosen(sampled, given_Q, head, head_dtype)
        wrong = {}
        for q in np.flatnonzero(chosen_Q != given_Q)[::-1].tolist():
            wrong[int(sampled.rollouts_Q[q])] = int(sampled.steps_Q[q]), int(chosen_Q[q])
        if not wrong:
            self._keep(sampled, logprobs_Q)
            self.settled = not running and bool((fed_R <= self.end).all())
            self.window += 1
        return wrong

    def _chosen(
        self, sampled: WindowTokens, given_Q: I64, head: Any, head_dtype: torch.dtype
    ) -> tuple[I64, NDArray[np.float32]]:
        """Returns the seeded choice after each position, and the logprob of the token that was given."""
        chosen_Q, logprobs_Q = np.empty(len(given_Q), np.int64), np.empty(len(given_Q), np.float32)
        for places, logits_UV, row in sampled.logits(head, head_dtype):
            rollouts = sampled.rollouts_Q[places]
            temperature, row_there = self.temperature_R[rollouts], torch.from_numpy(row).to(logits_UV.device)
            scale = torch.from_numpy(np.where(temperature == 0, 1.0, temperature).astype(np.float32))[:, None]
            scores = logits_UV[row_there]
            given = torch.from_numpy(given_Q[places]).to(scores.device)[:, None]
            logprobs_Q[places] = (scores / scale.to(scores.device)).log_softmax(-1).gather(1, given)[:, 0].cpu()
            choice = perturb(scores, self.keys_R2[rollouts], sampled.steps_Q[places], temperature).argmax(-1)
            chosen_Q[places] = choice.cpu()
        return chosen_Q, logprobs_Q

    def _keep(self, sampled: WindowTokens, logprobs_Q: NDArray[np.float32]) -> None:
        hidden_QH = sampled.hidden_UH[torch.from_numpy(sampled.row_Q).to(sampled.hidden_UH.device)]
        hidden_QH = hidden_QH.to("cpu", torch.bfloat16)
        for rollout in np.unique(sampled.rollouts_Q).tolist():
            own_Q = sampled.rollouts_Q == rollout
            self.logprobs[rollout] += logprobs_Q[own_Q].tolist()
            self.hidden[rollout].append(hidden_QH[torch.from_numpy(own_Q)])

    def completion(self, rollout: int, output: I32) -> Completion:
        """Returns a completion of a settled job."""
        tokens = tuple(output.tolist())
        reason: Literal["stop", "length"] = "stop" if tokens[-1] in self.requests[rollout].stop_tokens else "length"
        return Completion(tokens, torch.tensor(self.logprobs[rollout]), torch.cat(self.hidden[rollout]), reason)


class _ExactDecoder(Decoder):
    """Guesses rows as ``Decoder`` does, in whole jobs, and keeps them in their slots until their job is settled."""

    sampler: _Guesses

    def __init__(
        self,
        model: Any,
        head_input: HeadInput,
        requests: Sequence[Request],
        cancelled: Callable[[], bool],
        max_rows: int,
        rollouts: int,
        width: int,
        head_dtype: torch.dtype,
    ) -> None:
        super().__init__(model, head_input, requests, cancelled, max(max_rows, rollouts), _Guesses)
        self.rollouts, self.head_dtype = rollouts, head_dtype
        self.waiting = deque(range(len(requests)))
        parts = (requests[first : first + rollouts] for first in range(0, len(requests), rollouts))
        self.jobs = [_SettlingJob(model, part, width) for part in parts]

    def _admitted(self, free: int) -> int:
        whole = min(free, len(self.waiting)) // self.rollouts * self.rollouts
        if not whole and not len(self.request_B):
            raise Misconfigured(
                f"the keys and values of a job's {self.rollouts} rollouts exceed this machine's memory: choose a run "
                "with smaller jobs"
            )
        return whole

    def _place(self, numbers: list[int]) -> None:
        super()._place(numbers)
        self._settle()

    def _run(self) -> None:
        super()._run()
        self._settle()

    def _settle(self) -> None:
        """Runs every window that has been guessed."""
        slots = {int(request): slot for slot, request in enumerate(self.request_B) if request >= 0}
        for number in sorted({request // self.rollouts for request in slots}):
            job = self.jobs[number]
            slots_R = np.array([slots[number * self.rollouts + n] for n in range(self.rollouts)])
            while not job.settled:
                steps_R = self.sampler.steps_R[slots_R].cpu().numpy()
                running_R = self.sampler.running_R[slots_R].cpu().numpy()
                if not job.guessed(steps_R, running_R):
                    break
                self._check_cancelled()
                outputs, running = self._outputs(slots_R, steps_R), bool(running_R.any())
                wrong = job.settle(outputs, running, self.head_input.head, self.head_dtype)
                for rollout, (step, token) in wrong.items():
                    slot = int(slots_R[rollout])
                    self.sampler.go_back(slot, token, step + 1)
                    self.slots.at_B[slot] = len(job.prompts[rollout]) + step

    def _outputs(self, slots_R: I64, steps_R: I64) -> list[I32]:
        tokens_RT = self.sampler.tokens_RT[torch.from_numpy(slots_R), : int(steps_R.max(initial=0))].int().cpu().numpy()
        return [tokens_T[:steps] for tokens_T, steps in zip(tokens_RT, steps_R.tolist(), strict=True)]

    def _ended(self) -> I64:
        settled_B = [self.jobs[request // self.rollouts].settled for request in self.request_B]
        return np.flatnonzero(settled_B)

    def _completion(self, slot: int) -> Completion:
        number, rollout = divmod(int(self.request_B[slot]), self.rollouts)
        (output,) = self._outputs(np.array([slot]), self.sampler.steps_R[[slot]].cpu().numpy())
        return self.jobs[number].completion(rollout, output)
