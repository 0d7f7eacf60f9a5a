// Operators of the device that are written by hand.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/Resize.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <torch/library.h>

#include <cstring>

#include "aliases.h"
#include "host_waits.h"
#include "operators.h"
#include "streams.h"

namespace late {

namespace {
const c10::DispatchKeySet kLate(c10::DispatchKey::PrivateUse1);

at::Tensor empty_memory_format(
    c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
    std::optional<at::Device> /*device*/, std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(c10::layout_or_default(layout) == at::kStrided, "late: only strided tensors");
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
  return at::detail::empty_generic(sizes, device_allocator(), kLate, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/, std::optional<bool> pin_memory) {
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
  return empty_like_meta(sizes, strides, c10::dtype_or_default(dtype));
}

void copy_on_device(const at::Tensor& source, const at::Tensor& target) {
  std::vector<BlockAccess> touched;
  add_access(touched, source, false);
  add_access(touched, target, true);
  Aliases aliases;
  enqueue(current_stream(), "copy", touched,
          [from = aliases.of(source), to = aliases.of(target)] { to.copy_(from); });
}

// Copies between host and device. They block the host unless the host's memory is pinned and `non_blocking` is set.
void copy_across(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  const bool to_device = is_late(target);
  const at::Tensor& host = to_device ? source : target;
  TORCH_CHECK(host.is_cpu(), "late: no copies between this device and ", host.device());
  std::vector<BlockAccess> touched;
  add_access(touched, to_device ? target : source, to_device);
  const bool is_pinned_host = host.numel() > 0 && is_pinned(host.storage().data());
  // Jobs own no device memory and no pinned memory, whose allocators may wait for jobs.
  Aliases aliases;
  const at::Tensor from = is_pinned_host || !to_device ? aliases.of(source) : source;
  const at::Tensor to = is_pinned_host || to_device ? aliases.of(target) : target;
  const std::string name = to_device ? "copy to device" : "copy to host";
  const StreamId stream = current_stream();
  enqueue(stream, name, touched, [from, to] { to.copy_(from); });
  if (is_pinned_host) note_pinned_use(host.storage().data(), stream);
  if (!non_blocking || !is_pinned_host) synchronize_stream(stream, "copy", name);
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  if (target.numel() == 0) return target;
  if (is_late(source) && is_late(target)) {
    copy_on_device(source, target);
  } else {
    copy_across(source.expand(target.sizes()), target, non_blocking);
  }
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  if (source.sizes() != target.sizes()) target.resize_(source.sizes());
  return copy_from(source, target, false);
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  resize_tensor(self, sizes);
  if (format.has_value()) self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_storage_offset(
    at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage_offset(self, std::move(source), 0, {count}, {1});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  return set_tensor(self, empty_like_meta({0}, {1}, self.scalar_type()));
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  device_allocator()->recordStream(self.storage().data_ptr(), stream);
}

// As the CPU computes it. Other devices use a fused kernel, which rounds differently.
at::Tensor dropout(const at::Tensor& input, double p, bool train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (p == 0 || !train || input.numel() == 0) return input;
  if (p == 1) return input.mul(at::zeros({}, input.options()));
  return input.mul(at::empty_like(input).bernoulli_(1 - p).div_(1 - p));
}

at::Tensor& dropout_in_place(at::Tensor& input, double p, bool train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (p == 0 || !train || input.numel() == 0) return input;
  if (p == 1) return input.mul_(at::zeros({}, input.options()));
  return input.mul_(at::empty_like(input).bernoulli_(1 - p).div_(1 - p));
}

// The kernel of attention that the CPU would use.
int64_t choose_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask,
    double dropout_p, bool is_causal, std::optional<double> scale, bool enable_gqa) {
  Aliases aliases;
  const auto on_cpu = [&](const at::Tensor& tensor) {
    at::Tensor alias = is_late(tensor) ? aliases.of(tensor) : tensor;
    return tensor.requires_grad() && is_late(tensor) ? alias.set_requires_grad(true) : alias;
  };
  const auto cpu_mask = mask.has_value() && mask->defined() ? std::optional(on_cpu(*mask)) : std::nullopt;
  return at::_fused_sdp_choice(
      on_cpu(query), on_cpu(key), on_cpu(value), cpu_mask, dropout_p, is_causal, scale, enable_gqa);
}
}  // namespace

void resize_tensor(const at::Tensor& tensor, at::IntArrayRef sizes) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  const c10::Storage& storage = tensor.storage();
  const size_t needed = (tensor.storage_offset() + tensor.numel()) * tensor.itemsize();
  if (tensor.numel() == 0 || storage.nbytes() >= needed) return;
  const at::Tensor larger = empty_like_meta({static_cast<int64_t>(needed)}, {1}, at::kByte);
  if (storage.nbytes() > 0) {
    at::Tensor old = empty_like_meta({0}, {1}, at::kByte);
    set_storage_offset(old, storage, 0, {static_cast<int64_t>(storage.nbytes())}, {1});
    copy_on_device(old, larger.narrow(0, 0, static_cast<int64_t>(storage.nbytes())));
  }
  auto* storage_impl = storage.unsafeGetStorageImpl();
  storage_impl->set_data_ptr(larger.storage().unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr()));
  storage_impl->set_nbytes(needed);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty_memory_format);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage", &set_storage);
  m.impl("set_.source_Storage_storage_offset", &set_storage_offset);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_", &set_nothing);
  m.impl("record_stream", &record_stream);
  m.impl("dropout", &dropout);
  m.impl("dropout_", &dropout_in_place);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("dropout", &dropout);
  m.impl("dropout_", &dropout_in_place);
}

// A copy resolves lazy conjugation and negation itself; torch's fallbacks for these copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
}

}  // namespace late

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &late::choose_attention)
}  // namespace at::native
