#include "common/comm/failure.h"

#include <cstdio>
#include <new>

#include "common/error.h"
#include "kernels/check.h"

namespace ladder {
namespace {

/// A message may quote a path or a flag with anything in it.
std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = '?';
  return text;
}

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
  } catch (const UserError& e) {
    return {"error: " + one_line(e.what()), 2};
  } catch (const OutOfMemory& e) {
    return out_of_memory(one_line(e.what()));
  } catch (const std::bad_alloc&) {
    return out_of_memory("no memory beside the tensors");
  } catch (const std::exception& e) {
    return {"internal error: " + one_line(e.what()), 1};
  } catch (...) {
    return {"internal error: an exception of unknown type", 1};
  }
}

// fmt::print would throw where stderr is closed or full, and that inside a handler.
void tell(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }

}  // namespace ladder
