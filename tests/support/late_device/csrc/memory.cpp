#include "memory.h"

#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <unordered_map>

#include "host_waits.h"
#include "settings.h"
#include "streams.h"

namespace late {

namespace {
using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t kAlignment = 64;
constexpr size_t kGranule = 512;

size_t rounded(size_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

void* allocate_host(size_t bytes) {
  void* data = nullptr;
  TORCH_CHECK(posix_memalign(&data, kAlignment, bytes) == 0, "late: the host has no memory left");
  return data;
}

void free_block(void* context);

class LateAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::DeviceType::PrivateUse1, 0);
    if (bytes == 0) return {nullptr, nullptr, &free_block, device};
    DeviceLock lock;
    collect_recorded();
    Block* block = take(current_stream(), rounded(bytes));
    block->shadow.set_size(bytes);
    allocated_ += block->bytes;
    peak_allocated_ = std::max(peak_allocated_, allocated_);
    ++num_allocations_;
    return {block->data, block, &free_block, device};
  }

  // The stream of the block may reuse it at once; other streams must have been ordered before, or recorded.
  void release(Block* block) {
    DeviceLock lock;
    allocated_ -= block->bytes;
    std::vector<size_t> recorded(block->recorded.begin(), block->recorded.end());
    block->shadow.check_free(stream_clock(block->stream), recorded, "free");
    if (block->recorded.empty()) {
      poison(block);
      return;
    }
    Waiting waiting{block, {}};
    for (int64_t stream : block->recorded) waiting.events.push_back(record(stream));
    block->recorded.clear();
    waiting_.push_back(std::move(waiting));
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* target, const void* source, std::size_t count) const override {
    enqueue(current_stream(), "clone", {}, [=] { std::memcpy(target, source, count); });
  }
  bool initialized() override { return true; }

  void emptyCache(c10::MempoolId_t /*pool*/) override { reclaim("empty_cache"); }

  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    DeviceLock lock;
    Block* block = block_of(pointer);
    if (block == nullptr || stream.id() == block->stream) return;
    if (std::find(block->recorded.begin(), block->recorded.end(), stream.id()) == block->recorded.end()) {
      block->recorded.push_back(stream.id());
    }
  }

  DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    DeviceLock lock;
    DeviceStats stats;
    auto& allocated = stats.allocated_bytes[0];
    allocated.current = static_cast<int64_t>(allocated_);
    allocated.peak = static_cast<int64_t>(peak_allocated_);
    stats.requested_bytes[0] = stats.active_bytes[0] = allocated;
    auto& reserved = stats.reserved_bytes[0];
    reserved.current = static_cast<int64_t>(reserved_);
    reserved.peak = static_cast<int64_t>(peak_reserved_);
    stats.num_alloc_retries = num_reclaims_;
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override {
    DeviceLock lock;
    peak_allocated_ = allocated_;
    peak_reserved_ = reserved_;
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex /*device*/) override {
    DeviceLock lock;
    const size_t limit = settings().limit_bytes;
    return {limit > reserved_ ? limit - reserved_ : 0, limit};
  }

 private:
  struct Waiting {
    Block* block;
    std::vector<Event> events;
  };

  // Reuses the smallest free block of the stream that is large enough and not much larger, or takes a new one.
  Block* take(int64_t stream, size_t bytes) {
    auto& pool = free_[stream];
    auto found = pool.lower_bound(bytes);
    if (found != pool.end() && found->first <= 2 * bytes) {
      Block* block = found->second;
      pool.erase(found);
      return block;
    }
    if (reserved_ + bytes > settings().limit_bytes) {
      reclaim("an allocation");
      TORCH_CHECK_WITH(
          OutOfMemoryError, reserved_ + bytes <= settings().limit_bytes, "late: out of memory. Tried to allocate ",
          bytes, " bytes; ", reserved_, " of ", settings().limit_bytes.load(), " are in use");
    }
    auto* block = new Block();
    block->data = static_cast<char*>(allocate_host(bytes));
    block->bytes = bytes;
    block->stream = stream;
    std::memset(block->data, kPoison, bytes);
    reserved_ += bytes;
    peak_reserved_ = std::max(peak_reserved_, reserved_);
    return block;
  }

  // Overwrites a block, in the order of its stream, and makes it free.
  void poison(Block* block) {
    block->shadow.clear();
    enqueue(block->stream, "free", {}, [data = block->data, bytes = block->bytes] {
      std::memset(data, kPoison, bytes);
    });
    free_[block->stream].emplace(block->bytes, block);
  }

  // Frees the blocks that recorded streams no longer use.
  void collect_recorded() {
    for (auto item = waiting_.begin(); item != waiting_.end();) {
      const bool is_done = std::all_of(item->events.begin(), item->events.end(), [](auto& event) { return query(event); });
      if (is_done) poison(item->block);
      item = is_done ? waiting_.erase(item) : std::next(item);
    }
  }

  // Returns all free memory to the host. Waits for the whole device, as allocators of GPUs do.
  void reclaim(const std::string& name) {
    ++num_reclaims_;
    synchronize_device("reclaim", name);
    collect_recorded();
    synchronize_device("reclaim", name);
    for (auto& [stream, pool] : free_) {
      for (auto& [bytes, block] : pool) {
        reserved_ -= bytes;
        std::free(block->data);
        delete block;
      }
      pool.clear();
    }
  }

  std::map<int64_t, std::multimap<size_t, Block*>> free_;
  std::list<Waiting> waiting_;
  size_t allocated_ = 0, reserved_ = 0, peak_allocated_ = 0, peak_reserved_ = 0;
  int64_t num_allocations_ = 0, num_reclaims_ = 0;
};

LateAllocator& allocator() {
  static auto* only = new LateAllocator();
  return *only;
}

void free_block(void* context) {
  if (context != nullptr && !is_stopped()) allocator().release(static_cast<Block*>(context));
}

void free_pinned(void* data);

// Page-locked memory of the host. A block that jobs still use becomes free once they have run.
class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    DeviceLock lock;
    for (auto item = waiting_.begin(); item != waiting_.end();) {
      const bool is_done = std::all_of(
          item->second.begin(), item->second.end(), [](auto& event) { return event.queue->is_done(event.position); });
      if (is_done) std::free(item->first);
      item = is_done ? waiting_.erase(item) : std::next(item);
    }
    void* data = allocate_host(std::max<size_t>(bytes, 1));
    blocks_[static_cast<char*>(data)] = {bytes, {}};
    return {data, data, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* target, const void* source, std::size_t count) const override {
    default_copy_data(target, source, count);
  }

  void release(void* data) {
    DeviceLock lock;
    auto found = blocks_.find(static_cast<char*>(data));
    if (found->second.events.empty()) {
      std::free(data);
    } else {
      waiting_.emplace_back(data, std::move(found->second.events));
    }
    blocks_.erase(found);
  }

  bool contains(const void* pointer) { return find(pointer) != nullptr; }

  void note_use(const void* pointer, int64_t stream) {
    Use* use = find(pointer);
    if (use == nullptr) return;
    auto& events = use->events;
    const auto is_done = [](const Event& event) { return event.queue->is_done(event.position); };
    events.erase(std::remove_if(events.begin(), events.end(), is_done), events.end());
    events.push_back(record(stream));
  }

 private:
  struct Use {
    size_t bytes;
    std::vector<Event> events;
  };

  Use* find(const void* pointer) {
    DeviceLock lock;
    auto* data = static_cast<char*>(const_cast<void*>(pointer));
    auto next = blocks_.upper_bound(data);
    if (next == blocks_.begin()) return nullptr;
    auto& [begin, use] = *std::prev(next);
    return data < begin + std::max<size_t>(use.bytes, 1) ? &use : nullptr;
  }

  std::map<char*, Use> blocks_;
  std::list<std::pair<void*, std::vector<Event>>> waiting_;
};

PinnedAllocator& pinned() {
  static auto* only = new PinnedAllocator();
  return *only;
}

void free_pinned(void* data) {
  if (!is_stopped()) pinned().release(data);
}
}  // namespace

c10::DeviceAllocator* device_allocator() { return &allocator(); }
c10::Allocator* pinned_allocator() { return &pinned(); }
bool is_pinned(const void* pointer) { return pointer != nullptr && pinned().contains(pointer); }
void note_pinned_use(const void* pointer, int64_t stream) { pinned().note_use(pointer, stream); }

Block* block_of(const c10::DataPtr& pointer) {
  return pointer.get_deleter() == &free_block ? static_cast<Block*>(pointer.get_context()) : nullptr;
}

}  // namespace late
