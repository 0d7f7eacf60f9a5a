// The happens-before check: two accesses to the same bytes, one of them a write, must be ordered by streams, events or
// the host. The order follows from the calls alone, not from what happened to run first, so a missing wait is found
// even when the numbers are right.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "vector_clock.h"

namespace late {

struct Access {
  size_t begin, end;  // bytes of the block
  bool is_write;
};

// What was done to the bytes of one block of memory.
class Shadow {
 public:
  // Checks an operation of a stream against earlier ones and remembers it. `clock` is the stream's, including it.
  void check(const Access& access, size_t stream, uint64_t count, const VectorClock& clock, const std::string& name);
  // Checks that every access so far is ordered before `clock`, the clock of the stream that will reuse the block.
  // Streams in `recorded` may be behind: the allocator waits for them.
  void check_free(const VectorClock& clock, const std::vector<size_t>& recorded, const std::string& name) const;
  void clear() { past_.clear(); }
  void set_size(size_t bytes) { bytes_ = bytes; }

 private:
  struct Past {
    Access access;
    size_t stream;
    uint64_t count;
    std::string name;
  };
  void report(const Past& past, const std::string& name, const std::string& stream, bool is_write) const;

  std::vector<Past> past_;
  size_t bytes_ = 0;
};

// Returns all reports since the last call.
std::vector<std::string> take_races();

}  // namespace late
