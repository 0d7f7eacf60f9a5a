"""The model scripts of the self-test, for ranks."""
