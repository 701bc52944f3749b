# tamp_embedded: the text of every file below as raw string literals in one generated .cpp (cmake/embed_files.cmake writes it
# at build time, whenever one of them changes).
file(GLOB embedded_inputs CONFIGURE_DEPENDS
  ${CMAKE_SOURCE_DIR}/kernels/*/*.cuh
  ${CMAKE_SOURCE_DIR}/kernels/shared/*.h
  ${CMAKE_SOURCE_DIR}/codegen/reserved_names.txt
  ${CMAKE_SOURCE_DIR}/runtime_stub/host/*
  ${CMAKE_SOURCE_DIR}/runtime_stub/cuda_on_cpu/*
  ${CMAKE_SOURCE_DIR}/compiler/ir/vdevices/*.json
  ${CMAKE_SOURCE_DIR}/compiler/cli/page/*
  ${CMAKE_SOURCE_DIR}/compiler/select/records/*.jsonl)
set(embedded_source ${CMAKE_BINARY_DIR}/embedded_files.cpp)
add_custom_command(
  OUTPUT ${embedded_source}
  COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR} -DOUTPUT=${embedded_source} "-DFILES=${embedded_inputs}" -P ${CMAKE_SOURCE_DIR}/cmake/embed_files.cmake
  DEPENDS ${embedded_inputs} ${CMAKE_SOURCE_DIR}/cmake/embed_files.cmake
  VERBATIM)
add_library(tamp_embedded STATIC ${embedded_source} ${CMAKE_SOURCE_DIR}/compiler/support/embedded.cpp)
target_link_libraries(tamp_embedded PUBLIC tamp_support)
