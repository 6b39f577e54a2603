# Targets `format` (rewrites the sources) and `format-check` (fails if one would change): clang-format 14 over every .h and .cpp that
# git knows or would add. Another major version lays lines out otherwise, so it is not used.
find_program(CLANG_FORMAT_PROGRAM NAMES clang-format-14 clang-format)
set(_version "none")
if(CLANG_FORMAT_PROGRAM)
  execute_process(COMMAND ${CLANG_FORMAT_PROGRAM} --version OUTPUT_VARIABLE _version OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
set(_sources "git ls-files --cached --others --exclude-standard '*.h' '*.cpp' | while read -r f; do test -e \"$f\" && echo \"$f\"; done")
if(_version MATCHES "version 14\\.")
  add_custom_target(format COMMAND sh -c "${_sources} | xargs -r ${CLANG_FORMAT_PROGRAM} -i"
                    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} VERBATIM)
  add_custom_target(format-check COMMAND sh -c "${_sources} | xargs -r ${CLANG_FORMAT_PROGRAM} --dry-run -Werror"
                    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} VERBATIM)
else()
  foreach(_target format format-check)
    add_custom_target(${_target}
      COMMAND ${CMAKE_COMMAND} -E echo "clang-format 14 is needed (Debian's clang-format-14); here: ${_version}"
      COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
  endforeach()
endif()
