#include "operators.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <exception>
#include <set>

#include "aliases.h"
#include "generator.h"
#include "inference.h"
#include "operator_class.h"
#include "streams.h"

namespace late {

namespace {
using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;

const c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

// The arguments of an operator as its CPU kernel gets them, and what it touches.
class CpuArguments {
 public:
  CpuArguments(const OperatorInfo& info, c10::ArrayRef<IValue> arguments) : info_(info) {
    for (size_t i = 0; i < arguments.size(); ++i) stack.push_back(convert(arguments[i], i));
  }

  Stack stack;
  std::vector<BlockAccess> touched;

 private:
  IValue convert(const IValue& value, size_t index) {
    if (value.isTensor()) return convert(value.toTensor(), index);
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& item : value.toTensorList()) list.push_back(convert(item, index));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& item : value.toOptionalTensorList()) {
        list.push_back(item.has_value() ? std::optional(convert(*item, index)) : std::nullopt);
      }
      return list;
    }
    if (value.isDevice()) return c10::Device(c10::DeviceType::CPU);
    return value;
  }

  at::Tensor convert(const at::Tensor& tensor, size_t index) {
    if (!tensor.defined()) return tensor;
    if (is_late(tensor)) {
      add_access(touched, tensor, info_.writes[index]);
      return aliases_.of(tensor);
    }
    const bool is_scalar = tensor.dim() == 0 && !info_.writes[index];
    TORCH_CHECK(tensor.is_cpu() && (is_scalar || info_.takes_host_indices),
                "Expected all tensors to be on the same device, but ", info_.name, " got one on ", tensor.device());
    at::Tensor copy = tensor.clone();
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
    return copy;
  }

  const OperatorInfo& info_;
  Aliases aliases_;
};

void enqueue_copy(const at::Tensor& target, at::Tensor host, const std::string& name) {
  std::vector<BlockAccess> touched;
  add_access(touched, target, true);
  enqueue(current_stream(), name, touched,
          [alias = Aliases().of(target), host = std::move(host)] { alias.copy_(host); });
}

IValue upload_value(const IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() ? IValue(upload(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& item : value.toTensorList()) list.push_back(item.defined() ? upload(item) : item);
    return list;
  }
  return value;
}

void finish(Stack* stack, size_t num_arguments, Stack results) {
  torch::jit::drop(*stack, num_arguments);
  for (IValue& value : results) stack->push_back(std::move(value));
}

// Gives out= arguments the sizes and values that a kernel gave to tensors of the host in their place, and replaces
// results that are arguments by these.
void store_results(const OperatorInfo& info, c10::ArrayRef<IValue> arguments, const Stack& host_arguments, Stack& results) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!info.is_out[i] || !arguments[i].isTensor()) continue;
    const at::Tensor& target = arguments[i].toTensor();
    const at::Tensor& host = host_arguments[i].toTensor();
    if (target.sizes() != host.sizes()) resize_tensor(target, host.sizes());
    enqueue_copy(target, host, info.name);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const int argument = info.result_argument[i];
    results[i] = argument >= 0 ? arguments[argument] : upload_value(results[i]);
  }
}

// Queues an operator and blocks the host until it has run: its results depend on values.
Stack run_drained(const OperatorHandle& op, const OperatorInfo& info, c10::ArrayRef<IValue> arguments,
                  const at::Generator* generator) {
  struct State {
    Stack stack;
    std::exception_ptr error;
  };
  CpuArguments cpu(info, arguments);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (info.is_out[i] && cpu.stack[i].isTensor()) cpu.stack[i] = at::empty({0}, cpu.stack[i].toTensor().options());
  }
  if (generator != nullptr) cpu.stack[info.generator_argument] = *generator;
  const Stack host_arguments = cpu.stack;
  auto state = std::make_shared<State>();
  state->stack = std::move(cpu.stack);
  const StreamId stream = current_stream();
  enqueue(stream, info.name, cpu.touched, [op, state] {
    try {
      op.redispatchBoxed(kCpu, &state->stack);
    } catch (...) {
      state->error = std::current_exception();
    }
  });
  const Event event = record(stream);
  if (info.kind == OperatorClass::kRead) {
    synchronize(event, "read", info.name);
  } else {
    drain(event);
  }
  if (state->error) std::rethrow_exception(state->error);
  store_results(info, arguments, host_arguments, state->stack);
  return state->stack;
}

// A view of a device tensor: computed at once on tensors of the same form.
Stack run_view(const OperatorHandle& op, c10::ArrayRef<IValue> arguments) {
  Stack cpu;
  Aliases aliases;
  at::Tensor base;
  for (const IValue& value : arguments) {
    const bool is_device_tensor = value.isTensor() && is_late(value.toTensor());
    if (is_device_tensor && !base.defined()) base = value.toTensor();
    cpu.push_back(is_device_tensor ? IValue(aliases.of(value.toTensor())) : value);
  }
  op.redispatchBoxed(kCpu, &cpu);
  for (IValue& result : cpu) {
    if (result.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& item : result.toTensorList()) list.push_back(rebase(base, item));
      result = list;
    } else if (result.isTensor()) {
      result = rebase(base, result.toTensor());
    }
  }
  return cpu;
}

// Operators that only fill tensors with random numbers run at once, in memory of the host.
Stack run_random(const OperatorHandle& op, const OperatorInfo& info, c10::ArrayRef<IValue> arguments) {
  const IValue& given = arguments[info.generator_argument];
  at::Generator generator = given.isNone() ? default_generator() : given.toGenerator();
  const at::Generator cpu_generator = to_cpu(generator);
  bool has_inputs = false;
  for (size_t i = 0; i < arguments.size(); ++i) has_inputs |= arguments[i].isTensor() && !info.writes[i];
  if (has_inputs || !(info.is_in_place || info.has_out)) {
    Stack results = run_drained(op, info, arguments, &cpu_generator);
    take_state(generator, cpu_generator);
    return results;
  }
  Stack cpu(arguments.begin(), arguments.end());
  cpu[info.generator_argument] = cpu_generator;
  for (IValue& value : cpu) {
    if (!value.isTensor()) continue;
    const at::Tensor& target = value.toTensor();
    value = at::empty_strided(target.sizes(), target.strides(), target.options().device(at::kCPU));
  }
  const Stack host_arguments = cpu;
  op.redispatchBoxed(kCpu, &cpu);
  take_state(generator, cpu_generator);
  Stack results;
  if (info.has_out) {
    store_results(info, arguments, host_arguments, cpu);
    return cpu;
  }
  for (const int argument : info.result_argument) {
    enqueue_copy(arguments[argument].toTensor(), host_arguments[argument].toTensor(), info.name);
    results.push_back(arguments[argument]);
  }
  return results;
}

Stack run_factory(const OperatorHandle& op, c10::ArrayRef<IValue> arguments) {
  Stack cpu;
  for (const IValue& value : arguments) cpu.push_back(value.isDevice() ? IValue(c10::Device(at::kCPU)) : value);
  op.redispatchBoxed(kCpu, &cpu);
  for (IValue& result : cpu) result = upload_value(result);
  return cpu;
}

// Allocates a result, and notes where the job writes it.
at::Tensor allocate_result(const TensorMeta& meta, std::vector<BlockAccess>& touched, std::vector<at::Tensor>& targets) {
  if (!meta.is_defined) {
    targets.emplace_back();
    return {};
  }
  at::Tensor result = empty_like_meta(meta.sizes, meta.strides, meta.dtype);
  add_access(touched, result, true);
  targets.push_back(Aliases().of(result));
  return result;
}

void copy_results(const Stack& results, const std::vector<int>& result_argument, const std::vector<at::Tensor>& targets) {
  size_t next = 0;
  const auto copy = [&](const at::Tensor& source) {
    const at::Tensor& target = targets[next++];
    if (target.defined() && source.defined()) target.copy_(source);
  };
  for (size_t i = 0; i < results.size(); ++i) {
    if (result_argument[i] >= 0) continue;
    if (results[i].isTensorList()) {
      for (const at::Tensor& item : results[i].toTensorList()) copy(item);
    } else if (results[i].isTensor()) {
      copy(results[i].toTensor());
    }
  }
}

Stack run_queued(const OperatorHandle& op, const OperatorInfo& info, c10::ArrayRef<IValue> arguments) {
  const auto inferred = infer(op, info, arguments);
  if (inferred->failed) return run_drained(op, info, arguments, nullptr);
  for (const auto& [index, sizes] : inferred->resized) resize_tensor(arguments[index].toTensor(), sizes);
  CpuArguments cpu(info, arguments);
  Stack results;
  std::vector<at::Tensor> targets;
  for (size_t i = 0; i < info.result_argument.size(); ++i) {
    if (info.result_argument[i] >= 0) {
      results.push_back(arguments[info.result_argument[i]]);
      continue;
    }
    const ResultMeta& meta = inferred->results[i];
    if (meta.is_list) {
      c10::List<at::Tensor> list;
      for (const TensorMeta& item : meta.tensors) list.push_back(allocate_result(item, cpu.touched, targets));
      results.push_back(list);
    } else {
      results.push_back(allocate_result(meta.tensors.at(0), cpu.touched, targets));
    }
  }
  enqueue(current_stream(), info.name, cpu.touched,
          [op, stack = std::move(cpu.stack), targets = std::move(targets), &info]() mutable {
            op.redispatchBoxed(kCpu, &stack);
            copy_results(stack, info.result_argument, targets);
          });
  return results;
}

bool has_mask(c10::ArrayRef<IValue> arguments) {
  for (const IValue& value : arguments) {
    if (!value.isOptionalTensorList()) continue;
    for (const std::optional<at::Tensor>& item : value.toOptionalTensorList()) {
      const bool is_mask = item.has_value() && item->defined() &&
                           (item->scalar_type() == at::kBool || item->scalar_type() == at::kByte);
      if (is_mask) return true;
    }
  }
  return false;
}

Stack run_class(const OperatorHandle& op, const OperatorInfo& info, c10::ArrayRef<IValue> arguments) {
  switch (info.kind) {
    case OperatorClass::kView: return run_view(op, arguments);
    case OperatorClass::kRandom: return run_random(op, info, arguments);
    case OperatorClass::kFactory: return run_factory(op, arguments);
    case OperatorClass::kRead: return run_drained(op, info, arguments, nullptr);
    case OperatorClass::kQueued: break;
  }
  if (info.may_index_by_mask && has_mask(arguments)) {
    // The number of elements that a mask selects is needed on the host.
    synchronize_stream(current_stream(), "read", info.name);
    return run_drained(op, info, arguments, nullptr);
  }
  return run_queued(op, info, arguments);
}
}  // namespace

void run_boxed(const OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* stack) {
  const OperatorInfo& info = info_of(op);
  const size_t num_arguments = op.schema().arguments().size();
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  // Holds the arguments until the operator is queued.
  const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(num_arguments), stack->end());
  finish(stack, num_arguments, run_class(op, info, arguments));
}

at::Tensor upload(const at::Tensor& host) {
  at::Tensor result = empty_like_meta(host.sizes(), host.strides(), host.scalar_type());
  enqueue_copy(result, host, "upload");
  return result;
}

size_t register_operators() {
  // Written by hand in kernels.cpp.
  static const std::set<std::string> by_hand = {
      "aten::empty.memory_format", "aten::empty_strided", "aten::_copy_from", "aten::_copy_from_and_resize",
      "aten::resize_", "aten::record_stream", "aten::set_.source_Storage", "aten::set_.source_Storage_storage_offset",
      "aten::set_.source_Tensor", "aten::set_", "aten::dropout", "aten::dropout_", "aten::_fused_sdp_choice"};
  // Composite operators that choose another formula for devices other than the CPU.
  static const std::set<std::string> composite = {"aten::convolution", "aten::convolution_backward"};
  static auto* handles = new std::vector<c10::RegistrationHandleRAII>();
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const std::string text = toString(name);
    if (text.rfind("aten::", 0) != 0 || by_hand.count(text)) continue;
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasSchema()) continue;
    if (!op->hasKernelForDispatchKey(c10::DispatchKey::CPU) && !composite.count(text)) continue;
    handles->push_back(dispatcher.registerImpl(
        name, c10::DispatchKey::PrivateUse1, c10::KernelFunction::makeFromBoxedFunction<&run_boxed>(), std::nullopt,
        nullptr, "late"));
  }
  return handles->size();
}

}  // namespace late
