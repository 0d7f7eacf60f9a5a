#include "host_waits.h"

#include <Python.h>
#include <torch/csrc/Exceptions.h>
#include <unistd.h>
#include <sys/syscall.h>

#include <mutex>
#include <sstream>

namespace late {

namespace {
constexpr size_t kMaxWaits = 100000;
constexpr int kFrames = 5;
std::mutex waits_mutex;
std::vector<HostWait>& waits() {
  static auto* all = new std::vector<HostWait>();
  return *all;
}

struct Gil {
  PyGILState_STATE state = PyGILState_Ensure();
  ~Gil() { PyGILState_Release(state); }
};
}  // namespace

bool is_main_thread() { return syscall(SYS_gettid) == getpid(); }

std::string python_place() {
  if (!Py_IsInitialized()) return "the end of the process";
  Gil gil;
  std::ostringstream text;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  if (frame == nullptr) return "a thread without Python";
  for (int depth = 0; frame != nullptr && depth < kFrames; ++depth) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    const char* function = PyUnicode_AsUTF8(code->co_name);
    text << (depth ? " < " : "") << (file ? file : "?") << ":" << PyFrame_GetLineNumber(frame) << " "
         << (function ? function : "?");
    Py_DECREF(code);
    PyFrameObject* outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  Py_XDECREF(frame);
  return text.str();
}

void note_host_wait(const std::string& kind, const std::string& name) {
  std::string place = python_place();
  std::lock_guard lock(waits_mutex);
  if (waits().size() < kMaxWaits) waits().push_back({kind, name, std::move(place), is_main_thread()});
}

std::vector<HostWait> take_host_waits() {
  std::lock_guard lock(waits_mutex);
  std::vector<HostWait> taken;
  taken.swap(waits());
  return taken;
}

void check_signals() {
  if (!Py_IsInitialized() || !is_main_thread()) return;
  Gil gil;
  if (PyErr_CheckSignals() != 0) {
    python_error error;
    error.persist();
    throw error;
  }
}

}  // namespace late
