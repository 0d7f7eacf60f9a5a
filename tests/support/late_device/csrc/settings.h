// Settings of the device. They may change between operations while the device is idle.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace late {

enum class Pace { kEager, kLazy, kRandom };

struct Settings {
  // When a job runs: at once, only as far as somebody waits for it, or after random delays.
  std::atomic<Pace> pace{Pace::kEager};
  std::atomic<uint64_t> seed{0};
  // Hardware queues that streams share. Jobs of one queue run in the order in which they were queued.
  std::atomic<size_t> num_queues{32};
  // Bytes that the allocator may take from the host.
  std::atomic<size_t> limit_bytes{size_t{4} << 30};
  // Longest random delay of one job, and how late a lazy queue starts a message or a job that the host polls for.
  std::atomic<int64_t> max_delay_us{300};
  std::atomic<int64_t> lazy_message_us{2000};
  std::atomic<bool> checks_races{true};
};

Settings& settings();

}  // namespace late
