"""Evidence per node across settled rounds: the sequential test and the bundles it reads."""
