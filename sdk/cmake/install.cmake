# What a plugin author gets: headers, libzerolab_sdk.so, find_package(zerolab), a skeleton of each kind. LibTorch stays where it is:
# its folder is recorded, and ZEROLAB_TORCH overrides it.
include(CMakePackageConfigHelpers)
set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/zerolab)

install(TARGETS zerolab_sdk EXPORT zerolabTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/include/zerolab/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/zerolab)
install(EXPORT zerolabTargets NAMESPACE zerolab:: DESTINATION ${_package})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/zerolabConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/zerolabConfig.cmake
                              INSTALL_DESTINATION ${_package} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/zerolabConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/zerolabConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/zerolabConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/ZerolabTorch.cmake
  ${CMAKE_CURRENT_LIST_DIR}/ZerolabAddPlugin.cmake
  ${CMAKE_CURRENT_LIST_DIR}/plugin_exports.map
  DESTINATION ${_package})
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/template DESTINATION ${CMAKE_INSTALL_DATADIR}/zerolab)

# Something to run a plugin with.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/experiments/smoke DESTINATION ${CMAKE_INSTALL_DATADIR}/zerolab/experiments)
