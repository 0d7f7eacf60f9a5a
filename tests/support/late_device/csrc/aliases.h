// CPU tensors over the memory of device tensors, and bytes that a tensor occupies.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "streams.h"

namespace late {

inline bool is_late(const at::Tensor& tensor) { return tensor.defined() && tensor.is_privateuseone(); }

// Makes aliases for the arguments of one operator. Aliases do not own memory. Tensors that share a storage get aliases
// that share one, so that CPU kernels see overlaps.
class Aliases {
 public:
  at::Tensor of(const at::Tensor& tensor);

 private:
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> storages_;
};

// A device tensor over the storage of `base` with the sizes, strides, offset and dtype of `view`.
at::Tensor rebase(const at::Tensor& base, const at::Tensor& view);

// The bytes of its block that a device tensor occupies, from the first to the last element.
void add_access(std::vector<BlockAccess>& touched, const at::Tensor& tensor, bool is_write);

// An uninitialised device tensor on the current stream.
at::Tensor empty_like_meta(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype);

}  // namespace late
