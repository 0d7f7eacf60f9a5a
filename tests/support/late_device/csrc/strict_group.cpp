// The rules:
// - Operations are queued on streams of the group: one for collectives and one for each peer. An operation waits for the
//   stream that is current at the call. `wait()` orders the current stream after it and does not block the host.
// - Messages have no tags. Those between two ranks, in both directions, run one after the other. A send ends when the
//   receiver has the message.
// - The first call between two ranks, and the first collective, block the host until the peers make theirs.
// - A work handle keeps its tensors until `wait()` or until it is destroyed, whichever is first. Nothing else keeps them.
// - Coalesced messages start together.
#include "strict_group.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <map>
#include <set>

#include "aliases.h"
#include "host_waits.h"
#include "streams.h"

namespace late {

namespace {
constexpr int kAll = -1;
enum Tag { kMessage = 1, kAcknowledge = 2, kContact = 3 };
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class StrictWork final : public c10d::Work {
 public:
  StrictWork(int rank, c10d::OpType type, std::string name, std::vector<at::Tensor> tensors)
      : Work(rank, type), name_(std::move(name)), tensors_(std::move(tensors)) {}

  void set_end(Event end, std::shared_ptr<std::exception_ptr> error) {
    end_ = std::move(end);
    error_ = std::move(error);
  }

  bool isCompleted() override {
    const bool is_done = query(end_);
    if (!is_done) note_host_wait("poll", name_);
    return is_done;
  }
  bool isSuccess() const override { return end_.queue->is_done(end_.position) && !*error_; }
  std::exception_ptr exception() const override {
    return end_.queue->is_done(end_.position) ? *error_ : nullptr;
  }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout) override {
    wait_event(current_stream(), end_);
    tensors_.clear();
    if (timeout != kNoTimeout) {
      note_host_wait("wait with a timeout", name_);
      const auto until = Steady::now() + timeout;
      while (!query(end_)) {
        TORCH_CHECK(Steady::now() < until, name_, ": timed out");
        check_signals();
        end_.queue->wait(end_.position, std::chrono::milliseconds(50));
      }
    }
    if (end_.queue->is_done(end_.position) && *error_) std::rethrow_exception(*error_);
    return true;
  }
  std::vector<at::Tensor> result() override { return tensors_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{c10::Device(at::kPrivateUse1, 0)});
    wait_event(current_stream(), end_);
    future->markCompleted(c10::IValue(tensors_));
    return future;
  }
  void abort() override {}

 private:
  const std::string name_;
  std::vector<at::Tensor> tensors_;
  Event end_;
  std::shared_ptr<std::exception_ptr> error_;
};

class StrictGroup final : public c10d::Backend {
 public:
  StrictGroup(c10::intrusive_ptr<c10d::Backend> gloo, std::chrono::milliseconds timeout)
      : Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)), timeout_(timeout) {}
  ~StrictGroup() override {
    for (const auto& [peer, stream] : streams_) release_stream(stream);
  }

  const std::string getBackendName() const override { return "strict"; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }

  WorkPtr send(std::vector<at::Tensor>& tensors, int peer, int tag) override {
    return message(c10d::OpType::SEND, tensors, peer, tag);
  }
  WorkPtr recv(std::vector<at::Tensor>& tensors, int peer, int tag) override {
    return message(c10d::OpType::RECV, tensors, peer, tag);
  }

  void startCoalescing() override {
    is_coalescing_ = true;
    coalesced_.clear();
  }
  WorkPtr endCoalescing() override {
    is_coalescing_ = false;
    std::vector<Message> messages;
    messages.swap(coalesced_);
    std::set<int> peers;
    for (const Message& message : messages) peers.insert(message.peer);
    return start(c10d::OpType::COALESCED, peers.size() == 1 ? *peers.begin() : kAll, std::move(messages));
  }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    return collective(c10d::OpType::ALLREDUCE, "allreduce", {}, tensors, [=](auto& gloo, auto& /*in*/, auto& out) {
      return gloo.allreduce(out, options);
    });
  }
  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return collective(c10d::OpType::BROADCAST, "broadcast", {}, tensors, [=](auto& gloo, auto& /*in*/, auto& out) {
      return gloo.broadcast(out, options);
    });
  }
  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& options) override {
    TORCH_CHECK(outputs.size() == 1, "strict: one list of tensors");
    return collective(c10d::OpType::ALLGATHER, "allgather", inputs, outputs[0],
                      [=](auto& gloo, auto& in, auto& out) {
                        std::vector<std::vector<at::Tensor>> lists{out};
                        return gloo.allgather(lists, in, options);
                      });
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    std::vector<at::Tensor> inputs{input}, outputs{output};
    return collective(c10d::OpType::_ALLGATHER_BASE, "allgather", inputs, outputs,
                      [=](auto& gloo, auto& in, auto& out) { return gloo._allgather_base(out[0], in[0], options); });
  }
  WorkPtr barrier(const c10d::BarrierOptions& /*options*/) override {
    std::vector<at::Tensor> token{at::zeros({1}, at::TensorOptions().device(at::kPrivateUse1))};
    return allreduce(token, c10d::AllreduceOptions());
  }

 private:
  struct Message {
    bool is_send;
    int peer;
    std::vector<at::Tensor> tensors;
  };
  using Tensors = std::vector<at::Tensor>;

  WorkPtr message(c10d::OpType type, const Tensors& tensors, int peer, int tag) {
    TORCH_CHECK(tag == 0, "strict: messages have no tags, got ", tag);
    TORCH_CHECK(peer != rank_, "strict: a rank cannot send to itself");
    check(tensors);
    contact(peer);
    Message message{type == c10d::OpType::SEND, peer, tensors};
    if (is_coalescing_) {
      coalesced_.push_back(std::move(message));
      return c10::make_intrusive<StrictWork>(rank_, type, "coalesced", Tensors{});
    }
    return start(type, peer, {std::move(message)});
  }

  WorkPtr start(c10d::OpType type, int stream, std::vector<Message> messages) {
    std::vector<BlockAccess> touched;
    Tensors kept;
    std::string name;
    Aliases aliases;
    struct Part {
      bool is_send;
      int peer;
      Tensors tensors;
    };
    std::vector<Part> parts;
    for (const Message& message : messages) {
      name += (name.empty() ? "" : ", ") + std::string(message.is_send ? "send to rank " : "receive from rank ") +
              std::to_string(message.peer);
      Part part{message.is_send, message.peer, {}};
      for (const at::Tensor& tensor : message.tensors) {
        add_access(touched, tensor, !message.is_send);
        kept.push_back(tensor);
        part.tensors.push_back(aliases.of(tensor));
      }
      parts.push_back(std::move(part));
    }
    auto run = [gloo = gloo_, parts = std::move(parts), timeout = timeout_]() mutable {
      std::vector<WorkPtr> works;
      const auto wait_all = [&] {
        for (const WorkPtr& work : works) work->wait(timeout);
        works.clear();
      };
      for (Part& part : parts) {
        works.push_back(part.is_send ? gloo->send(part.tensors, part.peer, kMessage)
                                     : gloo->recv(part.tensors, part.peer, kMessage));
      }
      wait_all();
      std::vector<Tensors> tokens(parts.size(), Tensors{});
      for (size_t i = 0; i < parts.size(); ++i) {
        tokens[i].push_back(at::zeros({1}));
        works.push_back(parts[i].is_send ? gloo->recv(tokens[i], parts[i].peer, kAcknowledge)
                                         : gloo->send(tokens[i], parts[i].peer, kAcknowledge));
      }
      wait_all();
    };
    return submit(type, stream, std::move(name), touched, std::move(kept), std::move(run));
  }

  template <typename Call>
  WorkPtr collective(c10d::OpType type, const char* name, const Tensors& inputs, const Tensors& outputs, Call call) {
    check(inputs);
    check(outputs);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) contact(peer);
    }
    std::vector<BlockAccess> touched;
    Aliases aliases;
    Tensors in, out, kept;
    for (const at::Tensor& tensor : inputs) {
      add_access(touched, tensor, false);
      in.push_back(aliases.of(tensor));
      kept.push_back(tensor);
    }
    for (const at::Tensor& tensor : outputs) {
      add_access(touched, tensor, true);
      out.push_back(aliases.of(tensor));
      kept.push_back(tensor);
    }
    auto run = [gloo = gloo_, in, out, call, timeout = timeout_]() mutable { call(*gloo, in, out)->wait(timeout); };
    return submit(type, kAll, name, touched, std::move(kept), std::move(run));
  }

  WorkPtr submit(c10d::OpType type, int stream_key, std::string name, const std::vector<BlockAccess>& touched,
                 Tensors kept, std::function<void()> run) {
    ++sequence_;
    auto found = streams_.find(stream_key);
    if (found == streams_.end()) found = streams_.emplace(stream_key, new_stream()).first;
    const StreamId stream = found->second;
    wait_event(stream, record(current_stream()));
    auto work = c10::make_intrusive<StrictWork>(rank_, type, name, std::move(kept));
    auto error = std::make_shared<std::exception_ptr>();
    enqueue(stream, name, touched, [run = std::move(run), error] {
      try {
        run();
      } catch (...) {
        *error = std::current_exception();
      }
    }, true);
    work->set_end(record(stream), error);
    return work;
  }

  static void check(const Tensors& tensors) {
    for (const at::Tensor& tensor : tensors) {
      TORCH_CHECK(is_late(tensor), "strict: expected a tensor of the device, got one on ", tensor.device());
      TORCH_CHECK(tensor.is_non_overlapping_and_dense(), "strict: tensors must be contiguous");
    }
  }

  // Blocks the host until the peer makes its first call, too, as NCCL does when it opens a communicator.
  void contact(int peer) {
    if (!contacted_.insert(peer).second) return;
    Tensors mine{at::zeros({1})}, theirs{at::zeros({1})};
    auto send = gloo_->send(mine, peer, kContact);
    auto recv = gloo_->recv(theirs, peer, kContact);
    send->wait(timeout_);
    recv->wait(timeout_);
  }

  const c10::intrusive_ptr<c10d::Backend> gloo_;
  std::chrono::milliseconds timeout_;
  std::map<int, StreamId> streams_;
  std::set<int> contacted_;
  std::vector<Message> coalesced_;
  bool is_coalescing_ = false;
  uint64_t sequence_ = 0;
};
}  // namespace

c10::intrusive_ptr<c10d::Backend> make_strict_group(
    c10::intrusive_ptr<c10d::Backend> gloo, std::chrono::milliseconds timeout) {
  return c10::make_intrusive<StrictGroup>(std::move(gloo), timeout);
}

}  // namespace late
