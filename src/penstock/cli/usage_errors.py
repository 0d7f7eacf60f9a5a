"""What is wrong with a command line, and what was probably meant."""

import re

import click

from penstock.names import ask_names, near_names

OTHER_NAMES = {
    "--rows": "--micro-batch-size",
    "--batch": "--global-batch-size",
    "--batch-size": "--global-batch-size",
    "--train-batch-size": "--global-batch-size",
    "--train-micro-batch-size-per-gpu": "--micro-batch-size",
    "--microbatches": "--num-microbatches",
    "--num-micro-batches": "--num-microbatches",
    "--chunks-per-batch": "--num-microbatches",
    "--stages": "--pipeline-depth",
    "--num-stages": "--pipeline-depth",
    "--pp": "--pipeline-depth",
    "--pipeline-model-parallel-size": "--pipeline-depth",
    "--pipeline-parallel-size": "--pipeline-depth",
    "--virtual-pipeline-model-parallel-size": "--chunks",
    "--num-virtual-stages-per-pipeline-rank": "--chunks",
    "--recompute-activations": "--recompute",
    "--recompute-granularity": "--recompute",
    "--seq-length": "--sequence",
    "--seq-len": "--sequence",
    "--dtype": "--precision",
    "--bf16": "--precision",
    "--fp16": "--precision",
    "--tf32": "--precision",
    "--train-iters": "--steps",
    "--iterations": "--steps",
    "--clip-grad": "--clip-grad-norm",
    "--max-grad-norm": "--clip-grad-norm",
    "--learning-rate": "--lr",
    "--save": "--checkpoint",
    "--load": "--checkpoint",
    "--save-interval": "--save-every",
    "--distributed-timeout-minutes": "--timeout",
    "--num-nodes": "--nnodes",
    "--num-gpus": "--devices",
    "--world-size": "--devices",
    "--master-addr": "--rdzv-endpoint",
    "--master-port": "--rdzv-endpoint",
    "--also-alone": "--also-single-process",
    "--no-rivals": "--no-baselines",
    "--out": "--output",
}
"""Former names of options, and those of Megatron, DeepSpeed and torchrun."""

RANKS = ("--nproc-per-node", "--gpus-per-node")
_RANGE = re.compile(r"is not in the range (?:(?P<low>\S+?)(?P<above><=?))?x(?:(?P<below><=?|>=?)(?P<high>\S+?))?\.")


def explain_usage(error: click.ClickException) -> str:
    """The message of an error of the command line, with a suggestion for an unknown option.

    Args:
        error: The error that click raised.
    """
    if isinstance(error, click.NoSuchOption):
        hint = _suggest_option(error.option_name, error.ctx)
        return f"no such option: {error.option_name}. {hint}".rstrip()
    return simplify(error.format_message())


def _suggest_option(name: str, ctx: click.Context | None) -> str:
    """The option that was probably meant by an unknown one."""
    wrong = name.lower().replace("_", "-")
    if wrong in RANKS:
        return "The plan states the number of ranks."
    options = [] if ctx is None else ctx.command.get_params(ctx)
    known = [text for option in options for text in option.opts if text.startswith("--")]
    if wrong in known:
        return ask_names([wrong])
    if OTHER_NAMES.get(wrong) in known:
        return ask_names([OTHER_NAMES[wrong]])
    return ask_names(near_names(wrong, known, most=2))


def simplify(text: str) -> str:
    """The message of click for a bad value, without its type names, and with a range in words.

    >>> simplify("0 is not in the range 1<=x<=16."), simplify("0 is not in the range x>=1.")
    ('0 is out of range: use 1 to 16.', '0 is out of range: use at least 1.')
    """
    for kind, name in (("float", "a number"), ("integer", "an integer")):
        text = re.sub(rf"is not a valid {kind}(?: range)?\.", f"is not {name}.", text)
    return _RANGE.sub(lambda match: f"is out of range: use {_range_text(match)}.", text)


def _range_text(match: re.Match[str]) -> str:
    low, above, below, high = match.group("low", "above", "below", "high")
    if low is not None and high is not None:
        return f"{'above ' if above == '<' else ''}{low} {'to less than' if below == '<' else 'to'} {high}"
    limits = {">=": "at least", ">": "more than", "<=": "at most", "<": "less than"}
    if high is not None:
        return f"{limits[below]} {high}"
    return f"{limits['>=' if above == '<=' else '>']} {low}"
