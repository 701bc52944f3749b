# The stand-in for CUDA (runtime_stub/cuda_on_cpu), with kernels of its own: compiled as generated code is for the CPU. Not
# sanitized: the address sanitizer knows one stack for each thread, and here every CUDA thread has its own.
foreach(name standin_test standin_warps_test standin_errors_test)
  add_executable(${name} ${CMAKE_SOURCE_DIR}/test/standin/${name}.cpp ${CMAKE_SOURCE_DIR}/test/support/main.cpp)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/runtime_stub/cuda_on_cpu)
  target_compile_definitions(${name} PRIVATE TAMP_CUDA_ON_CPU)
  target_compile_options(${name} PRIVATE -Wno-unknown-pragmas)  # #pragma unroll is nvcc's
  target_link_libraries(${name} PRIVATE tamp_warnings Catch2::Catch2 Boost::context)
  add_test(NAME standin.${name} COMMAND ${name})
  set_tests_properties(standin.${name} PROPERTIES LABELS cpu TIMEOUT 900)
endforeach()
