#include "common/comm/rank_error.h"

#include "common/error.h"
#include "kernels/check.h"

namespace ladder {

RankError rank_error(int rank) {
  const std::string start = fmt::format("rank {}: ", rank);
  try {
    throw;
  } catch (const UserError& e) {
    const std::string message = start + e.what();
    return {message, std::make_exception_ptr(UserError("{}", message)), 2};
  } catch (const CheckError& e) {
    const std::string message = start + e.what();
    return {message, std::make_exception_ptr(CheckError(message)), 1};
  } catch (const OutOfMemory& e) {
    const std::string message = start + e.what();
    return {message, std::make_exception_ptr(OutOfMemory(message)), 2};
  } catch (const std::exception& e) {
    const std::string message = start + e.what();
    return {message, std::make_exception_ptr(std::runtime_error(message)), 1};
  } catch (...) {
    const std::string message = start + "an exception of unknown type";
    return {message, std::make_exception_ptr(std::runtime_error(message)), 1};
  }
}

}  // namespace ladder
