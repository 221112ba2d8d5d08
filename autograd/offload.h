#pragma once

// Sends saved tensors off the device after they are made and brings them back before they are
// needed, beside what the device computes (vDNN, Rhu et al. 2016; swapping with a tape's knowledge
// of the order, Peng et al. 2020, "Capuchin").
//
// What is sent is held on the device until its copy has gone: at a fixed place on the tape, its
// release, the compute stream waits for the copy, and from there on the memory may serve others. At
// another place, its fetch, memory is taken and the copy back begins; who reads it makes the
// compute stream wait for that.  So everything is ordered by places on the compute stream, the peak
// does not depend on how fast anything is, a rehearsal sees it, and the host never waits.  What is
// needed before it was released has never left.
//
// The places come from the plan.  Without: a value is released when the second after it is sent,
// and fetched when the one sent after it is first needed in backward.
//
// One tape at a time.  On the way to a file, values pass through host memory.  A file that cannot
// be written makes the tape throw, in forward or at the end of backward, for which the host then
// waits, before anybody uses the gradients.

#include <deque>
#include <filesystem>
#include <map>

#include "spool/autograd/plan.h"
#include "spool/autograd/saved_tensor.h"
#include "spool/runtime/memory/host_link.h"

namespace spool {

class SpillFile;  // runtime/spill_file.h

class Offloader {
 public:
  // To the host, in slots of the link.
  explicit Offloader(HostLink& link);
  // And to a nameless file of so many bytes in the directory.  Throws where there is not that much.
  Offloader(HostLink& link, const std::filesystem::path& directory, size_t bytes);
  ~Offloader();
  Offloader(const Offloader&) = delete;
  Offloader& operator=(const Offloader&) = delete;

  // Sends the tensor; the caller's own hold on it is not touched.  Tensors on the same memory
  // travel once.  Throws where host or file is full, which a rehearsal foretells.
  std::unique_ptr<SavedTensor> pack(const Tensor&, const SavedInfo&, const Offload&);

  // The tape tells where it is: before it runs this node, before it goes backward, before it
  // differentiates this node, and when it has gone backward.
  void before_forward(NodeId);
  void begin_backward();
  void before_backward(NodeId);
  void end_backward();

  // What tapes have sent out so far, and what came back of it.
  struct Traffic {
    int64_t tensors = 0, bytes = 0;
  };
  const Traffic& sent() const { return sent_; }
  const Traffic& returned() const { return returned_; }

  // Of the file; its bytes are whole pages.
  const MemoryStats& disk() const { return disk_.stats(); }

 private:
  class Away;
  class Handle;
  friend class Away;

  std::shared_ptr<Away> find(const Tensor&, const Offload&) const;
  void limit_leaving(Away* latest);
  void fetch_before(uint64_t number);

  HostLink& link_;
  std::shared_ptr<SpillFile> file_;  // queued work holds it too
  bool has_disk_ = false, used_disk_ = false;
  Arena disk_;
  uint64_t next_number_ = 0, tape_ = 0;
  Traffic sent_, returned_;
  std::map<uint64_t, Away*> away_;  // in the order they were sent
  std::deque<Away*> leaving_;       // of those without a place, the ones that are held
  std::multimap<NodeId, Away*> releases_, fetches_;  // by the places the plan gave
};

}  // namespace spool
