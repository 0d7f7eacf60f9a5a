"""The loss of a batch from those of its parts: the right weights, sums and counts, and a trial of both."""

from penstock.runtime.loss.batch_loss import BatchLoss
from penstock.runtime.loss.rank_trials import RankTrials
from penstock.runtime.loss.reduction import SUMS, Reduction
from penstock.runtime.loss.sum_grads import SumGrads
from penstock.runtime.loss.terms import LossTerms, make_compute_loss, sum_scale

__all__ = ["SUMS", "BatchLoss", "LossTerms", "RankTrials", "Reduction", "SumGrads", "make_compute_loss", "sum_scale"]
