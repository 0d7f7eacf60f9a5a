"""Decisions that all ranks take together, and the tree along which their results travel."""

from penstock.dist.consensus.consensus import CONSENSUS_TAG, Consensus, Failed, PeerExchange
from penstock.dist.consensus.rank_tree import FAN_OUT, RankTree, tree_from

__all__ = ["CONSENSUS_TAG", "FAN_OUT", "Consensus", "Failed", "PeerExchange", "RankTree", "tree_from"]
