"""From a run to a pipeline: what every warp of one cluster did, in its order, for `ts.simulate` to prove."""
