"""The model of the self-test with a layer whose host waits for the whole device, as an allocator does at times."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from penstock.device import synchronize
from penstock.launch.selftest.models import transformer
from penstock.launch.selftest.models.transformer import make_batches

__all__ = ["make_batches", "make_model"]


class WaitingLayer(nn.TransformerEncoderLayer):
    """A layer that waits for the device in its forward."""

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Wait, then apply the layer."""
        synchronize(src.device)
        return super().forward(src, src_mask, src_key_padding_mask, is_causal)


class WaitingTransformer(transformer.Transformer):
    """The transformer with waiting layers."""

    def make_layer(self) -> nn.Module:
        """Make a layer."""
        return WaitingLayer(
            transformer.WIDTH,
            transformer.NUM_HEADS,
            4 * transformer.WIDTH,
            dropout=0.1,
            batch_first=True,
            norm_first=True,
        )


def make_model() -> tuple[nn.Module, Tensor, Callable[..., Tensor], Tensor]:
    """Return the model, the inputs of one micro-batch, the loss and the targets."""
    _, inputs, loss, targets = transformer.make_model()
    torch.manual_seed(0)
    return WaitingTransformer(), inputs, loss, targets
