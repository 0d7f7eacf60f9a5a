#include "operator_class.h"

#include <ATen/core/enum_tag.h>

#include <mutex>
#include <unordered_map>

namespace late {

namespace {
bool is_tensor_like(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  if (auto optional = type->cast<c10::OptionalType>()) return is_tensor_like(optional->getElementType());
  if (auto list = type->cast<c10::ListType>()) return is_tensor_like(list->getElementType());
  return false;
}

bool is_generator(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::GeneratorType) return true;
  auto optional = type->cast<c10::OptionalType>();
  return optional && is_generator(optional->getElementType());
}

// The annotation of a list, Tensor(a!)[], belongs to its elements.
const c10::AliasInfo* alias_of(const c10::Argument& argument) {
  const c10::AliasInfo* alias = argument.alias_info();
  while (alias != nullptr && !alias->containedTypes().empty() && !alias->isWrite()) alias = &alias->containedTypes()[0];
  return alias;
}

bool writes(const c10::Argument& argument) {
  const c10::AliasInfo* alias = alias_of(argument);
  return alias != nullptr && alias->isWrite();
}

OperatorInfo classify(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  OperatorInfo info;
  info.name = toString(op.operator_name());
  bool has_tensor = false;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    info.writes.push_back(writes(argument));
    info.is_out.push_back(argument.is_out());
    info.has_out |= argument.is_out();
    has_tensor |= is_tensor_like(argument.type());
    if (is_generator(argument.type())) info.generator_argument = static_cast<int>(i);
  }
  bool gives_view = false, gives_value = false;
  info.is_in_place = true;
  for (const c10::Argument& result : schema.returns()) {
    int index = -1;
    if (const c10::AliasInfo* of_result = alias_of(result)) {
      gives_view |= !of_result->isWrite();
      for (size_t i = 0; i < schema.arguments().size(); ++i) {
        const c10::AliasInfo* alias = alias_of(schema.arguments()[i]);
        if (writes(schema.arguments()[i]) && alias->beforeSets() == of_result->beforeSets()) {
          index = static_cast<int>(i);
        }
      }
    }
    gives_value |= !is_tensor_like(result.type());
    info.is_in_place &= index >= 0;
    info.result_argument.push_back(index);
  }
  info.is_in_place &= !info.has_out;

  const std::string base = schema.name();
  if (base == "aten::native_batch_norm") info.writes[3] = info.writes[4] = true;  // its schema omits this
  info.may_index_by_mask = base == "aten::index" || base == "aten::index_put_" || base == "aten::_index_put_impl_" ||
                           base == "aten::_unsafe_index";
  info.takes_host_indices = info.may_index_by_mask;
  const bool depends_on_values = op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
  if (gives_view) {
    info.kind = OperatorClass::kView;
  } else if (!has_tensor) {
    info.kind = OperatorClass::kFactory;
  } else if (gives_value || (depends_on_values && !info.may_index_by_mask)) {
    info.kind = OperatorClass::kRead;
  } else if (info.generator_argument >= 0) {
    info.kind = OperatorClass::kRandom;
  } else {
    info.kind = OperatorClass::kQueued;
  }
  return info;
}
}  // namespace

const OperatorInfo& info_of(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto* known = new std::unordered_map<const void*, OperatorInfo>();
  std::lock_guard lock(mutex);
  const void* key = &op.schema();
  auto found = known->find(key);
  if (found == known->end()) found = known->emplace(key, classify(op)).first;
  return found->second;
}

}  // namespace late
