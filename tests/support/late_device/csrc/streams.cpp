#include "streams.h"

#include <Python.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>

#include "host_waits.h"
#include "settings.h"

namespace late {

namespace {
constexpr size_t kPooled = 16;
constexpr size_t kMaxQueues = 64;
const auto kSlice = std::chrono::milliseconds(100);

struct Stream {
  HardwareQueue* queue = nullptr;
  size_t num_queues = 0;
  uint64_t last = 0;  // position of its last job
  VectorClock clock;
};

std::recursive_mutex& device_mutex() {
  static auto* mutex = new std::recursive_mutex();
  return *mutex;
}

std::vector<Stream>& streams() {
  static auto* all = new std::vector<Stream>(1 + kPooled);
  return *all;
}

std::vector<StreamId>& released() {
  static auto* all = new std::vector<StreamId>();
  return *all;
}

// What the threads of the host know. Threads order each other by locks and queues of Python, which the device cannot
// see, so a wait of any thread counts for all. A poll counts for the thread that polls: a watcher's must not hide that
// the main thread did not wait.
VectorClock& host_clock() {
  static auto* clock = new VectorClock();
  return *clock;
}

VectorClock& watcher_clock() {
  static thread_local VectorClock clock;
  return clock;
}

std::atomic<size_t> next_pooled{0};
thread_local StreamId current = kDefaultStream;

HardwareQueue* queue_of(size_t number) {
  static auto* queues = new std::array<HardwareQueue*, kMaxQueues>();
  if ((*queues)[number] == nullptr) (*queues)[number] = new HardwareQueue(number);
  return (*queues)[number];
}

// A stream keeps its queue until the number of queues changes; then it moves once all its jobs have run.
Stream& stream_at(StreamId id) {
  TORCH_CHECK(id >= 0 && static_cast<size_t>(id) < streams().size(), "late: there is no stream ", id);
  Stream& stream = streams()[id];
  const size_t count = std::min<size_t>(settings().num_queues, kMaxQueues);
  if (stream.num_queues != count) {
    if (stream.queue != nullptr) stream.queue->wait_in_job(stream.last);
    stream.queue = queue_of(static_cast<size_t>(id) % count);
    stream.num_queues = count;
    stream.last = 0;
  }
  return stream;
}

uint64_t push(Stream& stream, Job job) { return stream.last = stream.queue->push(std::move(job)); }

void wait_interruptibly(const Event& event) {
  if (event.queue == nullptr) return;
  const bool has_gil = Py_IsInitialized() && PyGILState_Check();
  PyThreadState* saved = has_gil ? PyEval_SaveThread() : nullptr;
  struct Restore {
    PyThreadState* saved;
    ~Restore() { if (saved != nullptr) PyEval_RestoreThread(saved); }
  } restore{saved};
  while (!event.queue->wait(event.position, kSlice) && !is_stopped()) check_signals();
}
}  // namespace

DeviceLock::DeviceLock() {
  if (device_mutex().try_lock()) return;
  if (Py_IsInitialized() && PyGILState_Check()) {
    PyThreadState* saved = PyEval_SaveThread();
    device_mutex().lock();
    PyEval_RestoreThread(saved);
  } else {
    device_mutex().lock();
  }
}

DeviceLock::~DeviceLock() { device_mutex().unlock(); }

StreamId new_stream() {
  DeviceLock lock;
  if (!released().empty()) {
    const StreamId stream = released().back();
    released().pop_back();
    return stream;
  }
  streams().emplace_back();
  return static_cast<StreamId>(streams().size()) - 1;
}

void release_stream(StreamId stream) {
  DeviceLock lock;
  released().push_back(stream);
}

StreamId pooled_stream() { return static_cast<StreamId>(1 + next_pooled++ % kPooled); }
StreamId current_stream() { return current; }
StreamId exchange_stream(StreamId stream) { return std::exchange(current, stream); }
size_t num_streams() { return streams().size(); }

VectorClock stream_clock(StreamId id) {
  DeviceLock lock;
  VectorClock clock = stream_at(id).clock;
  clock.join(host_clock());
  clock.join(watcher_clock());
  return clock;
}

void enqueue(StreamId id, std::string name, const std::vector<BlockAccess>& touched, std::function<void()> run,
             bool is_message) {
  DeviceLock lock;
  Stream& stream = stream_at(id);
  stream.clock.join(host_clock());
  stream.clock.join(watcher_clock());
  const uint64_t count = stream.clock.advance(static_cast<size_t>(id));
  for (const auto& [block, access] : touched) {
    block->shadow.check(access, static_cast<size_t>(id), count, stream.clock, name);
  }
  push(stream, Job{std::move(name), std::move(run), is_message});
}

Event record(StreamId id, bool is_timed) {
  DeviceLock lock;
  Stream& stream = stream_at(id);
  Event event;
  if (is_timed) {
    event.time = std::make_shared<Steady::time_point>();
    push(stream, Job{"event", [time = event.time] { *time = Steady::now(); }});
  }
  stream.clock.join(host_clock());
  stream.clock.join(watcher_clock());
  event.queue = stream.queue;
  event.position = stream.last;
  event.clock = stream.clock;
  return event;
}

void wait_event(StreamId id, const Event& event) {
  DeviceLock lock;
  Stream& stream = stream_at(id);
  stream.clock.join(event.clock);
  // Jobs of one queue run in order, so an earlier one has run.
  if (event.queue == nullptr || event.queue == stream.queue || event.queue->is_done(event.position)) return;
  push(stream, Job{"wait for event", [event] { event.queue->wait_in_job(event.position); }});
}

bool query(const Event& event) {
  if (event.queue == nullptr) return true;
  if (!event.queue->is_done(event.position)) {
    event.queue->demand_later(event.position, std::chrono::microseconds(settings().lazy_message_us));
    return false;
  }
  DeviceLock lock;
  (is_main_thread() ? host_clock() : watcher_clock()).join(event.clock);
  return true;
}

void drain(const Event& event) { wait_interruptibly(event); }

void synchronize(const Event& event, const std::string& kind, const std::string& name) {
  note_host_wait(kind, name);
  wait_interruptibly(event);
  {
    DeviceLock lock;
    host_clock().join(event.clock);
  }
  raise_job_error();
}

void synchronize_stream(StreamId stream, const std::string& kind, const std::string& name) {
  synchronize(record(stream), kind, name);
}

void synchronize_device(const std::string& kind, const std::string& name) {
  note_host_wait(kind, name);
  std::vector<Event> events;
  {
    DeviceLock lock;
    for (size_t id = 0; id < streams().size(); ++id) events.push_back(record(static_cast<StreamId>(id)));
  }
  for (const Event& event : events) wait_interruptibly(event);
  {
    DeviceLock lock;
    for (const Event& event : events) host_clock().join(event.clock);
  }
  raise_job_error();
}

void raise_job_error() {
  const std::string text = take_job_error();
  TORCH_CHECK(text.empty(), "late: an operation failed on the device: ", text);
}

}  // namespace late
