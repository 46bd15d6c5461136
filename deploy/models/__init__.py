"""Pretrained models that package indexes carry, as Hugging Face directories."""
