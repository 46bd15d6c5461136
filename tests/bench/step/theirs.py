"""A step of TRL's GRPOTrainer over given rows, run in an environment that has the package.

python -m tests.bench.step.theirs MODEL ROWS RUNS    prints seconds of processor and wall time, and the peak in MiB

ROWS is a JSON file: prompt, completions and advantages of one group. A step is the reference's logprobs, loss and
gradients, of all rows in one batch; the optimizer is left out, as it is the same.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from tests.bench.step.measuring import Peak, timed


def trainer_of(model: str, folder: str, rows: int) -> Any:
    """Returns a trainer with a reference, without checkpointed activations, on the processor."""
    settings = GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        beta=0.001,
        delta=4.0,
        entropy_coef=1e-4,
        loss_type="bnpo",
        gradient_checkpointing=False,
        per_device_train_batch_size=rows,
        num_generations=rows,
        report_to=[],
        disable_tqdm=True,
    )
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    trainer = GRPOTrainer(
        model=network,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=settings,
        train_dataset=Dataset.from_list([{"prompt": "1"}]),
        processing_class=AutoTokenizer.from_pretrained(model),
    )
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return trainer


def inputs_of(rows: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Returns the trainer's inputs: completions padded to the longest."""
    completions = rows["completions"]
    width = max(map(len, completions))
    padded = [[*each, *[0] * (width - len(each))] for each in completions]
    masks = [[*[1] * len(each), *[0] * (width - len(each))] for each in completions]
    prompt_ids = torch.tensor([rows["prompt"]] * len(completions))
    return {
        "prompt_ids": prompt_ids,
        "prompt_mask": torch.ones_like(prompt_ids),
        "completion_ids": torch.tensor(padded),
        "completion_mask": torch.tensor(masks),
        "advantages": torch.tensor(rows["advantages"]),
        "num_items_in_batch": torch.tensor(sum(map(len, completions))),
    }


def step(trainer: Any, inputs: dict[str, torch.Tensor]) -> None:
    """Makes the gradients of one step."""
    trainer.model.zero_grad()
    tokens = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    kept = inputs["completion_ids"].shape[1]
    with torch.no_grad():
        reference, *_ = trainer._get_per_token_logps_and_entropies(trainer.ref_model, tokens, mask, kept)
    given = inputs | {"ref_per_token_logps": reference}
    loss = trainer.compute_loss(trainer.model, given, num_items_in_batch=given["num_items_in_batch"])
    loss.backward()


def main(model: str, rows: str, runs: str) -> None:
    """Measures steps, the first of which is not counted."""
    torch.set_num_threads(2)
    inputs = inputs_of(json.loads(Path(rows).read_text()))
    with tempfile.TemporaryDirectory() as folder, Peak() as peak:
        trainer = trainer_of(model, folder, len(inputs["advantages"]))
        taken = timed(lambda: step(trainer, inputs), int(runs))
    print(json.dumps(taken | {"peak": peak.added}))


if __name__ == "__main__":
    main(*sys.argv[1:])
