#include "common/comm/failure.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <new>
#include <thread>

#include "common/comm/comm.h"
#include "common/printable.h"
#include "kernels/check.h"
#include "kernels/temporary_file.h"

namespace ladder {
namespace {

constexpr size_t kMostOfALine = 2000;

Failure out_of_memory(const std::string& message) {
  return {"error: " + message +
              "; a smaller --batch, --micro-batch (from chapter 04 on), --seq-len or --model takes "
              "less",
          2};
}

}  // namespace

Failure failure() {
  try {
    throw;
  } catch (const NotWritten& e) {
    return {std::string("error: ") + e.what(), kNotDone};
  } catch (const UserError& e) {
    return {std::string("error: ") + e.what(), 2};
  } catch (const NoTemporaryFile& e) {
    return {std::string("error: ") + e.what(), 2};
  } catch (const OutOfMemory& e) {
    return out_of_memory(e.what());
  } catch (const Stalled& e) {
    return {std::string("error: ") + e.what(), 1};
  } catch (const std::bad_alloc&) {
    return out_of_memory("no memory beside the tensors");
  } catch (const std::exception& e) {
    return {std::string("internal error: ") + e.what(), 1};
  } catch (...) {
    return {"internal error: an exception of unknown type", 1};
  }
}

// fmt::print would throw, inside a handler, if stderr is closed or full. A message may quote a
// path, or any bytes of a damaged file.
void tell(const std::string& line) {
  std::fputs((printable(shortened(line, kMostOfALine)) + "\n").c_str(), stderr);
}

void wait_for_turn(int rank) {
  constexpr int kMost = 10;
  std::this_thread::sleep_for(std::chrono::seconds(std::min(rank, kMost)));
}

}  // namespace ladder
