"""Master weights: fp32 copies of the parameters, which the optimizer steps.

The network computes with their rounding to the run's number format, which is also what is published. A step of 3e-7 is
far below half a unit in the last place of most bf16 weights: taken on these, it would leave them where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch


class Masters:
    """The masters of a network's parameters. A parameter that is fp32 is its own master."""

    def __init__(self, network: torch.nn.Module) -> None:
        self._pairs = {
            name: (parameter, parameter if parameter.dtype == torch.float32 else _copy(parameter))
            for name, parameter in network.named_parameters()
        }

    def parameters(self) -> list[torch.nn.Parameter]:
        """Returns the masters, in the order of the network's parameters."""
        return [master for _, master in self._pairs.values()]

    def pairs(self) -> list[tuple[torch.nn.Parameter, torch.nn.Parameter]]:
        """Returns each of the network's parameters with its master."""
        return list(self._pairs.values())

    def gather(self) -> None:
        """Adds the gradients of a backward pass to the masters', in fp32, and clears the network's."""
        for parameter, master in self._copied():
            if parameter.grad is None:
                continue
            gradient = parameter.grad.float()
            master.grad = gradient if master.grad is None else master.grad.add_(gradient)
            parameter.grad = None

    @torch.no_grad()
    def scatter(self) -> None:
        """Rounds the masters to the network's parameters."""
        for parameter, master in self._copied():
            parameter.copy_(master)

    @torch.no_grad()
    def take(self) -> None:
        """Takes the network's parameters over: what their rounding had left out is gone."""
        for parameter, master in self._copied():
            master.copy_(parameter)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Returns the masters by name, not copied."""
        return {name: master.detach() for name, (_, master) in self._pairs.items()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restores the state returned by ``state_dict``, and the network's parameters with it."""
        for name, master in self.state_dict().items():
            master.copy_(state[name])
        self.scatter()

    def _copied(self) -> Iterator[tuple[torch.nn.Parameter, torch.nn.Parameter]]:
        return ((own, master) for own, master in self._pairs.values() if master is not own)


def _copy(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    return torch.nn.Parameter(parameter.detach().float())
