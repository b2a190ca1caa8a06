"""Scopes: which threads a release can reach, and an acquire can learn from."""

from __future__ import annotations

CTA, CLUSTER, GPU = range(3)  # each includes the ones before it
SCOPE_OF_MODIFIER = {"cta": CTA, "cluster": CLUSTER, "gpu": GPU, "sys": GPU, "gl": GPU}
