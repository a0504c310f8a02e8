#include "common/run/batch_trial.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <string_view>

#include <fmt/format.h>

#include "common/comm/run_ranks.h"
#include "common/error.h"

namespace ladder {
namespace {

struct {
  const char* flag = nullptr;  ///< null: no command line has one
  int64_t given = 0;
  int64_t tried = 0;  ///< 0: this is no trial
  bool on_device = false;
  std::atomic<int> ranks_there = 0;  ///< how many ranks of the run have their memory
  std::atomic<bool> there = false;   ///< all memory of the run or of the trial
} trial;

bool fits(const std::function<void()>& body, int64_t sequences) {
  trial.tried = sequences;
  trial.there = false;
  try {
    body();
  } catch (const std::exception&) {  // too little memory again, or what memory_is_there() throws
  }
  return trial.there;
}

/// The largest number below that which was given; 0: none. A micro-batch is a power of two, and a
/// smaller one does not always take less: there may be more buffers of gradients.
int64_t largest(const std::function<void()>& body) {
  int64_t least = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(trial.given))) / 2;
  while (least > 0 && !fits(body, least)) least /= 2;
  if (least == 0 || trial.flag != std::string_view("--batch")) return least;
  int64_t most = std::min(2 * least, trial.given);
  while (most - least > 1) {
    const int64_t middle = (least + most) / 2;
    (fits(body, middle) ? least : most) = middle;
  }
  return least;
}

}  // namespace

int64_t trial_batch(const char* flag, int64_t given) {
  if (trial.tried > 0) return trial.tried;
  trial.flag = flag;
  trial.given = given;
  return given;
}

void memory_is_of_device() { trial.on_device = true; }

void memory_is_there(Comm* comm) {
  const bool is_trial = trial.tried > 0;
  if (is_trial && comm) comm->barrier();
  const int ranks = comm ? comm->size() : 1;
  if (is_trial || ++trial.ranks_there == ranks) trial.there = true;
  if (is_trial) throw UserError("a trial is over");
}

std::string batch_that_fits(const std::function<void()>& body) {
  if (!trial.flag || !trial.on_device || trial.there || under_mpirun()) return "";
  const int64_t most = largest(body);
  trial.tried = 0;
  return most > 0 ? fmt::format(": {} {} fits", trial.flag, most)
                  : fmt::format(": not even {} 1 fits", trial.flag);
}

}  // namespace ladder
