#include "hardware_queue.h"

#include <atomic>
#include <thread>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>

#include "settings.h"

namespace late {

namespace {
std::atomic<bool> stopped{false};
std::mutex error_mutex;
std::string first_error;
}  // namespace

Settings& settings() {
  static auto* values = new Settings();
  return *values;
}

void note_job_error(const std::string& text) {
  std::lock_guard lock(error_mutex);
  if (first_error.empty()) first_error = text;
}

std::string take_job_error() {
  std::lock_guard lock(error_mutex);
  std::string text;
  text.swap(first_error);
  return text;
}

void stop_queues() { stopped = true; }
bool is_stopped() { return stopped; }

HardwareQueue::HardwareQueue(size_t number) : number_(number) {
  std::thread([this] { work(); }).detach();
}

uint64_t HardwareQueue::push(Job job) {
  std::lock_guard lock(mutex_);
  ++pushed_;
  if (job.is_message) {
    due_.emplace_back(pushed_, Steady::now() + std::chrono::microseconds(settings().lazy_message_us));
  }
  jobs_.push_back(std::move(job));
  work_.notify_one();
  return pushed_;
}

void HardwareQueue::demand(uint64_t position) {
  std::lock_guard lock(mutex_);
  if (position > demanded_) {
    demanded_ = position;
    work_.notify_one();
  }
}

void HardwareQueue::demand_later(uint64_t position, std::chrono::microseconds delay) {
  std::lock_guard lock(mutex_);
  for (const auto& [known, time] : due_) {
    if (known >= position) return;
  }
  due_.emplace_back(position, Steady::now() + delay);
  work_.notify_one();
}

bool HardwareQueue::is_done(uint64_t position) const {
  std::lock_guard lock(mutex_);
  return finished_ >= position;
}

bool HardwareQueue::wait(uint64_t position, std::chrono::milliseconds for_ms) {
  demand(position);
  std::unique_lock lock(mutex_);
  return done_.wait_for(lock, for_ms, [&] { return finished_ >= position; });
}

void HardwareQueue::wait_in_job(uint64_t position) {
  while (!wait(position, std::chrono::milliseconds(100)) && !is_stopped()) {
  }
}

bool HardwareQueue::may_run(uint64_t position, Steady::time_point now) const {
  if (settings().pace != Pace::kLazy || position <= demanded_) return true;
  for (const auto& [due_position, time] : due_) {
    if (due_position >= position && time <= now) return true;
  }
  return false;
}

void HardwareQueue::delay_randomly() {
  if (seed_ != settings().seed) {
    seed_ = settings().seed;
    random_.seed(seed_ * 1000003 + number_);
  }
  // Three quarters of all jobs start at once, so that delays of neighbours differ in scale.
  if (random_() % 4 == 0) {
    const auto longest = static_cast<uint64_t>(settings().max_delay_us.load());
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % (longest + 1)));
  }
}

void HardwareQueue::work() {
  // Jobs are below autograd. Kernels that they call see CPU tensors only.
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::AutoGradMode no_grad(false);
  std::unique_lock lock(mutex_);
  while (!is_stopped()) {
    if (jobs_.empty() || !may_run(finished_ + 1, Steady::now())) {
      // The time-out serves due times and the end of the process.
      work_.wait_for(lock, jobs_.empty() ? std::chrono::milliseconds(50) : std::chrono::milliseconds(1));
      continue;
    }
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    if (settings().pace == Pace::kRandom) delay_randomly();
    try {
      if (job.run) job.run();
    } catch (const std::exception& error) {
      note_job_error(job.name + ": " + error.what());
    }
    job = Job();
    lock.lock();
    ++finished_;
    while (!due_.empty() && due_.front().first <= finished_) due_.pop_front();
    done_.notify_all();
  }
}

}  // namespace late
