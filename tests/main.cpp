// Compiled once; every test program links it.
#include <csignal>

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // as the program does: a peer that is gone is an error, no end
  return Catch::Session().run(argc, argv);
}
