# Finds LibTorch and defines the imported target zerolab::torch.
#
# The CMake package that comes with the CUDA wheel insists on a CUDA toolkit and links all of CUDA, so this
# links only libtorch_cpu and libc10. Looked for, in this order: the variable ZEROLAB_TORCH, the environment
# variable ZEROLAB_TORCH, the folder that tools/setup fills (.deps beside the top-level CMakeLists.txt).
#
# Sets ZEROLAB_TORCH_DIR (holds include/ and lib/), ZEROLAB_TORCH_VERSION, ZEROLAB_TORCH_BUILD_ID.
if(TARGET zerolab::torch)
  return()
endif()

set(_zerolab_torch "${ZEROLAB_TORCH}")
if(NOT _zerolab_torch)
  set(_zerolab_torch "$ENV{ZEROLAB_TORCH}")
endif()
if(NOT _zerolab_torch)
  file(GLOB _found "${CMAKE_SOURCE_DIR}/.deps/torch-*/torch")
  list(SORT _found COMPARE NATURAL ORDER DESCENDING)
  if(_found)
    list(GET _found 0 _zerolab_torch)
  elseif(ZEROLAB_TORCH_HINT)
    set(_zerolab_torch "${ZEROLAB_TORCH_HINT}")
  endif()
endif()
foreach(_sub "" "/torch" "/libtorch")
  if(EXISTS "${_zerolab_torch}${_sub}/include/ATen/core/Tensor.h")
    get_filename_component(ZEROLAB_TORCH_DIR "${_zerolab_torch}${_sub}" REALPATH)
    break()
  endif()
endforeach()
if(NOT ZEROLAB_TORCH_DIR)
  message(FATAL_ERROR "LibTorch not found (looked in '${_zerolab_torch}'). "
          "Run tools/setup, or give -DZEROLAB_TORCH=DIR (a LibTorch, or the torch folder of a Python torch).")
endif()

file(STRINGS "${ZEROLAB_TORCH_DIR}/include/torch/headeronly/version.h" _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" ZEROLAB_TORCH_VERSION "${_lines}")
if(ZEROLAB_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "LibTorch ${ZEROLAB_TORCH_VERSION} in ${ZEROLAB_TORCH_DIR} is too old: 2.11 or newer is needed.")
endif()

execute_process(COMMAND readelf -n "${ZEROLAB_TORCH_DIR}/lib/libtorch_cpu.so"
                OUTPUT_VARIABLE _notes ERROR_QUIET)
set(ZEROLAB_TORCH_BUILD_ID "unknown")
if(_notes MATCHES "Build ID: ([0-9a-f]+)")
  set(ZEROLAB_TORCH_BUILD_ID "${CMAKE_MATCH_1}")
endif()

# A CUDA build of LibTorch loads libcudart and libcupti even on a CPU: beside the wheel, or from a toolkit.
set(_torch_links "${ZEROLAB_TORCH_DIR}/lib/libc10.so")
file(GLOB _cuda_runtime "${ZEROLAB_TORCH_DIR}/../nvidia/cu*/lib")
set(ZEROLAB_TORCH_LIBRARY_DIRS "${ZEROLAB_TORCH_DIR}/lib" ${_cuda_runtime})

add_library(zerolab::torch INTERFACE IMPORTED GLOBAL)
target_include_directories(zerolab::torch SYSTEM INTERFACE
  "${ZEROLAB_TORCH_DIR}/include" "${ZEROLAB_TORCH_DIR}/include/torch/csrc/api/include")
target_link_libraries(zerolab::torch INTERFACE
  "${ZEROLAB_TORCH_DIR}/lib/libtorch_cpu.so" "${ZEROLAB_TORCH_DIR}/lib/libc10.so")
foreach(_dir ${ZEROLAB_TORCH_LIBRARY_DIRS})
  target_link_options(zerolab::torch INTERFACE "LINKER:-rpath-link,${_dir}")
endforeach()
set(ZEROLAB_TORCH_RPATH "${ZEROLAB_TORCH_LIBRARY_DIRS}")
target_compile_features(zerolab::torch INTERFACE cxx_std_20)
message(STATUS "LibTorch ${ZEROLAB_TORCH_VERSION}: ${ZEROLAB_TORCH_DIR}")
