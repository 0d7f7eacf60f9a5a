// The random generators of the device. They give the numbers of the CPU's generator for the same seed.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

namespace late {

const at::Generator& default_generator();
at::Generator new_generator();

// A CPU generator that continues a device generator; and the way back.
at::Generator to_cpu(at::Generator generator);
void take_state(at::Generator generator, at::Generator source);

}  // namespace late
