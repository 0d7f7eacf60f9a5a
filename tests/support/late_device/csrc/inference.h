// Sizes, strides and dtypes of an operator's results, found by one run of its CPU kernel on zeros.
#pragma once

#include <ATen/core/stack.h>

#include <memory>
#include <string>
#include <vector>

#include "operator_class.h"

namespace late {

struct TensorMeta {
  bool is_defined = false;
  std::vector<int64_t> sizes, strides;
  at::ScalarType dtype = at::kFloat;
};

struct ResultMeta {
  bool is_list = false;
  std::vector<TensorMeta> tensors;
};

struct Inferred {
  // The CPU kernel raised on zeros, which says nothing about other values.
  bool failed = false;
  std::vector<ResultMeta> results;
  // For each argument that is an out=: its sizes afterwards.
  std::vector<std::pair<size_t, std::vector<int64_t>>> resized;
};

// `arguments` are those of the operator. The result is kept for arguments of the same form.
std::shared_ptr<const Inferred> infer(const c10::OperatorHandle& op, const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments);

// Operators whose CPU kernel raised on zeros, since the last call.
std::vector<std::string> take_inference_failures();

ResultMeta meta_of_result(const c10::IValue& value);

}  // namespace late
