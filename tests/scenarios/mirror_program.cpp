// Drives a Mirror for mirror_s3_test.py.
//
// mirror_program push REMOTE RUN: reads "push STEP", "finish SECONDS" and "end" from standard
//   input, and prints what the mirror tells, a line each, and "finished" after a finish.
// mirror_program fetch REMOTE RUN [STEP]: prints the step, or "none".
// mirror_program check REMOTE
// Exit code: that of the error, which is printed.

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "zerolab/error.h"

#include "store/mirror.h"

namespace {

using zerolab::Mirror;

void print(const std::string& line) {
  std::cout << line << std::endl;  // at once: another program waits for it
}

void push(const std::string& remote, const std::string& run) {
  Mirror mirror(remote, run, print, std::chrono::milliseconds(50));
  for (std::string word; std::cin >> word && word != "end";) {
    int64_t number = 0;
    std::cin >> number;
    if (word == "push") {
      mirror.push(number);
    } else if (word == "finish") {
      mirror.finish(static_cast<double>(number));
      print("finished");
    }
  }
}

void act(const std::vector<std::string>& words) {
  const std::string what = words.at(0);
  if (what == "check") {
    Mirror::check(words.at(1));
  } else if (what == "push") {
    push(words.at(1), words.at(2));
  } else if (what == "fetch") {
    const auto step =
        Mirror::fetch(words.at(1), words.at(2), words.size() > 3 ? std::stoll(words[3]) : -1);
    print(step ? std::to_string(*step) : "none");
  }
}

}  // namespace

int main(int count, char** words) {
  try {
    act({words + 1, words + count});
  } catch (const zerolab::Error& error) {
    print(error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    print(error.what());
    return 99;
  }
}
