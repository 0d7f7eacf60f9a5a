// What the schema of an operator says about how the device must run it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

namespace late {

enum class OperatorClass {
  kView,     // gives another view of its argument's memory: runs at once, touches no memory
  kRead,     // gives a value to the host, or a shape that depends on values: the host waits
  kRandom,   // reads a random generator, whose state advances in the order of the host
  kFactory,  // has no tensor arguments
  kQueued,   // everything else
};

struct OperatorInfo {
  OperatorClass kind;
  std::string name;
  // For each argument: whether the operator writes it, and whether it only writes it (out=).
  std::vector<bool> writes, is_out;
  // For each result: the argument that it is, or -1.
  std::vector<int> result_argument;
  int generator_argument = -1;
  bool has_out = false;
  bool is_in_place = false;  // every result is an argument
  bool may_index_by_mask = false;  // gives a shape that depends on values only if an index is a mask
  bool takes_host_indices = false;
};

const OperatorInfo& info_of(const c10::OperatorHandle& op);

}  // namespace late
