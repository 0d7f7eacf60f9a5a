"""Benchmark of models: each must profile, plan, train and agree with a single process as it is."""
