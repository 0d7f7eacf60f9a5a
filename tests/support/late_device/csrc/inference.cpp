#include "inference.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <cstring>
#include <mutex>
#include <set>
#include <unordered_map>

#include "aliases.h"

namespace late {

namespace {
constexpr size_t kMaxKnown = 50000;
std::mutex mutex;
std::set<std::string> failures;

template <typename T>
void put(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void put_tensor(std::string& key, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    key.push_back('u');
    return;
  }
  key.push_back(tensor.is_cpu() ? 'c' : 'd');
  key.push_back(static_cast<char>(tensor.scalar_type()));
  key.push_back(tensor.unsafeGetTensorImpl()->is_wrapped_number() ? 'w' : 'n');
  put(key, tensor.dim());
  key.append(reinterpret_cast<const char*>(tensor.sizes().data()), tensor.dim() * sizeof(int64_t));
  key.append(reinterpret_cast<const char*>(tensor.strides().data()), tensor.dim() * sizeof(int64_t));
}

// Appends everything about an argument that sizes, strides and dtypes of results can depend on. Returns whether it
// could; results of operators with other arguments are not kept.
bool put_argument(std::string& key, const c10::IValue& value, bool is_in_place) {
  key.push_back(static_cast<char>('A' + static_cast<int>(value.isNone())));
  if (value.isNone()) return true;
  if (value.isTensor()) {
    put_tensor(key, value.toTensor());
  } else if (value.isInt()) {
    key.push_back('i');
    put(key, value.toInt());
  } else if (value.isBool()) {
    key.push_back(value.toBool() ? 't' : 'f');
  } else if (value.isDouble()) {
    key.push_back('r');
    // The rate of an optimizer changes in every step, and no result of an operator in place depends on it.
    if (!is_in_place) put(key, value.toDouble());
  } else if (value.isString()) {
    key.append(value.toStringRef());
    key.push_back('\0');
  } else if (value.isDevice()) {
    key.push_back('v');
  } else if (value.isList()) {
    key.push_back('[');
    for (const c10::IValue& item : value.toListRef()) {
      if (!put_argument(key, item, is_in_place)) return false;
    }
    key.push_back(']');
  } else {
    return false;
  }
  return true;
}

at::Tensor zero_stand_in(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  auto stand_in = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  if (stand_in.storage().nbytes() > 0) std::memset(stand_in.storage().mutable_data(), 0, stand_in.storage().nbytes());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) stand_in.unsafeGetTensorImpl()->set_wrapped_number(true);
  return stand_in;
}

c10::IValue stand_in_for(const c10::IValue& value) {
  if (value.isTensor()) return zero_stand_in(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& item : value.toTensorList()) list.push_back(zero_stand_in(item));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& item : value.toOptionalTensorList()) {
      list.push_back(item.has_value() ? std::optional(zero_stand_in(*item)) : std::nullopt);
    }
    return list;
  }
  return value;
}

TensorMeta meta_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {true, tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type()};
}

Inferred run_on_zeros(const c10::OperatorHandle& op, const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  Inferred inferred;
  torch::jit::Stack stack;
  for (const c10::IValue& value : arguments) stack.push_back(stand_in_for(value));
  const torch::jit::Stack stand_ins = stack;
  try {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } catch (const std::exception&) {
    inferred.failed = true;
    failures.insert(info.name);
    return inferred;
  }
  for (const c10::IValue& value : stack) inferred.results.push_back(meta_of_result(value));
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (info.is_out[i] && arguments[i].isTensor() && arguments[i].toTensor().sizes() != stand_ins[i].toTensor().sizes()) {
      inferred.resized.emplace_back(i, stand_ins[i].toTensor().sizes().vec());
    }
  }
  return inferred;
}
}  // namespace

ResultMeta meta_of_result(const c10::IValue& value) {
  ResultMeta meta;
  if (value.isTensorList()) {
    meta.is_list = true;
    for (const at::Tensor& item : value.toTensorList()) meta.tensors.push_back(meta_of(item));
  } else if (value.isTensor()) {
    meta.tensors.push_back(meta_of(value.toTensor()));
  }
  return meta;
}

std::shared_ptr<const Inferred> infer(
    const c10::OperatorHandle& op, const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  static auto* known = new std::unordered_map<std::string, std::shared_ptr<const Inferred>>();
  std::string key;
  put(key, &op.schema());
  bool can_keep = true;
  for (const c10::IValue& value : arguments) can_keep = can_keep && put_argument(key, value, info.is_in_place);
  std::lock_guard lock(mutex);
  if (can_keep) {
    auto found = known->find(key);
    if (found != known->end()) return found->second;
  }
  auto inferred = std::make_shared<const Inferred>(run_on_zeros(op, info, arguments));
  if (can_keep && !inferred->failed) {
    if (known->size() > kMaxKnown) known->clear();
    known->emplace(std::move(key), inferred);
  }
  return inferred;
}

std::vector<std::string> take_inference_failures() {
  std::lock_guard lock(mutex);
  std::vector<std::string> taken(failures.begin(), failures.end());
  failures.clear();
  return taken;
}

}  // namespace late
