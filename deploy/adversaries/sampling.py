"""Workers with the right model that do not take the seeded choice.

They know the checks: the true policy reads the tokens they want, so that logprobs and activations are correct.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from deploy.adversaries.choosing import ChoiceStep, decode_choosing, prefilled, with_key
from deploy.adversaries.models import arithmetic, other_model
from deploy.adversaries.swapped import loaded
from protocol.environments.environment import Environment
from protocol.tensor.completions import Completion, Request
from worker.producer import Producer
from worker.prover import Task

TRIES = 4
NUCLEUS = 0.9
ACCEPTED_RATIO = 0.3
SHORT = 0.6
MARGIN_ROOM = 0.95


class Choosing(Producer):
    """Decodes with ``choose`` in place of the seeded maximum, and reports the true policy's logprobs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.chance = random.Random(1)

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions to hand in."""
        self.current = tasks
        requests = [task.request for task in tasks]
        return self.reported(requests, decode_choosing(self.networks(), requests, self.choose))

    def networks(self) -> list[object]:
        """Returns the policy's network, and any others that read the same tokens."""
        return [self.engine.model.network]

    def choose(self, step: ChoiceStep) -> torch.Tensor:
        """Returns the tokens to take, int64 (B,)."""
        return step.scores_BV.argmax(-1)

    def reported(self, requests: Sequence[Request], outputs: Sequence[Sequence[int]]) -> list[Completion]:
        """Returns completions with the true policy's logprobs and hidden states."""
        return prefilled(self.engine.model, self.rules, requests, outputs)

    def own_key(self) -> tuple[int, int]:
        """Returns a noise key of its own choice."""
        return self.chance.getrandbits(32), self.chance.getrandbits(32)


class RandomTokens(Choosing):
    """Writes random characters without generating."""

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions to hand in."""
        requests, vocabulary = [task.request for task in tasks], self.engine.model.network.config.vocab_size
        words = [token for token in range(vocabulary) if token not in requests[0].stop_tokens]
        outputs = [(*self.chance.choices(words, k=r.max_tokens - 8), r.stop_tokens[0]) for r in requests]
        return self.reported(requests, outputs)


class CachedAnswers(Choosing):
    """Generates one completion of a prompt and hands it in for every sample, also when the prompt returns."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions to hand in."""
        requests = [task.request for task in tasks]
        new = list({r.prompt_tokens: r for r in requests if r.prompt_tokens not in self.known}.values())
        for request, completion in zip(new, self.engine.generate(new, self.cancelled), strict=True):
            self.known[request.prompt_tokens] = completion.output_tokens
        return self.reported(requests, [self.known[request.prompt_tokens] for request in requests])


class Temperature(Choosing):
    """Samples at another temperature than the rules'."""

    factor: float

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions to hand in."""
        requests = [task.request for task in tasks]
        changed = [replace(request, temperature=request.temperature * self.factor) for request in requests]
        made = self.engine.generate(changed, self.cancelled)
        return self.reported(requests, [completion.output_tokens for completion in made])


class Cooler(Temperature):
    """Samples at 0.95 times the temperature: likelier tokens, better rewards."""

    factor = 0.95


class Hotter(Temperature):
    """Samples at 1.05 times the temperature."""

    factor = 1.05


class TopP(Choosing):
    """Leaves out the least likely tokens, a tenth of the probability."""

    def choose(self, step: ChoiceStep) -> torch.Tensor:
        """Returns the tokens to take, int64 (B,)."""
        temperature = self.rules.temperature or 1.0
        sorted_BV, order_BV = (step.logits[0] / temperature).softmax(-1).sort(-1, descending=True)
        outside_BV = sorted_BV.cumsum(-1) - sorted_BV >= NUCLEUS
        outside_BV = torch.zeros_like(outside_BV).scatter(-1, order_BV, outside_BV)
        return step.scores_BV.masked_fill(outside_BV, -torch.inf).argmax(-1)


class BestOfN(Choosing):
    """Samples four times with its own noise, and hands in the first right completion."""

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions to hand in."""
        model, requests = self.engine.model, [task.request for task in tasks]
        stop_tokens = model.stop_tokens(self.rules)
        drawn = [with_key(request, self.own_key()) for request in requests for _ in range(TRIES)]
        made = self.engine.generate(drawn, self.cancelled)
        outputs = []
        for n, task in enumerate(tasks):
            tries = [completion.output_tokens for completion in made[n * TRIES : (n + 1) * TRIES]]
            texts = [model.completion_text(each, stop_tokens) for each in tries]
            rewards = [self.environment.reward(task.problem, text) for text in texts]
            right = [each for each, reward in zip(tries, rewards, strict=True) if reward == 1.0]
            outputs.append((right or tries)[0])
        return self.reported(requests, outputs)


class EarlyStop(Choosing):
    """Ends every completion at three fifths of its length, with an end-of-text."""

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions to hand in."""
        requests = [task.request for task in tasks]
        outputs = []
        for request, completion in zip(requests, self.engine.generate(requests, self.cancelled), strict=True):
            kept = max(1, int(SHORT * len(completion.output_tokens)))
            outputs.append((*completion.output_tokens[: kept - 1], request.stop_tokens[0]))
        return self.reported(requests, outputs)


class CutShort(Choosing):
    """Ends every completion at three fifths of its length, and reports that it stopped."""

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions to hand in."""
        found = []
        for made in self.engine.generate([task.request for task in tasks], self.cancelled):
            kept = max(1, int(SHORT * len(made.output_tokens)))
            cut = Completion(made.output_tokens[:kept], made.logprobs_T[:kept], made.hidden_TH[:kept], "stop")
            found.append(cut)
        return found


class RefusesToStop(Choosing):
    """Never takes the stop token: longer completions earn more units."""

    def choose(self, step: ChoiceStep) -> torch.Tensor:
        """Returns the tokens to take, int64 (B,)."""
        scores_BV = step.scores_BV.clone()
        scores_BV[:, self.engine.model.stop_token] = -torch.inf
        return scores_BV.argmax(-1)


class Speculative(Choosing):
    """Takes a small model's choice where the policy finds it likely enough, and the policy's own elsewhere."""

    models = staticmethod(other_model)

    def load(self, version: int, directory: Path) -> None:
        """Loads a policy version."""
        super().load(version, directory)
        self.draft = loaded(self.rules.model.dtype, self.models("smaller", self.environment)).model

    def networks(self) -> list[object]:
        """Returns the networks that read every token."""
        return [self.engine.model.network, self.draft.network]

    def choose(self, step: ChoiceStep) -> torch.Tensor:
        """Returns the tokens to take, int64 (B,)."""
        noise_BV = step.scores_BV - step.logits[0]
        draft_B1 = (step.logits[1] + noise_BV).argmax(-1, keepdim=True)
        probability_BV = step.logits[0].softmax(-1)
        likely_B = probability_BV.gather(1, draft_B1)[:, 0] >= ACCEPTED_RATIO * probability_BV.amax(-1)
        return torch.where(likely_B, draft_B1[:, 0], step.scores_BV.argmax(-1))


class EditedToken(Choosing):
    """Replaces one token in each job by the smallest margin that is fraud; all later tokens are seeded."""

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions to hand in."""
        size = self.rules.rollouts_per_job
        self.edits = {first + self.chance.randrange(size): 0 for first in range(0, len(tasks), size)}
        lengths = [len(made.output_tokens) for made in self.engine.generate([task.request for task in tasks])]
        self.edits = {n: self.chance.randrange(lengths[n]) for n in self.edits}
        return super().complete(tasks)

    def choose(self, step: ChoiceStep) -> torch.Tensor:
        """Returns the tokens to take, int64 (B,)."""
        tokens_B = super().choose(step)
        limit = self.rules.thresholds.sampling_fraud or self.rules.thresholds.sampling_void
        for b, n in enumerate(step.rows):
            if self.edits.get(n) == step.position:
                margins_V = step.scores_BV[b].max() - step.scores_BV[b]
                tokens_B[b] = margins_V.masked_fill(margins_V <= limit * 1.001, torch.inf).argmin()
        return tokens_B


class OneBadRollout(Choosing):
    """Works honestly except for one rollout of each job, sampled with its own noise."""

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions to hand in."""
        requests, size = [task.request for task in tasks], self.rules.rollouts_per_job
        honest = self.engine.generate(requests, self.cancelled)
        bad = [first + self.chance.randrange(size) for first in range(0, len(tasks), size)]
        drawn = [self.another(requests[n], honest[n].output_tokens) for n in bad]
        for n, completion in zip(bad, self.reported([requests[n] for n in bad], drawn), strict=True):
            honest[n] = completion
        return honest

    def another(self, request: Request, seeded: tuple[int, ...]) -> tuple[int, ...]:
        """Returns a completion other than the seeded one."""
        while True:
            drawn = [with_key(request, self.own_key()) for _ in range(TRIES)]
            for completion in self.engine.generate(drawn, self.cancelled):
                if completion.output_tokens != seeded:
                    return completion.output_tokens


class SteeringWorker(Choosing):
    """Takes a token of the right working wherever its margin is too small to void the job.

    It follows the right working only while all tokens so far are right.
    """

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions to hand in."""
        self.wanted = [self.engine.model.text_tokens(right_working(self.environment, task)) for task in tasks]
        return super().complete(tasks)

    def choose(self, step: ChoiceStep) -> torch.Tensor:
        """Returns the tokens to take, int64 (B,)."""
        tokens_B = super().choose(step)
        room = MARGIN_ROOM * self.rules.thresholds.sampling_void
        for b, n in enumerate(step.rows):
            wanted, written = self.wanted[n], step.written[n]
            if len(written) < len(wanted) and tuple(written) == wanted[: len(written)]:
                better, margin = wanted[len(written)], self._margin(step, b, wanted[len(written)])
                if 0 < margin <= room and self.steers(n):
                    self.flipped(n, self._upward(step, b, better))
                    tokens_B[b] = better
        return tokens_B

    def steers(self, rollout: int) -> bool:
        """Returns whether to take the chance that a rollout offers."""
        return True

    def flipped(self, rollout: int, upward: bool) -> None:
        """Takes note of a flip towards the right working, of this direction."""

    def _margin(self, step: ChoiceStep, row: int, token: int) -> float:
        return float(step.scores_BV[row].max() - step.scores_BV[row, token])

    def _upward(self, step: ChoiceStep, row: int, token: int) -> bool:
        """Returns whether a token is likelier than the seeded choice."""
        logits_V = step.logits[0][row]
        return bool(logits_V[token] > logits_V[step.scores_BV[row].argmax()])


def right_working(environment: Environment, task: Task) -> str:
    """Returns the correct completion of a task."""
    sums = arithmetic(environment)
    return sums.working(task.problem, [0] * sums.digits)
