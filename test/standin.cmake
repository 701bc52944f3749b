# The stand-in for CUDA (runtime_stub/cuda_on_cpu), with kernels of its own: compiled as generated code is for the CPU.
find_package(Boost REQUIRED COMPONENTS context)
foreach(name standin_test standin_errors_test)
  add_executable(${name} ${CMAKE_SOURCE_DIR}/test/standin/${name}.cpp ${CMAKE_SOURCE_DIR}/test/support/main.cpp)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/runtime_stub/cuda_on_cpu)
  target_compile_definitions(${name} PRIVATE TAMP_CUDA_ON_CPU)
  target_compile_options(${name} PRIVATE -Wno-unknown-pragmas)  # #pragma unroll is nvcc's
  target_link_libraries(${name} PRIVATE tamp_options Boost::context)
  add_test(NAME standin.${name} COMMAND ${name})
  set_tests_properties(standin.${name} PROPERTIES LABELS cpu TIMEOUT 300)
endforeach()
