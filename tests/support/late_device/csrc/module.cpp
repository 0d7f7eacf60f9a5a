// The Python module of the device.
#include <torch/extension.h>
#include <torch/csrc/utils/pybind.h>

#include "device.h"
#include "generator.h"
#include "hardware_queue.h"
#include "host_waits.h"
#include "inference.h"
#include "operators.h"
#include "races.h"
#include "settings.h"
#include "streams.h"
#include "strict_group.h"

namespace {
late::Pace pace_named(const std::string& name) {
  if (name == "eager") return late::Pace::kEager;
  if (name == "lazy") return late::Pace::kLazy;
  TORCH_CHECK(name == "random", "late: the pace is eager, lazy or random, not ", name);
  return late::Pace::kRandom;
}

void configure(const std::string& pace, uint64_t seed, size_t num_queues, size_t limit_bytes, int64_t max_delay_us,
               bool checks_races) {
  TORCH_CHECK(num_queues >= 1, "late: at least one hardware queue");
  auto& settings = late::settings();
  settings.pace = pace_named(pace);
  settings.seed = seed;
  settings.num_queues = num_queues;
  settings.limit_bytes = limit_bytes;
  settings.max_delay_us = max_delay_us;
  settings.checks_races = checks_races;
}
}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  namespace py = pybind11;
  m.def("register_device", [] {
    late::register_device();
    return late::register_operators();
  });
  m.def("configure", &configure, py::arg("pace"), py::arg("seed"), py::arg("num_queues"), py::arg("limit_bytes"),
        py::arg("max_delay_us"), py::arg("checks_races"), py::call_guard<py::gil_scoped_release>());
  m.def("default_generator", [] { return late::default_generator(); });
  m.def("stop", &late::stop_queues);
  m.def("take_races", [] {
    py::gil_scoped_release release;
    late::DeviceLock lock;
    return late::take_races();
  });
  m.def("take_host_waits", [] {
    std::vector<std::tuple<std::string, std::string, std::string, bool>> rows;
    for (auto& wait : late::take_host_waits()) rows.emplace_back(wait.kind, wait.name, wait.place, wait.is_main_thread);
    return rows;
  });
  m.def("take_inference_failures", &late::take_inference_failures);
  m.def("raise_job_error", &late::raise_job_error);
  m.def("make_strict_group", [](c10::intrusive_ptr<c10d::Backend> gloo, double timeout_s) {
    return late::make_strict_group(std::move(gloo), std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000)));
  });
}
