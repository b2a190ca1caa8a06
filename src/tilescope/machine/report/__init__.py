"""What a run reports: outcome, findings, costs."""
