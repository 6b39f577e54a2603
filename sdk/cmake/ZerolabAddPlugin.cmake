# zerolab_add_plugin(<kind>/<name> [SOURCES file...] [LINK_LIBRARIES target...])
#
# Builds the plugin library zerolab_<kind>_<name>.so from SOURCES (default: <name>.cpp): hidden visibility, one exported symbol,
# everything resolved at link time, never unloaded; an optimizer with vector loops. Target: zerolab_<kind>_<name>.
# Output: ${ZEROLAB_PLUGIN_OUTPUT_DIR} if set, else the current binary folder. Installed to ${ZEROLAB_PLUGIN_INSTALL_DIR} if set.

function(zerolab_add_plugin id)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK_LIBRARIES" ${ARGN})
  if(NOT id MATCHES "^(model|data|optimizer|sharding|precision|scheduler)/[a-z0-9_]+$")
    message(FATAL_ERROR "zerolab_add_plugin: '${id}' is not KIND/NAME; the kinds are model, data, optimizer, sharding, "
                        "precision, scheduler, and a name is made of [a-z0-9_].")
  endif()
  string(REPLACE "/" ";" parts ${id})
  list(GET parts 0 kind)
  list(GET parts 1 name)
  if(NOT arg_SOURCES)
    set(arg_SOURCES ${name}.cpp)
  endif()
  set(target zerolab_${kind}_${name})
  add_library(${target} MODULE ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE zerolab::sdk zerolab::torch ${arg_LINK_LIBRARIES})
  target_compile_definitions(${target} PRIVATE
    ZEROLAB_TORCH_BUILD_ID="${ZEROLAB_TORCH_BUILD_ID}" ZEROLAB_BUILD_TYPE="$<CONFIG>")
  if(kind STREQUAL optimizer)
    # Loops that become vector loops, and give an element the same bits wherever in a loop it stands.
    target_compile_options(${target} PRIVATE -ffp-contract=off -fno-math-errno $<$<NOT:$<CONFIG:Debug>>:-O3>)
  endif()
  target_link_options(${target} PRIVATE
    LINKER:-z,defs LINKER:-z,nodelete LINKER:--version-script=${CMAKE_CURRENT_FUNCTION_LIST_DIR}/plugin_exports.map)
  set(output ${ZEROLAB_PLUGIN_OUTPUT_DIR})
  if(NOT output)
    set(output ${CMAKE_CURRENT_BINARY_DIR})
  endif()
  set_target_properties(${target} PROPERTIES
    PREFIX "" CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON
    LIBRARY_OUTPUT_DIRECTORY ${output}
    BUILD_RPATH "${ZEROLAB_TORCH_RPATH}" INSTALL_RPATH "$ORIGIN/../..;${ZEROLAB_TORCH_RPATH}")
  if(ZEROLAB_PLUGIN_INSTALL_DIR)
    install(TARGETS ${target} LIBRARY DESTINATION ${ZEROLAB_PLUGIN_INSTALL_DIR})
  endif()
endfunction()
