// What torch asks of a device: guards for devices, streams and events, and the hooks of torch.accelerator.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "device.h"
#include "generator.h"
#include "host_waits.h"
#include "memory.h"
#include "streams.h"

namespace late {

namespace {
const c10::Device kDevice(c10::DeviceType::PrivateUse1, 0);

c10::Stream to_torch(StreamId id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }

struct LateGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device /*device*/) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() <= 0, "late: there is one device, and no device ", device.index());
  }
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device /*device*/) const override { return to_torch(current_stream()); }
  c10::Stream getDefaultStream(c10::Device /*device*/) const override { return to_torch(kDefaultStream); }
  c10::Stream getStreamFromGlobalPool(c10::Device /*device*/, bool /*high*/) const override {
    return to_torch(pooled_stream());
  }
  c10::Stream getNewStream(c10::Device /*device*/, int /*priority*/) const override { return to_torch(pooled_stream()); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return to_torch(exchange_stream(stream.id())); }
  bool queryStream(const c10::Stream& stream) const override { return query(late::record(stream.id())); }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronize_stream(stream.id(), "synchronize", "stream");
  }
  void synchronizeDevice(const c10::DeviceIndex /*index*/) const override {
    synchronize_device("synchronize", "device");
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*index*/, c10::EventFlag flag) const override {
    if (*event == nullptr) *event = new Event();
    *static_cast<Event*>(*event) = late::record(stream.id(), flag == c10::EventFlag::BACKEND_DEFAULT);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) wait_event(stream.id(), *static_cast<Event*>(event));
  }
  bool queryEvent(void* event) const override { return event == nullptr || query(*static_cast<Event*>(event)); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) synchronize(*static_cast<Event*>(event), "synchronize", "event");
  }
  void destroyEvent(void* event, c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex /*index*/) const override {
    const auto& first = *static_cast<Event*>(from);
    const auto& second = *static_cast<Event*>(to);
    TORCH_CHECK(first.time && second.time, "late: both events need enable_timing=True");
    TORCH_CHECK(query(first) && query(second), "late: an event is not complete");
    return std::chrono::duration<double, std::milli>(*second.time - *first.time).count();
  }
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& stream) const override {
    device_allocator()->recordStream(pointer, stream);
  }
  c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override { return {}; }
};

struct LateHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    TORCH_CHECK(index <= 0, "late: there is one device, and no device ", static_cast<int>(index));
  }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex /*index*/) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex /*index*/) const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*index*/) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex /*index*/) const override { return new_generator(); }
  at::Device getDeviceFromPtr(void* /*data*/) const override { return kDevice; }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
};
}  // namespace

void register_device() {
  static auto* guard = new LateGuard();
  c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::PrivateUse1, guard);
  at::RegisterPrivateUse1HooksInterface(new LateHooks());
  c10::SetAllocator(c10::DeviceType::PrivateUse1, device_allocator());
}

}  // namespace late
