// Vector clocks: one component for each stream, counting the operations that were queued on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace late {

class VectorClock {
 public:
  uint64_t at(size_t stream) const { return stream < counts_.size() ? counts_[stream] : 0; }

  uint64_t advance(size_t stream) {
    if (stream >= counts_.size()) counts_.resize(stream + 1, 0);
    return ++counts_[stream];
  }

  void join(const VectorClock& other) {
    if (other.counts_.size() > counts_.size()) counts_.resize(other.counts_.size(), 0);
    for (size_t i = 0; i < other.counts_.size(); ++i) counts_[i] = std::max(counts_[i], other.counts_[i]);
  }

 private:
  std::vector<uint64_t> counts_;
};

}  // namespace late
