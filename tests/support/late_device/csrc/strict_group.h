// A process group with the rules of NCCL, carried by gloo.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace late {

// `gloo` carries the bytes. Nothing else may use it.
c10::intrusive_ptr<c10d::Backend> make_strict_group(
    c10::intrusive_ptr<c10d::Backend> gloo, std::chrono::milliseconds timeout);

}  // namespace late
