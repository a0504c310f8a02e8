#include "common/comm/failure.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <new>
#include <system_error>
#include <thread>

#include "common/comm/patience.h"
#include "common/comm/run_ranks.h"
#include "common/printable.h"
#include "kernels/check.h"
#include "kernels/mapped_file.h"

namespace ladder {

Failure failure(std::optional<int> rank) {
  std::string who = rank ? rank_name(*rank) + ": " : "";
  const auto told = [&](const char* kind, std::string_view what, int status) {
    return Failure{.line = fmt::format("{}: {}{}", kind, who, what), .status = status};
  };
  const auto out_of_memory = [&](std::string_view what) {
    Failure end = told("error", what, 2);
    end.line +=
        "; a smaller --batch, --micro-batch (from chapter 04 on), --seq-len or --model "
        "takes less";
    return end;
  };
  try {
    throw;
  } catch (const RankFailed& e) {
    return e.failure();
  } catch (const NotWritten& e) {
    if (rank && e.rank() != rank) who = fmt::format("rank {}: ", e.rank());
    return told("error", e.what(), kNotDone);
  } catch (const NotDone& e) {
    return told("error", e.what(), kNotDone);
  } catch (const UserError& e) {
    return told("error", e.what(), 2);
  } catch (const TimedOut& e) {
    return told("error", e.what(), 1);
  } catch (const std::filesystem::filesystem_error& e) {
    const std::string path = e.path1().string();
    return told("error", fmt::format("{}: {}", shortened(path), e.code().message()), 2);
  } catch (const NoTemporaryFile& e) {
    return told("error", e.what(), 2);
  } catch (const OutOfMemory& e) {
    return out_of_memory(e.what());
  } catch (const std::bad_alloc&) {
    return out_of_memory("no memory beside the tensors");
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::resource_unavailable_try_again)
      return told("internal error", e.what(), 1);
    return told("error",
                "the system starts no further thread; fewer --threads or --ranks take less", 2);
  } catch (const std::exception& e) {
    return told("internal error", e.what(), 1);
  } catch (...) {
    return told("internal error", "an exception of unknown type", 1);
  }
}

// fmt::print would throw, inside a handler, if stderr is closed or full. A message may quote a
// path, or any bytes of a damaged file.
void tell(const std::string& line) {
  constexpr size_t kMost = 2000;
  std::fputs((printable(shortened(line, kMost)) + "\n").c_str(), stderr);
}

void wait_for_turn(int rank) {
  constexpr int kMost = 10;
  std::this_thread::sleep_for(std::chrono::seconds(std::min(rank, kMost)));
}

}  // namespace ladder
