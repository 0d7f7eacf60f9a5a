// Streams and events, and the order that they give to operations.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hardware_queue.h"
#include "memory.h"
#include "vector_clock.h"

namespace late {

using StreamId = int64_t;
constexpr StreamId kDefaultStream = 0;

// A point of a stream: everything that was queued on it so far.
struct Event {
  HardwareQueue* queue = nullptr;
  uint64_t position = 0;
  VectorClock clock;
  std::shared_ptr<Steady::time_point> time;
};

struct BlockAccess {
  Block* block;
  Access access;
};

// Locks the state of the device: streams, clocks and memory. Gives up the GIL while it waits for the lock, because the
// thread that holds the lock may need the GIL to state where it is.
class DeviceLock {
 public:
  DeviceLock();
  ~DeviceLock();
  DeviceLock(const DeviceLock&) = delete;
  DeviceLock& operator=(const DeviceLock&) = delete;
};

StreamId new_stream();
// Gives a stream back, so that `new_stream` may return it again.
void release_stream(StreamId stream);
StreamId pooled_stream();
StreamId current_stream();
StreamId exchange_stream(StreamId stream);

// Queues an operation on a stream. `touched` are the bytes that it reads and writes.
void enqueue(StreamId stream, std::string name, const std::vector<BlockAccess>& touched, std::function<void()> run,
             bool is_message = false);
Event record(StreamId stream, bool is_timed = false);
void wait_event(StreamId stream, const Event& event);

// Whether the host finds an event complete. If so, what the host queues from now on is ordered after it.
bool query(const Event& event);
// Blocks the host until an event is complete, and orders what the host queues from now on after it.
void synchronize(const Event& event, const std::string& kind, const std::string& name);
void synchronize_stream(StreamId stream, const std::string& kind, const std::string& name);
void synchronize_device(const std::string& kind, const std::string& name);
// Blocks the host until an event is complete. Gives no order: real devices would not have waited.
void drain(const Event& event);

// The clock of a stream, with what the host knows; and that of the host.
VectorClock stream_clock(StreamId stream);
size_t num_streams();

// Raises the first error of a job, if there is one.
void raise_job_error();

}  // namespace late
