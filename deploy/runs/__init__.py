"""Run files: rules, terms and recipe of a run, with the built-in run and its calibration."""
