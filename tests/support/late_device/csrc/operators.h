// Runs operators of ATen on the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace late {

// The kernel of every operator that has a CPU kernel.
void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// Changes the sizes of a device tensor; the storage grows if it is too small.
void resize_tensor(const at::Tensor& tensor, at::IntArrayRef sizes);

// A device tensor with the values of a CPU tensor that nobody else changes.
at::Tensor upload(const at::Tensor& host);

// Registers `run_boxed` for every operator that has a CPU kernel. Returns how many there are.
size_t register_operators();

}  // namespace late
