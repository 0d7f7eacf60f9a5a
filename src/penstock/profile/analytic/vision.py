"""The layers of convolutional networks, as in torchvision: VGG, and ResNet with bottleneck blocks."""

import msgspec

from penstock.profile.analytic.convolution import average_pool, batch_norm, convolution, max_pool, relu, tensor_bytes
from penstock.profile.analytic.model_parts import Batch, Design, Layer, Part
from penstock.profile.analytic.operations import Operation, cross_entropy, linear, residual

IMAGE_SIZE = 224
IMAGE_CHANNELS = 3
CLASSES = 1000


class VggConfig(msgspec.Struct, frozen=True, kw_only=True):
    """VGG: the number of 3x3 convolutions before the pool, for each of its five groups."""

    convolutions: tuple[int, int, int, int, int]


class ResnetConfig(msgspec.Struct, frozen=True, kw_only=True):
    """ResNet: the number of bottleneck blocks, for each of its four groups."""

    blocks: tuple[int, int, int, int]


def vgg_design(config: VggConfig, batch: Batch) -> Design:
    """VGG: every convolution and linear module is a layer; ReLU and pool belong to the layer before them."""
    parts: dict[str, Part] = {}
    inputs, size = IMAGE_CHANNELS, IMAGE_SIZE
    for stage, (count, outputs) in enumerate(zip(config.convolutions, (64, 128, 256, 512, 512), strict=True), 1):
        for number in range(1, count + 1):
            parts[f"conv{stage}_{number}"] = _vgg_convolution(
                batch, inputs, outputs, size, takes_data=not parts, pools=number == count
            )
            inputs = outputs
        size //= 2
    features = inputs * size * size
    parts["fc6"] = _vgg_linear(batch, features, 4096)
    parts["fc7"] = _vgg_linear(batch, 4096, 4096)
    parts["fc8"] = Part(operations=_classifier(batch, 4096), cut_bytes=0)
    return _each_once(parts, batch)


def resnet_design(config: ResnetConfig, batch: Batch) -> Design:
    """ResNet (stride in the 3x3): the stem, one layer for each bottleneck block, and pool, head and loss."""
    parts = {"stem": _stem(batch)}
    chain = [Layer(name="stem", part="stem")]
    inputs, size = 64, IMAGE_SIZE // 4
    for stage, count in enumerate(config.blocks):
        width = 64 << stage
        sizes = (size, size if stage == 0 else size // 2)
        parts[f"layer{stage + 1}.first"] = _bottleneck(batch, inputs, width, sizes)
        inputs, size = 4 * width, sizes[1]
        parts[f"layer{stage + 1}.other"] = _bottleneck(batch, inputs, width, (size, size))
        chain += [
            Layer(name=f"layer{stage + 1}.{block}", part=f"layer{stage + 1}.{'other' if block else 'first'}")
            for block in range(count)
        ]
    pool = average_pool("pool", batch.micro_batch_size, inputs, size, element_bytes=batch.element_bytes)
    parts["head"] = Part(operations=(pool, *_classifier(batch, inputs)), cut_bytes=0)
    chain.append(Layer(name="head", part="head"))
    return Design(parts=parts, chain=tuple(chain), input_bytes=_image_bytes(batch))


def _vgg_convolution(batch: Batch, inputs: int, outputs: int, size: int, *, takes_data: bool, pools: bool) -> Part:
    element_bytes = batch.element_bytes
    output_bytes = tensor_bytes(batch.micro_batch_size, outputs, size, element_bytes)
    operations: tuple[Operation, ...] = (
        convolution(
            "conv",
            batch.micro_batch_size,
            (inputs, outputs),
            3,
            (size, size),
            bias=True,
            element_bytes=element_bytes,
            takes_data=takes_data,
        ),
        relu("relu", output_bytes),
    )
    if pools:
        pool = max_pool("pool", batch.micro_batch_size, outputs, (size, size // 2), element_bytes=element_bytes)
        operations, output_bytes = (*operations, pool), output_bytes // 4
    return Part(operations=operations, cut_bytes=output_bytes, takes_data=takes_data)


def _vgg_linear(batch: Batch, inputs: int, outputs: int) -> Part:
    output_bytes = batch.micro_batch_size * outputs * batch.element_bytes
    fc = linear("fc", batch.micro_batch_size, inputs, outputs, bias=True, element_bytes=batch.element_bytes)
    return Part(operations=(fc, relu("relu", output_bytes)), cut_bytes=output_bytes)


def _stem(batch: Batch) -> Part:
    element_bytes, size = batch.element_bytes, IMAGE_SIZE // 2
    return Part(
        operations=(
            convolution(
                "conv",
                batch.micro_batch_size,
                (IMAGE_CHANNELS, 64),
                7,
                (IMAGE_SIZE, size),
                bias=False,
                element_bytes=element_bytes,
                takes_data=True,
            ),
            batch_norm("norm", batch.micro_batch_size, 64, size, element_bytes=element_bytes),
            relu("relu", tensor_bytes(batch.micro_batch_size, 64, size, element_bytes)),
            max_pool("pool", batch.micro_batch_size, 64, (size, size // 2), element_bytes=element_bytes),
        ),
        cut_bytes=tensor_bytes(batch.micro_batch_size, 64, size // 2, element_bytes),
        takes_data=True,
    )


def _bottleneck(batch: Batch, inputs: int, width: int, sizes: tuple[int, int]) -> Part:
    micro_batch_size, element_bytes, outputs = batch.micro_batch_size, batch.element_bytes, 4 * width
    before, after = sizes

    def normed(
        name: str, channels: tuple[int, int], kernel: int, sides: tuple[int, int], *, keeps_input: bool = True
    ) -> tuple[Operation, Operation]:
        return (
            convolution(
                name,
                micro_batch_size,
                channels,
                kernel,
                sides,
                bias=False,
                element_bytes=element_bytes,
                keeps_input=keeps_input,
            ),
            batch_norm(f"{name} norm", micro_batch_size, channels[1], sides[1], element_bytes=element_bytes),
        )

    output_bytes = tensor_bytes(micro_batch_size, outputs, after, element_bytes)
    # Where the shape changes, the shortcut is a convolution of the same input, which the first convolution saves.
    shortcut = (
        normed("shortcut", (inputs, outputs), 1, (before, after), keeps_input=False)
        if inputs != outputs or before != after
        else ()
    )
    return Part(
        operations=(
            *normed("reduce", (inputs, width), 1, (before, before)),
            relu("reduce relu", tensor_bytes(micro_batch_size, width, before, element_bytes)),
            *normed("spatial", (width, width), 3, (before, after)),
            relu("spatial relu", tensor_bytes(micro_batch_size, width, after, element_bytes)),
            *normed("expand", (width, outputs), 1, (after, after)),
            *shortcut,
            residual("residual", output_bytes),
            relu("relu", output_bytes),
        ),
        cut_bytes=output_bytes,
    )


def _classifier(batch: Batch, inputs: int) -> tuple[Operation, ...]:
    size = batch.element_bytes
    return (
        linear("fc", batch.micro_batch_size, inputs, CLASSES, bias=True, element_bytes=size),
        cross_entropy("loss", batch.micro_batch_size, CLASSES, element_bytes=size),
    )


def _each_once(parts: dict[str, Part], batch: Batch) -> Design:
    chain = tuple(Layer(name=name, part=name) for name in parts)
    return Design(parts=parts, chain=chain, input_bytes=_image_bytes(batch))


def _image_bytes(batch: Batch) -> int:
    return tensor_bytes(batch.micro_batch_size, IMAGE_CHANNELS, IMAGE_SIZE, batch.element_bytes)
