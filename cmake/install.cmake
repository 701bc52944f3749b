# What `cmake --install` puts below the prefix, and CPack into a .deb: the program, the package that find_package(tamp) reads, the stand-in for
# CUDA, vDevices to begin own ones from, man page and completion. The folders are fixed and nothing holds a path, so the prefix may be moved.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # the program is enough: tests need not be built to install or to package it
set(tamp_cmake_folder lib/cmake/tamp)

install(TARGETS tamp RUNTIME DESTINATION bin)
install(FILES ${CMAKE_SOURCE_DIR}/cmake/TampModel.cmake ${CMAKE_SOURCE_DIR}/cmake/install/tampConfig.cmake DESTINATION ${tamp_cmake_folder})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/runtime_stub/cuda_on_cpu DESTINATION share/tamp)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/compiler/ir/vdevices DESTINATION share/tamp FILES_MATCHING PATTERN "*.json")
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/README.md DESTINATION share/doc/tamp)
install(FILES ${CMAKE_SOURCE_DIR}/cmake/install/completion.bash DESTINATION share/bash-completion/completions RENAME tamp)

# Before 1.0 another minor version may have another interface. Any machine may read the package: it only starts the program.
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tampConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${CMAKE_BINARY_DIR}/tampConfigVersion.cmake DESTINATION ${tamp_cmake_folder})

# The man page is made from the --help of the program that is being installed.
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" \"-DTAMP=$<TARGET_FILE:tamp>\" \"-DOUTPUT=${CMAKE_BINARY_DIR}/tamp.1\"
  -P \"${CMAKE_SOURCE_DIR}/cmake/install/man_page.cmake\" COMMAND_ERROR_IS_FATAL ANY)")
install(FILES ${CMAKE_BINARY_DIR}/tamp.1 DESTINATION share/man/man1)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The authors of tamp")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Compiler from ONNX models to one persistent CUDA kernel")
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/install/folder_modes.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # needs dpkg-dev
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "cmake, g++, libboost-context-dev")  # to build what tamp writes, on the stand-in
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "nvidia-cuda-toolkit, bash-completion")
include(CPack)
