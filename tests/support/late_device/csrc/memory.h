// Memory of the device: stream-ordered reuse, poison at free, a byte limit whose reclaim waits for the whole device.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <vector>

#include "races.h"

namespace late {

struct Block {
  char* data = nullptr;
  size_t bytes = 0;
  int64_t stream = 0;  // the stream that reuses it
  std::vector<int64_t> recorded;  // other streams that use it, stated by record_stream
  Shadow shadow;
};

c10::DeviceAllocator* device_allocator();
c10::Allocator* pinned_allocator();

// The block of a storage; null if the storage was not allocated by the device's allocator.
Block* block_of(const c10::DataPtr& pointer);
bool is_pinned(const void* pointer);
// States that jobs queued so far on a stream read or write pinned memory.
void note_pinned_use(const void* pointer, int64_t stream);
// Every block of memory, in use or free, is reported as lost if a later access touches it.
constexpr unsigned char kPoison = 0xFF;  // NaN as a floating-point number, -1 as an integer

}  // namespace late
