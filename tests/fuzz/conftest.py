"""The validators' tiny policy and its judge."""

from tests.validator.conftest import court, model_directory

__all__ = ["court", "model_directory"]
