#include "aliases.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/TensorImpl.h>

namespace late {

namespace {
at::Tensor over(c10::Storage storage, c10::DispatchKey key, const at::Tensor& meta) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), meta.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), meta.strides(), meta.storage_offset());
  tensor._set_conj(meta.is_conj());
  tensor._set_neg(meta.is_neg());
  return tensor;
}
}  // namespace

at::Tensor Aliases::of(const at::Tensor& tensor) {
  const c10::StorageImpl* key = tensor.storage().unsafeGetStorageImpl();
  for (const auto& [known, storage] : storages_) {
    if (known == key) return over(storage, c10::DispatchKey::CPU, tensor);
  }
  const auto& device_storage = tensor.storage();
  c10::Storage storage(
      c10::Storage::use_byte_size_t(), device_storage.nbytes(),
      c10::DataPtr(device_storage.data_ptr().get(), c10::Device(c10::DeviceType::CPU)), nullptr, false);
  storages_.emplace_back(key, storage);
  return over(std::move(storage), c10::DispatchKey::CPU, tensor);
}

at::Tensor rebase(const at::Tensor& base, const at::Tensor& view) {
  return over(base.storage(), c10::DispatchKey::PrivateUse1, view);
}

void add_access(std::vector<BlockAccess>& touched, const at::Tensor& tensor, bool is_write) {
  if (tensor.numel() == 0) return;
  Block* block = block_of(tensor.storage().data_ptr());
  if (block == nullptr) return;
  int64_t last = tensor.storage_offset();
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  const auto item = static_cast<int64_t>(tensor.itemsize());
  touched.push_back({block, {static_cast<size_t>(tensor.storage_offset() * item),
                             static_cast<size_t>((last + 1) * item), is_write}});
}

at::Tensor empty_like_meta(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  return at::detail::empty_strided_generic(
      sizes, strides, device_allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype);
}

}  // namespace late
