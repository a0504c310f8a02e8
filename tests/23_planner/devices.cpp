// Device files: those of the chapter can be read, and a fault of one is one clear line.
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "chapters/23_planner/device.h"
#include "common/input_file.h"

namespace ladder::planner {
namespace {

const std::string kFolder = LADDER_DEVICES;

std::string refusal(const std::string& text) {
  try {
    parse_device("own.toml", text);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(Devices, AllCanBeRead) {
  for (const std::string& name : device_names(kFolder))
    EXPECT_FALSE(read_device(kFolder, name).name.empty());
  const Device h100 = read_device(kFolder, "h100");
  EXPECT_EQ(h100.bf16, 989.4e12);
  EXPECT_EQ(h100.memory, 80e9);
  EXPECT_EQ(h100.node, 8);
  EXPECT_EQ(h100.net_rate, 50e9);
  EXPECT_EQ(h100.peak("fp16"), h100.bf16);
}

TEST(Devices, EveryFieldIsNeededOnce) {
  const std::string text = read_small_file(kFolder + "/h100.toml", 1 << 16);
  EXPECT_EQ(refusal(text), "");
  for (const DeviceField& field : kDeviceFields) {
    const std::string name(field.name), key = name.substr(name.find('.') + 1);
    std::string without = text, twice = text;
    const size_t section = text.find("[" + name.substr(0, name.find('.')) + "]"),
                 begin = text.find("\n" + key + " = ", section), end = text.find('\n', begin + 1);
    without.erase(begin, end - begin);
    twice.insert(begin, text.substr(begin, end - begin));
    EXPECT_EQ(refusal(without), "--device own.toml: no " + name +
                                    "; legal are files that have each "
                                    "field once");
    EXPECT_NE(refusal(twice).find(name + " is no field, or there twice"), std::string::npos)
        << name;
  }
}

TEST(Devices, WrongNumbersAreRefused) {
  const std::string text = read_small_file(kFolder + "/h100.toml", 1 << 16);
  for (const auto& [from, to, says] :
       {std::tuple{"bf16 = 989.4", "bf16 = nan", "peak.bf16 is nan"},
        {"bf16 = 989.4", "bf16 = -1", "legal are numbers from"},
        {"bf16 = 989.4", "bf16 = 1e3x", "peak.bf16 is 1e3x"},
        {"links = 0.8", "links = 1.5", "achieved.links is 1.5; legal are numbers from 1e-06 to 1"},
        {"watts = 700", "wats = 700", "power.wats is no field"},
        {"devices = 8", "devices = inf", "node.devices is inf"}}) {
    std::string wrong = text;
    wrong.replace(wrong.find(from), std::string(from).size(), to);
    EXPECT_NE(refusal(wrong).find(says), std::string::npos) << refusal(wrong);
  }
}

TEST(Devices, AMessageIsHiddenInPart) {
  Device device;
  device.overlap = 0.4;
  EXPECT_DOUBLE_EQ(device.exposed(10, 100), 6);
  EXPECT_DOUBLE_EQ(device.exposed(10, 1), 9);
  device.overlap = 1;
  EXPECT_DOUBLE_EQ(device.exposed(10, 100), 0);
}

TEST(Devices, AKernelThatTheCacheHoldsHasItsRate) {
  Device device;
  device.memory_rate = 10, device.memory_share = 0.5;
  EXPECT_DOUBLE_EQ(device.call_seconds(20), 4);
  device.cache = 20, device.cache_rate = 40;
  EXPECT_DOUBLE_EQ(device.call_seconds(20), 0.5);
  EXPECT_DOUBLE_EQ(device.call_seconds(21), 4.2);
}

TEST(Devices, AGroupGoesThroughTheLinkThatJoinsIt) {
  const Device h100 = read_device(kFolder, "h100");
  EXPECT_EQ(link_of(h100, 1, 8).latency, h100.node_latency);
  EXPECT_EQ(link_of(h100, 4, 2).latency, h100.node_latency);
  EXPECT_EQ(link_of(h100, 1, 16).latency, h100.net_latency);
  EXPECT_EQ(link_of(h100, 8, 2).latency, h100.net_latency);
  // One card of 50 GB/s, and four of them for the four ranks that a group has in a node.
  EXPECT_DOUBLE_EQ(link_of(h100, 8, 2).rate, 0.8 * 50e9);
  EXPECT_DOUBLE_EQ(link_of(h100, 2, 64).rate, 0.8 * 200e9);
  EXPECT_EQ(messages_of_all_reduce(1), 0);
  EXPECT_EQ(messages_of_all_reduce(8), 6);
  EXPECT_EQ(messages_of_all_reduce(9), 8);
}

}  // namespace
}  // namespace ladder::planner
