"""Tests of penstock.runtime.precision."""
