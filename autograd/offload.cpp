#include "spool/autograd/offload.h"

#include "spool/runtime/files/spill_file.h"
#include "spool/runtime/integer.h"
#include "spool/runtime/memory/allocation_log.h"
#include "spool/runtime/memory/enqueue_whole.h"
#include "spool/runtime/meta/stream.h"

namespace spool {
namespace {

size_t whole_pages(size_t bytes) {
  constexpr size_t page = SpillFile::alignment;
  return std::max(round_up(bytes, page), page);
}

bool is_meta(Stream& stream) { return stream.device().type == DeviceType::meta; }

double disk_seconds(Stream& stream, size_t bytes) {
  if (!is_meta(stream)) return 0;
  const Machine& machine = static_cast<MetaStream&>(stream).machine();
  return static_cast<double>(bytes) / machine.disk_bytes_per_second;
}

// Part of the file, freed by the destructor.
class FileSlot {
 public:
  FileSlot(Arena& arena, size_t bytes, Name name)
      : arena_(arena),
        block_(arena.allocate({Shape{static_cast<int64_t>(whole_pages(bytes) / 4)}},
                              {.name = name})) {}
  ~FileSlot() { arena_.free(block_); }
  FileSlot(const FileSlot&) = delete;
  FileSlot& operator=(const FileSlot&) = delete;
  size_t offset() const { return reinterpret_cast<uintptr_t>(arena_.address(block_)); }

 private:
  Arena& arena_;
  Arena::Block* block_;
};

}  // namespace

// A tensor that is copied out, or its first rows.
class Offloader::Transfer : public std::enable_shared_from_this<Offloader::Transfer> {
 public:
  Transfer(Offloader& owner, const Tensor& t, Name name, const Offload& how, int64_t rows);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Whether it serves this tensor, which has the same memory, if offloaded this way.
  bool is(const Tensor& t, const Offload& how) const;
  bool has_planned_fetch() const { return how_.fetch >= 0; }
  bool is_released() const { return !original_; }

  // Frees the device memory of the rows that were copied out.
  void release();
  void fetch();
  Tensor unpack();

 private:
  Stream& compute() const { return owner_.link_.compute(); }
  void offload();

  Offloader& owner_;
  Name name_;
  Spec spec_;
  Offload how_;
  Range resident_;  // the rows that stay on the device
  size_t bytes_;    // of the rows that are copied out
  uint64_t number_, tape_;
  std::multimap<Place, Transfer*>::iterator place_;

  Tensor original_;       // until the release
  Tensor resident_rows_;  // from the release until the fetch
  std::unique_ptr<FileSlot> file_;
  HostSlot slot_;
  Event copied_out_, copied_in_;
  Tensor fetched_;       // from the fetch on
  bool waited_ = false;  // the compute stream has waited for copied_in_
};

Offloader::Transfer::Transfer(Offloader& owner, const Tensor& t, Name name, const Offload& how,
                              int64_t rows)
    : owner_(owner),
      name_(name),
      spec_(t.spec()),
      how_(how),
      resident_{rows, t.shape().rank() ? t.shape()[0] : rows},
      bytes_(t.shape().rank() ? t.view().slice({0, rows}).nbytes() : t.nbytes()),
      number_(owner.next_number_++),
      tape_(owner.tape_),
      original_(t) {
  if (how.target == OffloadTarget::disk) {
    file_ = std::make_unique<FileSlot>(owner.disk_, bytes_, name);
  }
  slot_ = HostSlot(owner.link_, bytes_, name);
  offload();
  owner_.transfers_.emplace(number_, this);
  place_ = owner_.places_.emplace(Place(t), this);
  if (how.release >= 0) owner_.releases_.emplace(std::pair(how.release, number_), this);
  if (how.fetch >= 0) owner_.fetches_.emplace(std::pair(how.fetch, number_), this);
}

void Offloader::Transfer::offload() {
  const TraceScope scope(compute().trace(), name_.c_str(), number_);
  if (AllocationLog* log = compute().arena().log()) {
    log->record_offloaded(original_.view().data(), number_);
  }
  Stream& out = owner_.link_.begin_out();
  enqueue_whole(out, [&] {
    out.copy_out(slot_.data(), original_.view().data(), bytes_);
    if (file_) {
      owner_.used_disk_ = true;
      const size_t pages = whole_pages(bytes_);
      out.host_work("spill to disk", disk_seconds(out, pages),
                    [file = owner_.file_, at = file_->offset(), from = slot_.data(), pages] {
                      file->write(at, from, pages);
                    });
    }
    copied_out_ = out.record();
  });
  ++owner_.offloaded_.tensors;
  owner_.offloaded_.bytes += static_cast<int64_t>(bytes_);
}

// Copies that are still running must end before their memory is freed.  A compute stream that has
// failed does not wait for them, so the host does.
Offloader::Transfer::~Transfer() {
  owner_.transfers_.erase(number_);
  owner_.places_.erase(place_);
  std::erase(owner_.unreleased_, this);
  owner_.releases_.erase({how_.release, number_});
  owner_.fetches_.erase({how_.fetch, number_});
  try {
    if (original_) compute().wait(copied_out_);
    if (fetched_ && !waited_) compute().wait(copied_in_);
  } catch (...) {
    wait_quietly(owner_.link_);
  }
}

bool Offloader::Transfer::is(const Tensor& t, const Offload& how) const {
  return tape_ == owner_.tape_ && spec_ == t.spec() && how_.rows == how.rows &&
         how_.target == how.target;
}

void Offloader::Transfer::release() {
  if (!original_) return;
  compute().wait(copied_out_);
  if (resident_.size() > 0) {
    const Tensor rest = original_.slice(resident_);
    resident_rows_ = Tensor(rest.spec(), compute(), {.name = name_});
    if (AllocationLog* log = compute().arena().log()) {
      log->record_rest(resident_rows_.view().data(), number_);
    }
    compute().copy(resident_rows_.view().data(), rest.view().data(), rest.nbytes());
  }
  original_ = {};
  if (file_) slot_ = {};
}

void Offloader::Transfer::fetch() {
  if (original_ || fetched_) return;
  const TraceScope scope(compute().trace(), name_.c_str(), number_);
  const Tensor back(spec_, compute(), {.name = name_});
  if (file_) slot_ = HostSlot(owner_.link_, bytes_, name_);
  Stream& in = owner_.link_.begin_in();
  enqueue_whole(in, [&] {
    if (file_) {
      const size_t pages = whole_pages(bytes_);
      in.host_work("read from disk", disk_seconds(in, pages),
                   [file = owner_.file_, at = file_->offset(), to = slot_.data(), pages] {
                     file->read(at, to, pages);
                   });
    }
    in.copy_in(back.view().data(), slot_.data(), bytes_);
    copied_in_ = in.record();
  });
  fetched_ = back;
  ++owner_.returned_.tensors;
  owner_.returned_.bytes += static_cast<int64_t>(bytes_);
  if (resident_.size() == 0) return;
  const Tensor rest = fetched_.slice(resident_);
  compute().copy(rest.view().data(), resident_rows_.view().data(), rest.nbytes());
  resident_rows_ = {};
}

Tensor Offloader::Transfer::unpack() {
  if (original_) return original_;
  fetch();
  if (!std::exchange(waited_, true)) compute().wait(copied_in_);
  slot_ = {};
  if (!has_planned_fetch()) owner_.fetch_before(number_);
  return fetched_;
}

// One value's saved tensor; several may share a transfer.
class Offloader::Handle final : public SavedTensor {
 public:
  explicit Handle(std::shared_ptr<Transfer> transfer) : transfer_(std::move(transfer)) {}
  Tensor unpack() override { return transfer_->unpack(); }

 private:
  std::shared_ptr<Transfer> transfer_;
};

Offloader::Offloader(HostLink& link) : link_(link), disk_(nullptr, 0, "disk") {}

// The file is tried with the link's memory, which on cuda is pinned, if that has a page to spare.
std::shared_ptr<SpillFile> Offloader::make_file(HostLink& link, const std::string& directory,
                                                size_t bytes) {
  const MemoryStats& memory = link.memory();
  HostSlot page;
  if (memory.capacity - memory.live >= SpillFile::alignment) {
    page = HostSlot(link, SpillFile::alignment, Name::never_freed("trial of the disk"));
  }
  if (is_meta(link.compute()) || bytes == 0) return nullptr;
  return std::make_shared<SpillFile>(directory, bytes, page ? page.data() : nullptr);
}

Offloader::Offloader(HostLink& link, const std::string& directory, size_t bytes)
    : link_(link),
      file_(make_file(link, directory, bytes)),
      has_disk_(true),
      disk_(nullptr, bytes, "disk") {}

Offloader::~Offloader() = default;

bool Offloader::Place::operator<(const Place& other) const {
  if (memory.owner_before(other.memory)) return true;
  return !other.memory.owner_before(memory) && std::less<>()(address, other.address);
}

std::shared_ptr<Offloader::Transfer> Offloader::find(const Tensor& t, const Offload& how) const {
  const auto [begin, end] = places_.equal_range(Place(t));
  for (auto at = begin; at != end; ++at) {
    if (at->second->is(t, how)) return at->second->shared_from_this();
  }
  return nullptr;
}

std::unique_ptr<SavedTensor> Offloader::pack(const Tensor& t, const SavedInfo& info,
                                             const Offload& how) {
  check(&t.stream() == &link_.compute(), "offload: value ", info.value, " (", info.op,
        ") is on another stream than the offloader's link");
  check(how.target == OffloadTarget::host || has_disk_, "plan: value ", info.value, " (", info.op,
        ") is to be offloaded to a disk, but the offloader has no directory");
  const int64_t extent = t.shape().rank() ? t.shape()[0] : 1;
  check(how.rows <= extent, "plan: ", how.rows, " rows of value ", info.value, " (", info.op,
        ") are to be offloaded, but it has ", extent);
  std::shared_ptr<Transfer> transfer = find(t, how);
  if (!transfer) {
    transfer = std::make_shared<Transfer>(*this, t, Name::never_freed(info.op), how,
                                          how.rows < 0 ? extent : how.rows);
    if (how.release < 0) limit_unreleased(transfer.get());
  }
  return std::make_unique<Handle>(std::move(transfer));
}

void Offloader::limit_unreleased(Transfer* latest) {
  constexpr size_t max_unreleased = 2;
  unreleased_.push_back(latest);
  if (unreleased_.size() <= max_unreleased) return;
  unreleased_.front()->release();
  unreleased_.pop_front();
}

void Offloader::before_forward(NodeId node) {
  if (node == 0) ++tape_;
  release_up_to(node);
}

void Offloader::release_up_to(NodeId node) {
  while (!releases_.empty() && releases_.begin()->first.first <= node) {
    releases_.begin()->second->release();
    releases_.erase(releases_.begin());
  }
}

void Offloader::begin_backward(NodeId nodes) {
  release_up_to(nodes);
  fetch_before(next_number_);
}

// Fetches the last tensor offloaded before this one, of those that are released and have no planned
// fetch.
void Offloader::fetch_before(uint64_t number) {
  for (auto at = transfers_.lower_bound(number); at != transfers_.begin();) {
    Transfer& transfer = *(--at)->second;
    if (transfer.has_planned_fetch() || !transfer.is_released()) continue;
    return transfer.fetch();
  }
}

void Offloader::before_backward(NodeId node) {
  while (!fetches_.empty() && fetches_.rbegin()->first.first >= node) {
    const auto last = std::prev(fetches_.end());
    last->second->fetch();
    fetches_.erase(last);
  }
}

void Offloader::end_backward() {
  if (std::exchange(used_disk_, false)) link_.synchronize();
}

}  // namespace spool
