"""Executing a program on paper: the plain reference and its compiled twin."""
