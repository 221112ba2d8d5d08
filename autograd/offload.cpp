#include "spool/autograd/offload.h"

#include "spool/runtime/files/spill_file.h"
#include "spool/runtime/meta/stream.h"

namespace spool {
namespace {

size_t whole_pages(size_t bytes) {
  constexpr size_t page = SpillFile::alignment;
  return std::max<size_t>((bytes + page - 1) / page, 1) * page;
}

bool is_meta(Stream& stream) { return stream.device().type == DeviceType::meta; }

double disk_seconds(Stream& stream, size_t bytes) {
  if (!is_meta(stream)) return 0;
  const Machine& machine = static_cast<MetaStream&>(stream).machine();
  return static_cast<double>(bytes) / machine.disk_bytes_per_second;
}

// Part of the file, given back when it goes.
class FileSlot {
 public:
  FileSlot(Arena& arena, size_t bytes, const char* name)
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

// Has a queue do some work; where that fails half way, what it was given is done before its memory
// goes.
template <class Work>
void enqueue_whole(Stream& queue, const Work& work) {
  try {
    work();
  } catch (...) {
    try {
      queue.synchronize();
    } catch (...) {  // then nothing is under way
    }
    throw;
  }
}

}  // namespace

// A tensor, or its first rows, on its way out, away, or on its way back.
class Offloader::Away : public std::enable_shared_from_this<Offloader::Away> {
 public:
  Away(Offloader& owner, const Tensor& t, const char* name, const Offload& how, int64_t rows);
  ~Away();
  Away(const Away&) = delete;
  Away& operator=(const Away&) = delete;

  bool is(const Tensor& t, const Offload& how) const;
  bool by_default_fetched() const { return how_.fetch < 0; }
  bool is_held() const { return bool(held_); }

  // From here on the memory of what went may serve others.
  void release();
  void fetch();
  Tensor unpack();

 private:
  Stream& compute() const { return owner_.link_.compute(); }
  void send();

  Offloader& owner_;
  const char* name_;
  Spec spec_;
  Offload how_;
  Range stay_;  // rows
  size_t bytes_;
  std::weak_ptr<const void> identity_;
  const std::byte* address_;
  uint64_t number_, tape_;

  Tensor held_;    // until it is released
  Tensor stayed_;  // the rows that do not travel, from then on until the fetch
  std::unique_ptr<FileSlot> file_;
  HostSlot slot_;
  Event gone_, ready_;
  Tensor back_;
  bool waited_ = false;  // for what is coming back
};

Offloader::Away::Away(Offloader& owner, const Tensor& t, const char* name, const Offload& how,
                      int64_t rows)
    : owner_(owner),
      name_(name),
      spec_(t.spec()),
      how_(how),
      stay_{rows, t.shape().rank() ? t.shape()[0] : rows},
      bytes_(t.shape().rank() ? t.view().slice({0, rows}).nbytes() : t.nbytes()),
      identity_(t.memory_identity()),
      address_(t.view().data()),
      number_(owner.next_number_++),
      tape_(owner.tape_),
      held_(t) {
  if (how.target == OffloadTarget::disk) {
    file_ = std::make_unique<FileSlot>(owner.disk_, bytes_, name);
  }
  slot_ = HostSlot(owner.link_, bytes_, name);
  send();
  owner_.away_.emplace(number_, this);
  if (how.release >= 0) owner_.releases_.emplace(how.release, this);
  if (how.fetch >= 0) owner_.fetches_.emplace(how.fetch, this);
}

void Offloader::Away::send() {
  const TraceScope scope(compute().trace(), name_, number_);
  Stream& out = owner_.link_.begin_out();
  enqueue_whole(out, [&] {
    out.copy_out(slot_.data(), held_.view().data(), bytes_);
    if (file_) {
      owner_.used_disk_ = true;
      const size_t pages = whole_pages(bytes_);
      out.host_work("spill to disk", disk_seconds(out, pages),
                    [file = owner_.file_, at = file_->offset(), from = slot_.data(), pages] {
                      file->write(at, from, pages);
                    });
    }
    gone_ = out.record();
  });
  ++owner_.sent_.tensors;
  owner_.sent_.bytes += static_cast<int64_t>(bytes_);
}

// What is still under way must have arrived before the memory goes; after a stream has failed,
// nothing will.
Offloader::Away::~Away() {
  const auto is_this = [this](const auto& at) { return at.second == this; };
  owner_.away_.erase(number_);
  std::erase(owner_.leaving_, this);
  std::erase_if(owner_.releases_, is_this);
  std::erase_if(owner_.fetches_, is_this);
  try {
    if (held_) compute().wait(gone_);
    if (back_ && !waited_) compute().wait(ready_);
  } catch (...) {
  }
}

bool Offloader::Away::is(const Tensor& t, const Offload& how) const {
  const auto alive = identity_.lock();
  return tape_ == owner_.tape_ && alive && alive == t.memory_identity().lock() &&
         address_ == t.view().data() && spec_ == t.spec() && how_.rows == how.rows &&
         how_.target == how.target;
}

void Offloader::Away::release() {
  if (!held_) return;
  compute().wait(gone_);
  if (stay_.size() > 0) {
    const Tensor rest = held_.slice(stay_);
    stayed_ = Tensor(rest.spec(), compute(), {.name = name_});
    compute().copy(stayed_.view().data(), rest.view().data(), rest.nbytes());
  }
  held_ = {};
  if (file_) slot_ = {};
}

void Offloader::Away::fetch() {
  if (held_ || back_) return;
  const TraceScope scope(compute().trace(), name_, number_);
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
    ready_ = in.record();
  });
  back_ = back;
  ++owner_.returned_.tensors;
  owner_.returned_.bytes += static_cast<int64_t>(bytes_);
  if (stay_.size() == 0) return;
  const Tensor rest = back_.slice(stay_);
  compute().copy(rest.view().data(), stayed_.view().data(), rest.nbytes());
  stayed_ = {};
}

Tensor Offloader::Away::unpack() {
  if (held_) return held_;
  fetch();
  if (!std::exchange(waited_, true)) compute().wait(ready_);
  slot_ = {};
  if (by_default_fetched()) owner_.fetch_before(number_);
  return back_;
}

// Of one value; several may share what travels.
class Offloader::Handle final : public SavedTensor {
 public:
  explicit Handle(std::shared_ptr<Away> away) : away_(std::move(away)) {}
  Tensor unpack() override { return away_->unpack(); }

 private:
  std::shared_ptr<Away> away_;
};

Offloader::Offloader(HostLink& link) : link_(link), disk_(nullptr, 0, "disk") {}

Offloader::Offloader(HostLink& link, const std::filesystem::path& directory, size_t bytes)
    : link_(link),
      file_(is_meta(link.compute()) || bytes == 0 ? nullptr
                                                  : std::make_shared<SpillFile>(directory, bytes)),
      has_disk_(true),
      disk_(nullptr, bytes, "disk") {}

Offloader::~Offloader() = default;

std::shared_ptr<Offloader::Away> Offloader::find(const Tensor& t, const Offload& how) const {
  for (const auto& [number, away] : away_) {
    if (away->is(t, how)) return away->shared_from_this();
  }
  return nullptr;
}

std::unique_ptr<SavedTensor> Offloader::pack(const Tensor& t, const SavedInfo& info,
                                             const Offload& how) {
  check(&t.stream() == &link_.compute(), "offload: value ", info.value, " (", info.op,
        ") is on another stream than the offloader's link");
  check(how.target == OffloadTarget::host || has_disk_, "plan: value ", info.value, " (", info.op,
        ") is to go to a disk, and the offloader was given no directory");
  const int64_t extent = t.shape().rank() ? t.shape()[0] : 1;
  check(how.rows <= extent, "plan: ", how.rows, " rows of value ", info.value, " (", info.op,
        ") are to be offloaded, and it has ", extent);
  std::shared_ptr<Away> away = find(t, how);
  if (!away) {
    away = std::make_shared<Away>(*this, t, info.op, how, how.rows < 0 ? extent : how.rows);
    if (how.release < 0) limit_leaving(away.get());
  }
  return std::make_unique<Handle>(std::move(away));
}

void Offloader::limit_leaving(Away* latest) {
  constexpr size_t most = 2;
  leaving_.push_back(latest);
  if (leaving_.size() <= most) return;
  leaving_.front()->release();
  leaving_.pop_front();
}

void Offloader::before_forward(NodeId node) {
  if (node == 0) ++tape_;
  while (!releases_.empty() && releases_.begin()->first <= node) {
    releases_.begin()->second->release();
    releases_.erase(releases_.begin());
  }
}

void Offloader::begin_backward() { fetch_before(next_number_); }

// Of those that the plan leaves to us.
void Offloader::fetch_before(uint64_t number) {
  for (auto at = away_.lower_bound(number); at != away_.begin();) {
    Away& away = *(--at)->second;
    if (!away.by_default_fetched() || away.is_held()) continue;
    return away.fetch();
  }
}

void Offloader::before_backward(NodeId node) {
  while (!fetches_.empty() && fetches_.rbegin()->first >= node) {
    const auto last = std::prev(fetches_.end());
    last->second->fetch();
    fetches_.erase(last);
  }
}

void Offloader::end_backward() {
  if (std::exchange(used_disk_, false)) link_.synchronize();
}

}  // namespace spool
