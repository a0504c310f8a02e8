// Faults for the tests of communication.
#pragma once

#include "common/comm/faulty_comm.h"

namespace ladder::test {

using ladder::Fault;
using ladder::FaultyComm;

}  // namespace ladder::test
