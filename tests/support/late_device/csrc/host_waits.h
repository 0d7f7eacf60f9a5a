// Records where the host waits for the device. In the middle of a step it should not.
#pragma once

#include <string>
#include <vector>

namespace late {

struct HostWait {
  std::string kind;   // "synchronize", "event", "copy", "read", "poll", "reclaim", "shape"
  std::string name;   // the operator or the call
  std::string place;  // innermost frames of Python
  bool is_main_thread;
};

void note_host_wait(const std::string& kind, const std::string& name);
std::vector<HostWait> take_host_waits();
// The innermost frames of Python on this thread, innermost first; "a thread without Python" if there are none.
std::string python_place();
bool is_main_thread();
// Raises the exception of a pending signal, if Python has one: a wait for the device must be interruptible.
void check_signals();

}  // namespace late
