"""Costs of the operations of convolutional networks. Images are square: `size` is a side in pixels."""

from penstock.profile.analytic.operations import FP32_BYTES, ID_BYTES, Kernel, Operation, accumulate


def tensor_bytes(micro_batch_size: int, channels: int, size: int, element_bytes: int) -> int:
    """Return the bytes of a feature map for a micro-batch."""
    return micro_batch_size * channels * size * size * element_bytes


def convolution(
    name: str,
    micro_batch_size: int,
    channels: tuple[int, int],
    kernel: int,
    sizes: tuple[int, int],
    *,
    bias: bool,
    element_bytes: int,
    keeps_input: bool = True,
    takes_data: bool = False,
) -> Operation:
    """A convolution from `channels[0]` maps of side `sizes[0]` to `channels[1]` of `sizes[1]`, as a matrix product.

    `keeps_input` is False where another operation saves the same input; with `takes_data` the input has no gradient.
    """
    (inputs, outputs), (input_size, output_size) = channels, sizes
    return _filter(
        name,
        (inputs * outputs * kernel * kernel, outputs if bias else 0),
        micro_batch_size * output_size * output_size,
        tensor_bytes(micro_batch_size, inputs, input_size, element_bytes),
        tensor_bytes(micro_batch_size, outputs, output_size, element_bytes),
        element_bytes=element_bytes,
        keeps_input=keeps_input,
        takes_data=takes_data,
    )


def convolution_1d(
    name: str,
    micro_batch_size: int,
    channels: tuple[int, int],
    kernel: int,
    lengths: tuple[int, int],
    *,
    element_bytes: int,
    takes_data: bool = False,
) -> Operation:
    """A convolution with bias over a sequence, from `lengths[0]` to `lengths[1]` positions."""
    (inputs, outputs), (input_length, output_length) = channels, lengths
    return _filter(
        name,
        (inputs * outputs * kernel, outputs),
        micro_batch_size * output_length,
        micro_batch_size * input_length * inputs * element_bytes,
        micro_batch_size * output_length * outputs * element_bytes,
        element_bytes=element_bytes,
        keeps_input=True,
        takes_data=takes_data,
    )


def _filter(
    name: str,
    parameters: tuple[int, int],
    positions: int,
    input_bytes: int,
    output_bytes: int,
    *,
    element_bytes: int,
    keeps_input: bool,
    takes_data: bool,
) -> Operation:
    """A weight and a bias that are applied at every position of the output."""
    weight, biases = parameters
    product = Kernel(input_bytes + output_bytes + weight * element_bytes, 2 * positions * weight)
    weight_grad: tuple[Kernel, ...] = (product, accumulate(weight, element_bytes))
    if biases:
        channel_sum = Kernel(output_bytes + biases * element_bytes)
        weight_grad = (*weight_grad, channel_sum, accumulate(biases, element_bytes))
    kept = input_bytes if keeps_input else 0
    return Operation(
        name=name,
        parameters=weight + biases,
        forward=(product,),
        input_grad=() if takes_data else (product,),
        weight_grad=weight_grad,
        saved_bytes=kept,
        pending_bytes=kept + output_bytes,
    )


def batch_norm(name: str, micro_batch_size: int, channels: int, size: int, *, element_bytes: int) -> Operation:
    """BatchNorm over a micro-batch: one pass for the statistics, one to apply them. It saves its input.

    The two sums that the input gradient needs are the weight gradients, so only those are pending until W.
    """
    map_bytes = tensor_bytes(micro_batch_size, channels, size, element_bytes)
    statistics_bytes = 2 * channels * FP32_BYTES
    return Operation(
        name=name,
        parameters=2 * channels,
        forward=(Kernel(map_bytes), Kernel(2 * map_bytes)),
        input_grad=(Kernel(2 * map_bytes), Kernel(3 * map_bytes)),
        weight_grad=(accumulate(channels, element_bytes),) * 2,
        saved_bytes=map_bytes + statistics_bytes,
        pending_bytes=statistics_bytes,
    )


def relu(name: str, map_bytes: int) -> Operation:
    """ReLU in place: the backward needs its output, which the next operation saves as its input."""
    return Operation(name=name, forward=(Kernel(2 * map_bytes),), input_grad=(Kernel(3 * map_bytes),))


def max_pool(
    name: str, micro_batch_size: int, channels: int, sizes: tuple[int, int], *, element_bytes: int
) -> Operation:
    """Max pooling: saves its input and, for every output, the index of the maximum as a 64-bit integer."""
    input_bytes = tensor_bytes(micro_batch_size, channels, sizes[0], element_bytes)
    output_bytes = tensor_bytes(micro_batch_size, channels, sizes[1], element_bytes)
    index_bytes = tensor_bytes(micro_batch_size, channels, sizes[1], ID_BYTES)
    kernel = Kernel(input_bytes + output_bytes + index_bytes)
    return Operation(name=name, forward=(kernel,), input_grad=(kernel,), saved_bytes=input_bytes + index_bytes)


def average_pool(name: str, micro_batch_size: int, channels: int, size: int, *, element_bytes: int) -> Operation:
    """The mean of every map; no tensor is saved."""
    kernel = Kernel(
        tensor_bytes(micro_batch_size, channels, size, element_bytes) + micro_batch_size * channels * element_bytes
    )
    return Operation(name=name, forward=(kernel,), input_grad=(kernel,))
