#include "common/comm/rank_error.h"

#include <new>

#include "common/comm/run_ranks.h"
#include "common/error.h"
#include "kernels/check.h"
#include "kernels/temporary_file.h"

namespace ladder {

RankError rank_error(int rank) {
  const std::string start = rank_name(rank) + ": ";
  try {
    throw;
  } catch (const NotWritten& e) {
    const std::string message = start + e.what();
    return {message, std::make_exception_ptr(NotWritten(message))};
  } catch (const UserError& e) {
    const std::string message = start + e.what();
    return {message, std::make_exception_ptr(UserError("{}", message.c_str()))};
  } catch (const CheckError& e) {
    const std::string message = start + e.what();
    return {message, std::make_exception_ptr(CheckError(message))};
  } catch (const NoTemporaryFile& e) {
    const std::string message = start + e.what();
    return {message, std::make_exception_ptr(NoTemporaryFile(message))};
  } catch (const OutOfMemory& e) {
    const std::string message = start + e.what();
    return {message, std::make_exception_ptr(OutOfMemory(message))};
  } catch (const std::bad_alloc&) {
    const std::string message = start + "no memory beside the tensors";
    return {message, std::make_exception_ptr(OutOfMemory(message))};
  } catch (const std::exception& e) {
    const std::string message = start + e.what();
    return {message, std::make_exception_ptr(std::runtime_error(message))};
  } catch (...) {
    const std::string message = start + "an exception of unknown type";
    return {message, std::make_exception_ptr(std::runtime_error(message))};
  }
}

Failure failure_of(int rank) {
  try {
    std::rethrow_exception(rank_error(rank).error);
  } catch (...) {
    return failure();
  }
}

}  // namespace ladder
