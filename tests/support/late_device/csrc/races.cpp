#include "races.h"

#include <sstream>

#include "host_waits.h"
#include "settings.h"

namespace late {

namespace {
constexpr size_t kMaxReports = 200;
std::vector<std::string>& reports() {
  static auto* all = new std::vector<std::string>();
  return *all;
}
}  // namespace

std::vector<std::string> take_races() {
  std::vector<std::string> taken;
  taken.swap(reports());
  return taken;
}

void Shadow::report(const Past& past, const std::string& name, const std::string& stream, bool is_write) const {
  if (reports().size() >= kMaxReports) return;
  std::ostringstream text;
  text << name << " (" << (is_write ? "writes" : "reads") << ", " << stream << ") is not ordered after " << past.name
       << " (" << (past.access.is_write ? "writes" : "reads") << ", stream " << past.stream << "): bytes "
       << past.access.begin << " to " << past.access.end << " of a block of " << bytes_ << "; at " << python_place();
  reports().push_back(text.str());
}

void Shadow::check(
    const Access& access, size_t stream, uint64_t count, const VectorClock& clock, const std::string& name) {
  if (!settings().checks_races || access.begin >= access.end) return;
  size_t kept = 0;
  for (size_t i = 0; i < past_.size(); ++i) {
    const Past& past = past_[i];
    const bool overlaps = past.access.begin < access.end && access.begin < past.access.end;
    const bool is_ordered = clock.at(past.stream) >= past.count;
    if (overlaps && !is_ordered && (access.is_write || past.access.is_write)) {
      report(past, name, "stream " + std::to_string(stream), access.is_write);
    }
    // A later access that is ordered after this one, covers it and conflicts with whatever it conflicts with, stands
    // for it from now on.
    const bool covers = access.begin <= past.access.begin && past.access.end <= access.end;
    const bool stands_for = covers && is_ordered && (access.is_write || !past.access.is_write);
    if (!stands_for) {
      if (kept != i) past_[kept] = std::move(past_[i]);
      ++kept;
    }
  }
  past_.resize(kept);
  past_.push_back({access, stream, count, name});
}

void Shadow::check_free(
    const VectorClock& clock, const std::vector<size_t>& recorded, const std::string& name) const {
  if (!settings().checks_races) return;
  for (const Past& past : past_) {
    const bool is_recorded = std::find(recorded.begin(), recorded.end(), past.stream) != recorded.end();
    if (!is_recorded && clock.at(past.stream) < past.count) report(past, name, "at free", true);
  }
}

}  // namespace late
