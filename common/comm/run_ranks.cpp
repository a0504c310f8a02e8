#include <thread>

#include "common/comm/self_comm.h"
#include "common/comm/thread_comm.h"
#include "common/error.h"

namespace ladder {
namespace {

/// The exception being handled, with its rank before its message.
std::exception_ptr with_rank(int rank, std::string& message) {
  try {
    throw;
  } catch (const UserError& e) {
    message = fmt::format("rank {}: {}", rank, e.what());
    return std::make_exception_ptr(UserError("{}", message));
  } catch (const CheckError& e) {
    message = fmt::format("rank {}: {}", rank, e.what());
    return std::make_exception_ptr(CheckError(message));
  } catch (const std::exception& e) {
    message = fmt::format("rank {}: {}", rank, e.what());
  } catch (...) {
    message = fmt::format("rank {}: an exception of unknown type", rank);
  }
  return std::make_exception_ptr(std::runtime_error(message));
}

void run_rank(const std::shared_ptr<ThreadGroup>& group, int rank,
              const std::function<void(Comm&)>& body) {
  ThreadWorld& world = group->world();
  world.enter(rank);
  try {
    ThreadComm comm(group, rank);
    body(comm);
  } catch (const Aborted&) {
    // A consequence: the rank that has the cause says it.
  } catch (...) {
    std::string message;
    const std::exception_ptr error = with_rank(rank, message);
    const ThreadWorld::Lock lock = world.lock();
    world.fail(error, message);
  }
  world.leave(rank);
}

}  // namespace

void run_ranks(int ranks, const std::function<void(Comm&)>& body) {
  CHECK(ranks >= 1, "{} ranks", ranks);
  if (ranks == 1) {
    SelfComm comm;
    return body(comm);
  }
  const auto world = std::make_shared<ThreadWorld>(ranks);
  std::vector<int> members;
  for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
  const auto group = std::make_shared<ThreadGroup>(world, members);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] { run_rank(group, rank, body); });
  }
  if (world->error()) std::rethrow_exception(world->error());
}

}  // namespace ladder
