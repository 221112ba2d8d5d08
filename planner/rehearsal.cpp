#include "spool/planner/rehearsal.h"

#include <algorithm>
#include <iomanip>
#include <numeric>
#include <span>
#include <sstream>

#include "spool/runtime/ranks/communicator.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

std::string work_of(const LiveAtPeak& a) {
  if (a.op.empty()) return a.phase;
  return sentence(a.phase, " of ", a.op, " (node ", a.node, ")");
}

void add_row(std::ostream& out, size_t bytes, std::string_view what) {
  out << std::right << std::setw(12) << format_bytes(bytes) << "  " << what << '\n';
}

void add_live(std::ostream& out, const std::vector<LiveAtPeak>& all, size_t max) {
  if (all.empty() || max == 0) return;
  out << "live at the peak, the largest first\n";
  const size_t shown = std::min(max, all.size());
  for (const LiveAtPeak& a : std::span(all).first(shown)) {
    const std::string work = work_of(a);
    add_row(out, a.bytes, sentence(a.name, ", ", a.spec, work.empty() ? "" : "; ", work));
  }
  const auto add = [](size_t sum, const LiveAtPeak& a) { return sum + a.bytes; };
  const size_t rest =
      std::accumulate(all.begin() + static_cast<std::ptrdiff_t>(shown), all.end(), size_t{0}, add);
  if (rest > 0) add_row(out, rest, sentence(all.size() - shown, " more"));
}

Report report_of(const MetaStream& stream) {
  check_all_free(stream);
  return {.memory = stream.memory(),
          .seconds = stream.now(),
          .missing = {stream.missing().begin(), stream.missing().end()}};
}

}  // namespace

void check_all_free(const MetaStream& stream) {
  check(stream.memory().live == 0, "rehearsal: ", stream.memory().live,
        " bytes are still live when it ends");
  check(stream.memory().external == 0, "rehearsal: tensors over ", stream.memory().external,
        " bytes of other memory are still live when it ends");
}

std::vector<LiveAtPeak> live_at_peak(const AllocationLog& log) {
  const std::vector<const LoggedAllocation*> recorded = log.at_peak();
  std::vector<LiveAtPeak> all;
  all.reserve(recorded.size());
  for (const LoggedAllocation* a : recorded) {
    const TraceContext& work = a->born_in;
    all.push_back({.name = a->label.name.c_str(),
                   .purpose = a->label.purpose,
                   .bytes = a->bytes,
                   .spec = a->spec,
                   .phase = work ? work.task : "",
                   .op = work.node >= 0 ? work.op : "",
                   .node = static_cast<NodeId>(work.node)});
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, &LiveAtPeak::bytes);
  return all;
}

Report rehearse_totals(const Machine& machine, const std::function<void(MetaStream&)>& work) {
  MetaStream stream(machine);
  work(stream);
  return report_of(stream);
}

Report rehearse(const Machine& machine, const std::function<void(MetaStream&)>& work) {
  MetaStream stream(machine);
  const AllocationLog log(stream.arena());
  work(stream);
  Report report = report_of(stream);
  report.at_peak = live_at_peak(log);
  return report;
}

std::string in_words(const Report& report, size_t max) {
  std::ostringstream out;
  out << "peak " << format_bytes(report.memory.peak) << ", " << format_seconds(report.seconds)
      << '\n';
  size_t live = 0;
  for (const Purpose p : enumerators<Purpose>()) {
    const size_t bytes = report.memory.at_peak_by[p];
    if (bytes > 0) add_row(out, bytes, name(p));
    live += bytes;
  }
  if (report.memory.peak > live) add_row(out, report.memory.peak - live, "holes between them");
  add_live(out, report.at_peak, max);
  if (!report.missing.empty()) {
    out << "kernels without a form for this kind of device:";
    for (const std::string& kernel : report.missing) out << ' ' << kernel;
    out << '\n';
  }
  return out.str();
}

std::unique_ptr<Stream> open_stream_for(const std::function<void(Stream&)>& work, Device device,
                                        int threads, const std::shared_ptr<Communicator>& ranks) {
  const auto probe = open_stream(device, Arena::granule, threads);
  const Machine machine{.architecture = probe->architecture(), .mesh = mesh_of(ranks.get())};
  const size_t peak = rehearse_totals(machine, work).memory.peak, capacity = device_memory(device);
  if (peak > capacity) {
    fail_memory({.what = "this",
                 .needed = peak,
                 .available = capacity,
                 .place = sentence("on the device ", name(device.type))});
  }
  std::unique_ptr<Stream> stream = open_stream(device, peak, threads);
  stream->join(ranks);
  return stream;
}

}  // namespace spool
