// A hardware queue: a thread that runs jobs one after the other, in the order in which they were queued.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <string>

namespace late {

using Steady = std::chrono::steady_clock;

struct Job {
  std::string name;
  std::function<void()> run;
  // A message starts even if nobody on this rank waits for it, because a peer may.
  bool is_message = false;
};

class HardwareQueue {
 public:
  explicit HardwareQueue(size_t number);

  // Appends a job and returns its position. Positions start at 1.
  uint64_t push(Job job);
  // States that somebody needs everything up to a position.
  void demand(uint64_t position);
  // The same, but not before a delay has passed: for polling, which does not block.
  void demand_later(uint64_t position, std::chrono::microseconds delay);
  bool is_done(uint64_t position) const;
  // Blocks until the job at a position has run, or until `for_ms` have passed. Returns whether it has run.
  bool wait(uint64_t position, std::chrono::milliseconds for_ms);
  // Blocks a job of another queue until the job at a position has run. Returns early once the device is stopped.
  void wait_in_job(uint64_t position);

 private:
  void work();
  bool may_run(uint64_t position, Steady::time_point now) const;
  void delay_randomly();

  const size_t number_;
  mutable std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<Job> jobs_;
  uint64_t pushed_ = 0, finished_ = 0, demanded_ = 0;
  std::deque<std::pair<uint64_t, Steady::time_point>> due_;
  std::mt19937_64 random_;
  uint64_t seed_ = 0;
};

// The first error of a job since the last call; empty if there is none. As on GPUs, it surfaces at the next wait.
std::string take_job_error();
void note_job_error(const std::string& text);
// Ends the threads as soon as their current jobs end. Called when the process exits.
void stop_queues();
bool is_stopped();

}  // namespace late
