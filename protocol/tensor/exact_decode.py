"""Exact decoding: completions with the bits that the windows of their job have (``protocol.tensor.windows``).

Decoding guesses for the rows of all jobs side by side, in aligned shapes. To settle a job, its windows run over the
guesses: where the token that a window chooses is not the guess, that row goes back and decodes on from there, and the
window waits to run again. So every token, logprob and hidden state of a settled completion is that of a window whose
inputs it chose itself.

Where kernels give each row its own bits, guesses have the windows' bits already. So one job in ``SETTLED_EVERY`` is
settled, the first among them; once a bit of one differs, all of them are from then on.

Axes: B rows that run, R rollouts of a job, Q sampled tokens of a window, T output tokens, V vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protocol.errors import Misconfigured, Unavailable
from protocol.tensor.attention import check_attention
from protocol.tensor.completions import Completion, Request, Sampler
from protocol.tensor.decode import MAX_ROWS, Decoder, HeadInput, decode
from protocol.tensor.noise import perturb
from protocol.tensor.windows import JobWindows, WindowTokens, check_room

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]


SETTLED_EVERY = 16
"""Jobs of which one is settled while guesses have the bits of windows."""


class ExactDecoding:
    """Decodes jobs of ``rollouts`` exactly, in windows of ``width`` positions, and settles as few as kernels allow.

    ``settles_all`` once guesses of this process were found to differ.
    """

    def __init__(self, rollouts: int, width: int, head_dtype: torch.dtype) -> None:
        self.rollouts, self.width, self.head_dtype = rollouts, width, head_dtype
        self.settles_all, self._jobs = False, 0

    def decode(
        self,
        model: Any,
        requests: Sequence[Request],
        cancelled: Callable[[], bool] = lambda: False,
        max_rows: int = MAX_ROWS,
    ) -> list[Completion]:
        """Returns what ``decode_settling`` does, and raises as it does; of requests that are no whole jobs, guesses."""
        whole = len(requests) % self.rollouts == 0
        if whole and requests:
            check_room(model, self.rollouts, _most_fed(requests))  # not after hours of guessing
        # Guesses are those of the model's own head, so they have other bits if the rules' is of another format.
        self.settles_all |= model.get_output_embeddings().weight.dtype != self.head_dtype
        if not (self.settles_all and whole):
            made = decode(model, requests, cancelled, max(max_rows, self.rollouts), aligned=True)
            if not whole or all(
                self._settled(model, requests, made, first, cancelled) for first in self._drawn(len(requests))
            ):
                return made
            self.settles_all = True
        return decode_settling(model, requests, self.rollouts, self.width, self.head_dtype, cancelled, max_rows)

    def _drawn(self, count: int) -> list[int]:
        """Returns the first request of each job to settle among ``count`` requests."""
        jobs, self._jobs = range(self._jobs, self._jobs + count // self.rollouts), self._jobs + count // self.rollouts
        return [place * self.rollouts for place, job in enumerate(jobs) if job % SETTLED_EVERY == 0]

    def _settled(
        self,
        model: Any,
        requests: Sequence[Request],
        made: Sequence[Completion],
        first: int,
        cancelled: Callable[[], bool],
    ) -> bool:
        """Returns whether the windows of one job have the bits that were made."""
        part, done = slice(first, first + self.rollouts), made[first : first + self.rollouts]
        job, outputs = _SettlingJob(model, requests[part], self.width), [_array(one) for one in done]
        with torch.inference_mode():
            while not job.settled:
                if cancelled():
                    raise Unavailable("generation was cancelled")
                if job.settle(outputs, False, model.get_output_embeddings(), self.head_dtype):
                    return False
        again = [job.completion(rollout, output) for rollout, output in enumerate(outputs)]
        return all(
            torch.equal(one.hidden_TH, other.hidden_TH) and torch.equal(one.logprobs_T, other.logprobs_T)
            for one, other in zip(done, again, strict=True)
        )


def _most_fed(requests: Sequence[Request]) -> int:
    """Returns the most tokens that may be fed of a rollout: the last one is not an input."""
    return max(len(request.prompt_tokens) + request.max_tokens for request in requests) - 1


def _array(completion: Completion) -> I32:
    return np.array(completion.output_tokens, np.int32)


def decode_settling(
    model: Any,
    requests: Sequence[Request],
    rollouts: int,
    width: int,
    head_dtype: torch.dtype,
    cancelled: Callable[[], bool] = lambda: False,
    max_rows: int = MAX_ROWS,
) -> list[Completion]:
    """Completes every request, ``rollouts`` of a job after those of another, and settles every job.

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

    def output(self, slot: int) -> I32:
        """Returns the tokens of a row so far."""
        tokens: I32 = self.tokens_RT[slot, : int(self.steps_R[slot])].int().cpu().numpy()
        return tokens

    def resume(self, slot: int, tokens: I32) -> None:
        """Lets the row in ``slot`` go on after ``tokens``, unless they end it."""
        steps, last = len(tokens), int(tokens[-1])
        self.tokens_RT[slot, :steps] = torch.from_numpy(tokens).to(self.device)
        self.steps_R[slot], self.last_R[slot] = steps, last
        self.running_R[slot] = bool((self.stops_RS[slot] != last).all()) and steps < int(self.limit_R[slot])


class _SettlingJob:
    """A job whose windows are being settled; ``settled`` once no row is left."""

    def __init__(self, network: Any, requests: Sequence[Request], width: int) -> None:
        self.requests = requests
        self.prompts = [np.array(request.prompt_tokens, np.int32) for request in requests]
        prompts = [len(request.prompt_tokens) for request in requests]
        self.windows = JobWindows(network, prompts, width, _most_fed(requests))
        self.keys_R2 = np.array([request.noise_key for request in requests], dtype=np.int64)
        self.temperature_R = np.array([request.temperature for request in requests], dtype=np.float32)
        self.window, self.settled = 0, False
        self.logprobs: list[list[float]] = [[] for _ in requests]
        self.hidden: list[list[Tensor]] = [[] for _ in requests]

    @property
    def end(self) -> int:
        """The position behind the present window."""
        return (self.window + 1) * self.windows.width

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

    def release(self) -> None:
        """Frees the keys and values of a settled job."""
        self.windows.states.clear()

    def completion(self, rollout: int, output: I32) -> Completion:
        """Returns a completion of a settled job."""
        tokens = tuple(output.tolist())
        reason: Literal["stop", "length"] = "stop" if tokens[-1] in self.requests[rollout].stop_tokens else "length"
        return Completion(tokens, torch.tensor(self.logprobs[rollout]), torch.cat(self.hidden[rollout]), reason)


class _ExactDecoder(Decoder):
    """Guesses rows as ``Decoder`` does, in whole jobs; a row that a window takes back returns to a slot.

    ``parked`` holds the tokens of requests whose rows have ended, until their job is settled; ``returning`` those that
    go on after the tokens they have.
    """

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
        super().__init__(model, head_input, requests, cancelled, max(max_rows, rollouts), _Guesses, aligned=True)
        self.rollouts, self.head_dtype = rollouts, head_dtype
        self.waiting = deque(range(len(requests)))
        parts = (requests[first : first + rollouts] for first in range(0, len(requests), rollouts))
        self.jobs = [_SettlingJob(model, part, width) for part in parts]
        self.unsettled: list[int] = []
        self.parked: dict[int, I32] = {}
        self.returning: dict[int, I32] = {}

    def complete(self) -> list[Completion]:
        """Decodes until every job is settled."""
        self._schedule()
        while len(self.request_B):
            self._run()
            self._settle()
            ended = self._ended()
            if len(ended):
                self._postprocess(ended)
            if len(ended) or self.returning:
                self._schedule()
        return [self.done[n] for n in range(len(self.requests))]

    def _admitted(self, free: int) -> int:
        if self.returning:
            return 0
        whole = min(free, len(self.waiting)) // self.rollouts * self.rollouts
        if not whole and not len(self.request_B):
            raise Misconfigured(
                f"the keys and values of a job's {self.rollouts} rollouts exceed this machine's memory: choose a run "
                "with smaller jobs"
            )
        return whole

    def _schedule(self) -> None:
        """Lets rows return to slots, admits waiting jobs, and closes gaps."""
        super()._schedule()
        if self.returning:
            returning, self.returning = self.returning, {}
            self.slots.reserve(len(self.request_B) + len(returning), max(self.totals))
            self.sampler.reserve(self.slots.rows)
            self._return(returning)

    def _place(self, numbers: list[int]) -> None:
        super()._place(numbers)
        self.unsettled += sorted({number // self.rollouts for number in numbers})

    def _return(self, returning: Mapping[int, I32]) -> None:
        """Puts rows behind the last slot in use, with the keys and values that their job's windows wrote."""
        numbers = list(returning)
        slots = np.arange(len(self.request_B), len(self.request_B) + len(numbers))
        self.request_B = np.concatenate([self.request_B, numbers])
        self.sampler.place(slots, [self.requests[number] for number in numbers])
        lengths = [len(self.requests[number].prompt_tokens) - 1 + len(returning[number]) for number in numbers]
        self.slots.start(slots, np.array(lengths, dtype=np.int64))
        for slot, number, length in zip(slots.tolist(), numbers, lengths, strict=True):
            job, rollout = divmod(number, self.rollouts)
            self.slots.copy(slot, self.jobs[job].windows.states.of(rollout, length))
            self.sampler.resume(slot, returning[number])

    def _settle(self) -> None:
        """Runs every window that has been guessed."""
        slots = {int(request): slot for slot, request in enumerate(self.request_B) if request >= 0}
        steps_B, running_B = self.sampler.steps_R.cpu().numpy(), self.sampler.running_R.cpu().numpy()
        for number in list(self.unsettled):
            job, requests = self.jobs[number], range(number * self.rollouts, (number + 1) * self.rollouts)
            while self._guessed(job, requests, slots, steps_B, running_B):
                self._check_cancelled()
                outputs = [self._output(request, slots) for request in requests]
                running = any(request in slots and running_B[slots[request]] for request in requests)
                wrong = job.settle(outputs, running, self.head_input.head, self.head_dtype)
                for rollout, (step, token) in wrong.items():
                    self._take_back(requests[rollout], np.append(outputs[rollout][:step], np.int32(token)), slots)
                if wrong:
                    steps_B, running_B = self.sampler.steps_R.cpu().numpy(), self.sampler.running_R.cpu().numpy()
                if job.settled:
                    self.unsettled.remove(number)
                    for rollout, request in enumerate(requests):
                        self.parked.pop(request, None)
                        self.done[request] = job.completion(rollout, outputs[rollout])
                    job.release()

    def _guessed(
        self,
        job: _SettlingJob,
        requests: range,
        slots: Mapping[int, int],
        steps_B: I64,
        running_B: NDArray[np.bool_],
    ) -> bool:
        """Returns whether every row of a job has ended or has a token behind the present window."""
        if job.settled or any(request in self.returning for request in requests):
            return False
        return all(
            request in self.parked or not running_B[slots[request]] or len(prompt) + steps_B[slots[request]] > job.end
            for request, prompt in zip(requests, job.prompts, strict=True)
        )

    def _output(self, request: int, slots: Mapping[int, int]) -> I32:
        if request in self.parked:
            return self.parked[request]
        return self.sampler.output(slots[request])

    def _take_back(self, request: int, tokens: I32, slots: Mapping[int, int]) -> None:
        """Lets a row go on after ``tokens``, wherever it is."""
        if request in slots:
            slot = slots[request]
            self.sampler.resume(slot, tokens)
            self.slots.at_B[slot] = len(self.requests[request].prompt_tokens) - 1 + len(tokens)
            return
        of = self.requests[request]
        if int(tokens[-1]) in of.stop_tokens or len(tokens) == of.max_tokens:
            self.parked[request] = tokens
        else:
            del self.parked[request]
            self.returning[request] = tokens

    def _postprocess(self, ended: I64) -> None:
        """Parks the rows in the slots ``ended``, unless their job is settled, and marks the slots as free."""
        for slot in ended.tolist():
            request = int(self.request_B[slot])
            if request not in self.done:
                self.parked[request] = self.sampler.output(slot)
        self.request_B[ended] = -1
