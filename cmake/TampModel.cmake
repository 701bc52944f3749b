# tamp_add_model: an ONNX model as a library target of your own CMake project.
#
#   include(<tamp>/cmake/TampModel.cmake)
#   tamp_add_model(resnet50 MODEL resnet50.onnx [VDEVICE h200] [PRECISION tf32] [POLICY wavefront] [DIMS batch=8 ...] [EMBED_WEIGHTS])
#   target_link_libraries(my_program PRIVATE resnet50)      # and #include "resnet50.h"
#
# `tamp compile` runs when CMake configures, again whenever the model file changes; files that come out the same keep their
# time stamps, so nothing is built twice. TAMP_EXECUTABLE names the program if it is not in PATH.
include_guard(GLOBAL)

function(tamp_add_model name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "EMBED_WEIGHTS" "MODEL;VDEVICE;PRECISION;POLICY" "DIMS")
  if(NOT arg_MODEL OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tamp_add_model(${name}): expected MODEL FILE.onnx and known options, found: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  find_program(TAMP_EXECUTABLE tamp REQUIRED)
  get_filename_component(model ${arg_MODEL} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/tamp/${name})
  set(fresh ${folder}.new)

  set(options --name ${name})
  foreach(option VDEVICE PRECISION POLICY)
    if(arg_${option})
      string(TOLOWER ${option} flag)
      list(APPEND options --${flag} ${arg_${option}})
    endif()
  endforeach()
  foreach(dim IN LISTS arg_DIMS)
    list(APPEND options --dim ${dim})
  endforeach()
  if(arg_EMBED_WEIGHTS)
    list(APPEND options --embed-weights)
  endif()

  file(REMOVE_RECURSE ${fresh})
  execute_process(COMMAND ${TAMP_EXECUTABLE} compile ${model} -o ${fresh} -q ${options} RESULT_VARIABLE failed ERROR_VARIABLE message)
  if(failed)
    message(FATAL_ERROR "tamp_add_model(${name}): ${message}")
  endif()
  file(MAKE_DIRECTORY ${folder})
  file(GLOB files RELATIVE ${fresh} ${fresh}/*)
  foreach(file IN LISTS files)
    file(COPY_FILE ${fresh}/${file} ${folder}/${file} ONLY_IF_DIFFERENT)
  endforeach()
  file(REMOVE_RECURSE ${fresh})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${model})
  add_subdirectory(${folder} ${folder}/build)
endfunction()
