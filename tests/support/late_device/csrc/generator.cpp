#include "generator.h"

#include <ATen/Utils.h>

namespace late {

namespace {
struct LateGenerator final : at::CPUGeneratorImpl {
  LateGenerator() {
    device_ = c10::Device(c10::DeviceType::PrivateUse1, 0);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }

  void copy_from(at::CPUGeneratorImpl& other) {
    set_engine(other.engine());
    set_next_float_normal_sample(other.next_float_normal_sample());
    set_next_double_normal_sample(other.next_double_normal_sample());
  }

 private:
  LateGenerator* clone_impl() const override {
    auto* copy = new LateGenerator();
    copy->copy_from(const_cast<LateGenerator&>(*this));
    return copy;
  }
};
}  // namespace

const at::Generator& default_generator() {
  static auto* generator = new at::Generator(at::make_generator<LateGenerator>());
  return *generator;
}

at::Generator new_generator() { return at::make_generator<LateGenerator>(); }

at::Generator to_cpu(at::Generator generator) {
  std::lock_guard lock(generator.mutex());
  auto* source = dynamic_cast<LateGenerator*>(generator.unsafeGetGeneratorImpl());
  TORCH_CHECK(source != nullptr, "late: expected a generator of this device, got one of ", generator.device());
  auto copy = at::make_generator<at::CPUGeneratorImpl>();
  auto* target = copy.get<at::CPUGeneratorImpl>();
  target->set_engine(source->engine());
  target->set_next_float_normal_sample(source->next_float_normal_sample());
  target->set_next_double_normal_sample(source->next_double_normal_sample());
  return copy;
}

void take_state(at::Generator generator, at::Generator source) {
  std::lock_guard lock(generator.mutex());
  static_cast<LateGenerator*>(generator.unsafeGetGeneratorImpl())->copy_from(*source.get<at::CPUGeneratorImpl>());
}

}  // namespace late
