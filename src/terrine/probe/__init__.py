"""A linear model on public features, learned from private rows by noisy sums: one person is what it protects."""

from __future__ import annotations

from terrine.measured import Measured
from terrine.probe.fit import fit_probe
from terrine.probe.model import Probe
from terrine.probe.rehearsal import rehearse_probe
from terrine.probe.settings import ProbeSettings, components_by_rule, public_scale
from terrine.probe.sums import ProbeRows, gradient_sum

__all__ = [
    "Measured",
    "Probe",
    "ProbeRows",
    "ProbeSettings",
    "components_by_rule",
    "fit_probe",
    "gradient_sum",
    "public_scale",
    "rehearse_probe",
]
